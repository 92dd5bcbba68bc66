"""``python -m ticketlock``: the command, where no script of that name is on the path."""

import sys

from ticketlock.cli import main

if __name__ == "__main__":
    sys.exit(main())
