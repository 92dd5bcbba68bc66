"""``ticketlock top``: the busy locks and the open units, again and again: who is stuck, and what to do next."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ticketlock.cli._exits import CONFIGURATION, OUTPUT_LOST, UNAVAILABLE, USAGE, Explained
from ticketlock.cli._options import every_option, json_option, reading_options, table_options, wide_option
from ticketlock.cli._settings import settings_of
from ticketlock.cli._show import summary
from ticketlock.cli._units import Desk, listed_json
from ticketlock.cli._watching import watch
from ticketlock.cli._wording import Ending, console, fits
from ticketlock.locks import DEFAULT_NAMESPACE
from ticketlock.report import (
    ORDERS,
    URGENT,
    Listed,
    ListedUnit,
    NextStep,
    TableReader,
    TableReading,
    Tone,
    left_ms,
    plain,
    short_owner,
    short_span,
    state_of,
)

_LEAST_CELLS = {"lock": 12, "holder": 8}
"""What is shown of a name if there is no room for more; what is in other columns is not cut."""

_NUMBERS = ("lease", "queue", "oldest", "age", "items", "unfinished")

_SPARED = ("holder", "oldest", "items", "queue", "age", "lease", "unfinished")
"""The columns that are left out if there is no room, the first ones first."""

Cell = str | Text | Ending

_STYLES: Mapping[Tone, str] = {
    "good": "green",
    "late": "yellow",
    "bad": "red",
    "shut": "magenta",
    "open": "cyan",
    "plain": "",
}


@dataclass(frozen=True, kw_only=True)
class Top:
    """How ``top`` shows what it reads.

    Attributes:
        reader: reads the tables.
        place: the table's Region, and its endpoint if it is not that of AWS.
        wide: whether whole owners are shown.
    """

    reader: TableReader
    place: str
    wide: bool

    def to_json(self, reading: TableReading) -> dict[str, Any]:
        """A reading, for programs."""
        units = reading.shown_units
        return {
            "table": self.reader.name,
            "place": self.place,
            "readAtMs": reading.now_ms,
            "locks": [summary(each) for each in reading.shown_locks],
            "unitsTable": self.reader.units_name,
            "units": None if units is None else [listed_json(unit) for unit in units],
            "strangeRows": reading.strange,
        }

    def report(self, reading: TableReading, lines: int | None) -> RenderableType:
        """A reading, for people: a line for each lock and unit, and no more of them than there are lines for."""
        locks, units = reading.shown_locks, reading.shown_units or []
        # Of the heading, and of the headings of both tables with a blank line before each.
        others = 6 if units else 4
        of_locks, of_units = _share(len(locks), len(units), None if lines is None else lines - others)
        hints = [] if self.wide else ["whole names: --wide"]
        if lines is not None:
            hints.append("more: ticketlock show LOCK" + (", ticketlock units show UNIT" if units else ""))
        parts: list[RenderableType] = [self._heading(reading), Text("; ".join(hints), style="dim", no_wrap=True)]
        if locks:
            parts += [_locks_table(locks[:of_locks], wide=self.wide), *_more(len(locks) - of_locks, "locks")]
        else:
            parts += [Text("No lock is stuck." if reading.locks else "No lock is busy.")]
        if units:
            parts += [Text(), _units_table(units[:of_units]), *_more(len(units) - of_units, "units")]
        return Group(*parts)

    def _heading(self, reading: TableReading) -> Text:
        read_at, locks, units = datetime.fromtimestamp(reading.now_ms / 1_000, UTC), reading.locks, reading.units
        counts = [
            f"{len(locks):,} busy, ",
            f"{sum(each.judged.is_stuck for each in locks):,} stuck, ",
            f"{sum(each.waiting for each in locks):,} waiting",
        ]
        if units is not None:
            states = [state_of(each.unit) for each in units]
            each = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
            counts.append(f"; units: {each or 'none'}")
        if reading.strange:
            counts.append(f", {reading.strange:,} rows of no unit")
        place = f"{read_at:%Y-%m-%dT%H:%M:%SZ}, table {plain(self.reader.name)} in {self.place}"
        return Text(f"{place}\n{''.join(counts)}", no_wrap=True, overflow="ellipsis")


def _share(locks: int, units: int, room: int | None) -> tuple[int, int]:
    """How many locks and units to show; where some are left out, a line says how many."""
    if room is None or locks + units <= room:
        return locks, units
    for_units = min(units, max(2, room // 3, room - locks))
    return _fitting(locks, room - for_units), _fitting(units, for_units)


def _fitting(number: int, room: int) -> int:
    return number if number <= room else max(0, room - 1)


def _more(number: int, what: str) -> list[Text]:
    return [Text(f"… {number:,} more {what}", style="dim")] if number > 0 else []


class _Grid:
    """A table with one line for each row.

    Where there is no room it has fewer columns; in the end, and with whole names, a row may take several lines.
    """

    def __init__(self, *headings: str, wide: bool = False) -> None:
        self._headings, self._wide = headings, wide
        self._rows: list[tuple[Cell, ...]] = []

    def add_row(self, *cells: Cell) -> None:
        """Add a row."""
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        spared = [heading for heading in _SPARED if heading in self._headings and not self._wide]
        for number in range(len(spared) + 1):
            made = self._table(spared[:number], breaks=self._wide)
            if self._wide or fits(made, console, options):
                yield made
                return
        yield self._table(spared, breaks=True)

    def _table(self, without: Sequence[str], *, breaks: bool) -> Table:
        made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        places = [place for place, heading in enumerate(self._headings) if heading not in without]
        for place in places:
            heading, cells = self._headings[place], [str(row[place]) for row in self._rows]
            is_name = heading in _LEAST_CELLS or (breaks and place == 0)
            made.add_column(
                heading,
                justify="right" if heading in _NUMBERS else "left",
                no_wrap=not is_name,
                overflow="fold" if breaks else "ellipsis",
                min_width=None if is_name else max(map(cell_len, [heading, *cells])),
            )
        for row in self._rows:
            made.add_row(
                *(
                    Text(str(row[place])) if breaks and isinstance(row[place], Ending) else row[place]
                    for place in places
                )
            )
        return made


def _locks_table(locks: Sequence[Listed], *, wide: bool) -> _Grid:
    made = _Grid("lock", "verdict", "lease", "holder", "queue", "oldest", "next", wide=wide)
    for listed in locks:
        first = listed.judged.first
        lock = listed.lock.lock
        namespace = "" if lock.namespace == DEFAULT_NAMESPACE else f"{plain(lock.namespace)}/"
        made.add_row(
            Ending(plain(lock.entity), _LEAST_CELLS["lock"], kept=namespace),
            _verdict(listed),
            _lease(listed),
            Ending(_holder(listed, wide=wide), _LEAST_CELLS["holder"]),
            str(listed.waiting),
            "-" if first is None else short_span(listed.now_ms - first.created_at_ms),
            _step(listed.judged.next.value, is_urgent=listed.judged.is_stuck),
        )
    return made


def _lease(listed: Listed) -> str:
    holder = listed.judged.holder
    if holder is None or listed.judged.verdict.word == "expired":
        return "-"
    return short_span(left_ms(holder, listed.now_ms))


def _holder(listed: Listed, *, wide: bool) -> str:
    holder, number, closed_by = listed.judged.holder, len(listed.holders), listed.judged.closed_by
    if holder is None:
        return "-" if closed_by is None else f"by {plain(closed_by)}"
    owner = plain(holder.owner if wide else short_owner(holder.owner))
    return owner + (f", {listed.judged.alike} of {number}" if number > 1 else "")


def _verdict(listed: Listed) -> Text:
    verdict = listed.judged.verdict
    is_timed = verdict.for_ms is not None and verdict.word != "renewing"
    shown = f"{verdict.word} {short_span(verdict.for_ms or 0)}" if is_timed else verdict.word
    return Text(shown, style=_STYLES[listed.judged.tone])


def _units_table(units: Sequence[ListedUnit]) -> _Grid:
    made = _Grid("unit", "state", "age", "lease", "items", "unfinished", "next")
    for listed in units:
        unit = listed.unit
        state, lease_s = state_of(unit), unit.lease_ends_in_s
        over = "" if state != "expired" or lease_s is None else f" {short_span(round(-lease_s * 1_000))}"
        made.add_row(
            unit.unit,
            Text(f"{state}{over}", style=_STYLES[listed.tone]),
            short_span(round(unit.age_s * 1_000)),
            "-" if lease_s is None or state == "expired" else short_span(round(lease_s * 1_000)),
            "?" if unit.items is None else str(unit.items),
            listed.unfinished_told,
            _step(listed.step, is_urgent=listed.needs_you),
        )
    return made


def _step(step: str, *, is_urgent: bool) -> Text:
    return Text("-" if step == NextStep.NOTHING.value else step, style="bold" if is_urgent else "")


@click.command(
    cls=Explained,
    example="ticketlock top --stuck\nticketlock top --prefix order- --units-table units --once",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@reading_options
@click.option(
    "--sort",
    type=click.Choice(list(ORDERS)),
    default=URGENT,
    help="First the stuck ones, and of those the oldest waiter; or as `ls`.  [default: urgent]",
)
@wide_option
@json_option
@click.option("--once", is_flag=True, help="Take one reading, and end.")
@every_option(5)
@table_options
@click.pass_context
def top(
    context: click.Context,
    namespace: str | None,
    prefix: str,
    stuck: bool,
    sort: str,
    wide: bool,
    as_json: bool,
    once: bool,
    every: float,
) -> None:
    """Show who is stuck, and what to do next: a line for each busy lock, and for each open unit of work.

    It reads again and again until a signal arrives. `ticketlock show` explains the next step for a lock.

    Each reading costs half a read unit for each 4 KB of the lock table, and 1 for each busy lock: of a table of 10 MB,
    1,280 and more. Of the units table it reads the open units only; of the 20 oldest that are committed and not closed
    after 5 s, it reads up to 2,000 items together, a read unit for each 4 KB of an item, and counts the unfinished
    ones.
    """
    settings = settings_of(context)
    table, units = settings.lock_table(), Desk(settings) if settings.units_table else None
    reader = TableReader(table=table, units=units, namespace=namespace, prefix=prefix, stuck=stuck, order=sort)
    shown = Top(reader=reader, place=settings.place(), wide=wide or not console().is_terminal)
    if not once:
        watch(reader.read, every_s=every, to_json=shown.to_json if as_json else None, report=shown.report)
    elif as_json:
        click.echo(json.dumps(shown.to_json(reader.read()), ensure_ascii=False))
    else:
        console().print(shown.report(reader.read(), None))
