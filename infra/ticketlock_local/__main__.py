"""`python -m ticketlock_local`: the commands that the Makefile runs."""

import argparse
import importlib
import sys

from ticketlock_local.errors import LocalCloudError

# The module and the function of each command; loaded only when asked for.
_COMMANDS = {
    "up": ("cloud.local", "up", "start an emulator, deploy to it and leave it running"),
    "down": ("cloud.local", "down", "stop what `up` started"),
    "demo": ("demo.run", "main", "show workflows that wait for each other"),
    "check-template": ("cloud.cdk_cli", "check_template", "synthesise and lint the template"),
    "template": ("plain.template", "write", "write the plain CloudFormation template"),
    "faces": ("faces", "write_faces", "write what the faces for tasks have in common with those for threads"),
    "check-faces": ("faces", "check_faces", "compare that with the files"),
}


def main() -> int:
    """Run one command and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ticketlock_local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, _, text) in _COMMANDS.items():
        commands.add_parser(name, help=text)
    module, function, _ = _COMMANDS[parser.parse_args().command]
    try:
        code: int = getattr(importlib.import_module(f"ticketlock_local.{module}"), function)()
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
