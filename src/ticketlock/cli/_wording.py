"""What people read at a terminal: tables, questions, and the status line of a wait."""

import os
import sys
import time
from collections.abc import Iterable, Iterator

import click
from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ticketlock.cli._exits import ANSWER_WAS_NO, Ended
from ticketlock.locks import Position
from ticketlock.report import lease, plain, span

_USUAL_COLUMNS = 80
_WIDE = 10_000


def console() -> Console:
    """The console for tables: as wide as the terminal, and in a pipe as wide as the table needs."""
    made = Console(highlight=False)
    if not sys.stdout.isatty():
        # FORCE_COLOR and others make rich take a pipe for a terminal: they decide the colours alone.
        return Console(highlight=False, width=_WIDE, force_terminal=False, color_system=made.color_system)  # type: ignore[arg-type]
    return made


def confirm(question: str) -> None:
    """Ask before something is written; end the command unless the answer is yes."""
    try:
        is_yes = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        # The question has no line break.
        click.echo(err=True)
        raise Ended("nothing was done: there is no terminal to ask on; give --yes", ANSWER_WAS_NO) from None
    if not is_yes:
        raise click.Abort


class Ending:
    """A text of which only the end is shown if there is no room: the end of an ARN names what the ARN is of.

    Args:
        text: the whole text.
        least: how many cells it needs at least.
        kept: what stays before it, also if there is no room; if it takes more than half of that, its end is cut.
    """

    def __init__(self, text: str, least: int = 12, *, kept: str = "") -> None:
        self._text = text
        self._least = least
        self._kept = kept

    def __str__(self) -> str:
        return self._kept + self._text

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        kept, room = self._kept, options.max_width
        if cell_len(str(self)) <= room:
            yield Text(str(self))
            return
        if cell_len(kept) > room // 2:
            kept = chop_cells(kept, max(1, room // 2 - 1))[0]
        # Cut into lines from its end.
        end = chop_cells(self._text[::-1], max(1, room - cell_len(kept) - 1))[0]
        yield Text(f"{kept}…{end[::-1]}")

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        least = sum(min(cell_len(part), self._least) for part in (self._kept, self._text))
        return Measurement(least, cell_len(str(self)))


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether a table has room: narrower, words and names would be broken."""
    return console.measure(table, options=options.update_width(_WIDE)).minimum <= options.max_width


class Columns:
    """Rows under the same headings."""

    def __init__(self, names: tuple[str, ...], numbers: tuple[str, ...], more: tuple[str, ...] = ()) -> None:
        self._names, self._numbers, self._more = names, numbers, more
        self._rows: list[tuple[str | Ending, ...]] = []

    def add(self, *cells: str | Ending) -> None:
        """Add a row."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        yield from [table] if fits(table, console, options) else self._line_by_line()

    def _table(self) -> Table:
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for place, name in enumerate(self._names):
            cells = [row[place] for row in self._rows]
            if any(isinstance(cell, Ending) for cell in cells):
                made.add_column(name)
            else:
                _add_whole(made, name, cells)
        for place, name in enumerate(self._numbers, len(self._names)):
            _add_whole(made, name, [row[place] for row in self._rows], justify="right")
        for name in self._more:
            made.add_column(name, overflow="fold")
        for row in self._rows:
            made.add_row(*map(_rendered, row))
        return made

    def _line_by_line(self) -> Iterator[Table]:
        for number, row in enumerate(self._rows):
            made = Table.grid(padding=(0, 3, 0, 0))
            made.add_column(no_wrap=True)
            made.add_column(overflow="fold")
            if number:
                made.add_row("")
            for name, cell in zip((*self._names, *self._numbers, *self._more), row, strict=True):
                if cell:
                    made.add_row(name, _rendered(cell))
            yield made


def _add_whole(table: Table, name: str, cells: Iterable[str | Ending], justify: JustifyMethod = "left") -> None:
    """Add a column whose cells are neither cut nor broken: rich would let a narrow one break between words."""
    widths = [cell_len(cell) for cell in (name, *cells) if isinstance(cell, str)]
    table.add_column(name, justify=justify, no_wrap=True, min_width=max(widths))


def _rendered(cell: str | Ending) -> Text | Ending:
    # As plain text: a name in brackets is not markup.
    return Text(cell) if isinstance(cell, str) else cell


class WaitingLine:
    """One line on stderr, redrawn during the wait and erased after it. Nothing is shown if stderr is not a terminal."""

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
            shown = Text(f"{self._entity}: {_place(self._seen)}, {waited_s} s; {self._obstacle(self._seen)}")
            # A line that the terminal wraps cannot be overwritten.
            shown.truncate(_columns() - 1, overflow="ellipsis")
            self._write(f"\r{shown.plain}\x1b[K")
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
