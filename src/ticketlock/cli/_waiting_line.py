"""The line that a waiting command shows on a terminal."""

import os
import sys
import time

import click
from rich.text import Text

from ticketlock.cli._wording import lease, plain, span
from ticketlock.locks._outcomes import Position

_USUAL_COLUMNS = 80


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
        self._seen_s = 0.0
        self._drawn = False

    def see(self, position: Position) -> None:
        """Take in what a look has found."""
        self._seen, self._seen_s = position, time.monotonic()
        self.draw()

    def draw(self) -> None:
        """Show what was seen last, and how long it has taken so far."""
        if self._shows and self._seen is not None:
            waited_s = int(time.monotonic() - self._began_s)
            line = Text(f"{self._entity}: {_place(self._seen)}, {waited_s} s; {self._in_the_way(self._seen)}")
            # A line that is broken cannot be drawn over.
            line.truncate(_columns() - 1, overflow="ellipsis")
            self._write(f"\r{line.plain}\x1b[K")
            self._drawn = True

    def _in_the_way(self, seen: Position) -> str:
        """For whom, or for what, it waits."""
        if seen.is_closed:
            return "closed by an operator"
        if not seen.holders:
            return "nobody holds it"
        now_ms = seen.now.likely_ms + round((time.monotonic() - self._seen_s) * 1_000)
        first = min(seen.holders, key=lambda holder: holder.lease_until_ms)
        more = f" and {len(seen.holders) - 1} more" if len(seen.holders) > 1 else ""
        of_lease = lease(first.lease_until_ms - now_ms)
        return f"held for {span(now_ms - first.since_ms)}, lease {of_lease}, by {plain(first.owner)}{more}"

    def wipe(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    @staticmethod
    def _write(text: str) -> None:
        click.echo(text, err=True, nl=False)


def _place(seen: Position) -> str:
    return "next in line" if seen.ahead == 0 else f"{seen.ahead} ahead"


def _columns() -> int:
    """How wide the terminal is; 80 columns where it does not say."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS
