"""The line that a waiting command shows on a terminal."""

import os
import sys
import time

import click

from ticketlock.cli._wording import plain
from ticketlock.locks._outcomes import Position


class WaitingLine:
    """One line on stderr, drawn again and again, and wiped out when the wait is over; nothing where nobody looks.

    Args:
        entity: what is waited for.
        quiet: to show nothing on a terminal either.
    """

    def __init__(self, entity: str, *, quiet: bool) -> None:
        self._entity = plain(entity)
        self._shows = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began_s = time.monotonic()
        self._seen: Position | None = None
        self._drawn = False

    def see(self, position: Position) -> None:
        """Take in what a look has found."""
        self._seen = position
        self.draw()

    def draw(self) -> None:
        """Show what was seen last, and how long it has taken so far."""
        if self._shows and self._seen is not None:
            waited_s = int(time.monotonic() - self._began_s)
            self._write(f"\r{self._entity}: {self._seen.ahead} ahead, {waited_s} s\x1b[K")
            self._drawn = True

    def wipe(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    @staticmethod
    def _write(text: str) -> None:
        click.echo(text, err=True, nl=False)
