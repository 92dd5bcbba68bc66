"""The command ``ticketlock``: locks for shells and operators. Needs the extra ``cli``.

Only this part of the package reads environment variables.
"""

import sys


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    try:
        import click  # noqa: F401  # imported to see whether it is installed
        import rich  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name not in ("click", "rich"):
            raise
        sys.stderr.write(
            "ticketlock: the command needs the extra cli: pip install '.[cli]' in a checkout; "
            "with a wheel: pip install 'click>=8.1.8,<9' 'rich>=13.9'\n"
        )
        return 78
    try:
        from ticketlock.cli._commands import run

        return run()
    except KeyboardInterrupt:  # before there was a command to handle it
        return 130
