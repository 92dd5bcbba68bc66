"""``ticketlock units repair``: finds the marks that no sweep finds, and resolves them."""

from collections import Counter
from collections.abc import Sequence

import click

from ticketlock.cli._columns import console
from ticketlock.cli._exits import ANSWER_WAS_NO, CONFIGURATION, UNAVAILABLE, USAGE, Ended
from ticketlock.cli._of_units import Desk, OfUnits
from ticketlock.cli._settings import settings_of, units_options
from ticketlock.cli._show import json_option
from ticketlock.cli._units_reports import json_of, mark_json, marks_table
from ticketlock.cli._wording import plain
from ticketlock.units import FoundMark, Record
from ticketlock.units._operators import repair as repaired

_UNKNOWN = (Record.CLOSED, Record.GONE, Record.MISSING)


@click.command(
    cls=OfUnits,
    example="ticketlock units repair accounts\nticketlock units repair accounts --write",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, CONFIGURATION),
)
@click.argument("table")
@click.option("--write", is_flag=True, help="Write, after a confirmation; without it, only list what would be done.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--lost-records",
    is_flag=True,
    help="Remove marks whose records are missing, too: only if no unit runs with another units table.",
)
@json_option
@units_options
@click.pass_context
def repair(context: click.Context, table: str, write: bool, yes: bool, lost_records: bool, as_json: bool) -> None:
    """Find the marks of units in TABLE, and finish or remove each as its unit's record says: for restored tables.

    Reads the whole table. It leaves the marks of units whose lease has not expired.
    """
    settings = settings_of(context)
    desk = Desk(settings)
    data = desk.table(table)
    if write and not yes:
        lost = ", and those whose record is missing," if lost_records else ""
        which = f"the marks of ended units{lost} in '{plain(data.name)}'"
        records = f"as the records in '{plain(desk.heads.table)}' say"
        click.confirm(f"Finish or remove {which}, {records} ({settings.place()})?", abort=True, err=True)
    found = desk.follow(repaired(data, desk.heads, desk.marks, write=write, lost_records=lost_records))
    if as_json:
        told = {"table": data.name, "unitsTable": desk.heads.table, "written": write}
        click.echo(json_of({**told, "marks": [mark_json(each) for each in found]}))
    else:
        _tell_repair(data.name, found, write=write)
    left = Counter(each.record for each in found if each.needs_you)
    if left:
        raise Ended(_left(left, desk.heads.table), CONFIGURATION)


def _tell_repair(name: str, found: Sequence[FoundMark], *, write: bool) -> None:
    if not found:
        click.echo("No marks.", err=True)
        return
    console().print(marks_table(found, write=write))
    counts = Counter(each.action for each in found)
    told = ", ".join(f"{counts[action]} {action}" for action in ("finished", "unmarked", "left"))
    click.echo(f"{plain(name)}: {_marks(len(found))}: {told}")
    unknown = sum(each.action == "unmarked" and each.record in _UNKNOWN for each in found)
    if unknown:
        click.echo(f"For {unknown} of the unmarked items no record is left of what was to be written.")
    if not write:
        click.echo("Nothing was written: add --write to do it.")


def _left(left: Counter[Record], units_table: str) -> str:
    kinds = ", ".join(f"{number} {record.value}" for record, number in left.items())
    told = f"{_marks(left.total())} left for you to decide: {kinds}"
    if Record.MISSING in left:
        told += f". Is '{plain(units_table)}' the units table of these units? Only then use --lost-records"
    return told


def _marks(number: int) -> str:
    return "1 mark" if number == 1 else f"{number} marks"
