"""The status line that a waiting command shows on a terminal."""

import os
import sys
import time

import click
from rich.text import Text

from ticketlock.cli._wording import lease, plain, span
from ticketlock.locks._outcomes import Position

_USUAL_COLUMNS = 80


class WaitingLine:
    """One line on stderr, redrawn during the wait and erased after it. Nothing is shown if stderr is not a terminal.

    Args:
        entity: the lock's entity.
        quiet: whether to show nothing on a terminal either.
    """

    def __init__(self, entity: str, *, quiet: bool) -> None:
        self._entity = plain(entity)
        self._shows = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began_s = time.monotonic()
        self._seen: Position | None = None
        self._seen_s = 0.0
        self._drawn = False

    def see(self, position: Position) -> None:
        """Take the result of a poll, and show it."""
        self._seen, self._seen_s = position, time.monotonic()
        self.draw()

    def draw(self) -> None:
        """Show the result of the last poll, and how long the wait has lasted."""
        if self._shows and self._seen is not None:
            waited_s = int(time.monotonic() - self._began_s)
            line = Text(f"{self._entity}: {_place(self._seen)}, {waited_s} s; {self._obstacle(self._seen)}")
            # A line that the terminal wraps cannot be overwritten.
            line.truncate(_columns() - 1, overflow="ellipsis")
            self._write(f"\r{line.plain}\x1b[K")
            self._drawn = True

    def _obstacle(self, seen: Position) -> str:
        """What the wait is for: the holder, or a closed lock."""
        if seen.is_closed:
            return "closed by an operator"
        if not seen.holders:
            return "no one holds it"
        now_ms = seen.now.likely_ms + round((time.monotonic() - self._seen_s) * 1_000)
        first = min(seen.holders, key=lambda holder: holder.lease_until_ms)
        more = f" and {len(seen.holders) - 1} more" if len(seen.holders) > 1 else ""
        of_lease = lease(first.lease_until_ms - now_ms)
        return f"held for {span(now_ms - first.since_ms)}, lease {of_lease}, by {plain(first.owner)}{more}"

    def wipe(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    @staticmethod
    def _write(text: str) -> None:
        click.echo(text, err=True, nl=False)


def _place(seen: Position) -> str:
    return "next in line" if seen.ahead == 0 else f"{seen.ahead} ahead"


def _columns() -> int:
    """The width of the terminal; 80 columns if it is unknown."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS
