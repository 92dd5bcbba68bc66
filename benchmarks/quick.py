"""The option of every program here that prints figures: a short run, which shows that the program still works."""

import argparse


def options_of(description: str | None, quick: str) -> argparse.ArgumentParser:
    """A parser with ``--quick``.

    Args:
        description: of the program.
        quick: what a short run leaves out. Its figures are no measurements, so it judges no durations.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser
