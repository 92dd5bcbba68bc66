"""``ticketlock units``: open units of work, for operators."""

import base64
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TextIO

import click

from ticketlock.cli._exits import (
    ANSWER_WAS_NO,
    CONFIGURATION,
    LEASE_LOST,
    MEANINGS,
    OUTPUT_LOST,
    UNAVAILABLE,
    USAGE,
    WAIT_IS_OVER,
    Ended,
    Explained,
    first_sentence,
)
from ticketlock.cli._options import json_option, units_group_options, units_options, yes_option
from ticketlock.cli._settings import CommandSettings, settings_of
from ticketlock.cli._streams import telling
from ticketlock.cli._units_reports import (
    entry_json,
    item_told,
    json_of,
    mark_json,
    marks_table,
    receipt_json,
    receipt_told,
    shown_json,
    shown_table,
    state_with_time,
    to_correct,
    unit_json,
    units_table,
)
from ticketlock.cli._wording import confirm, console
from ticketlock.errors import (
    CommittedUnfinished,
    InvalidUnitRequest,
    OutcomeUnknown,
    RequestNotApplied,
    TableNotFound,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.locks import this_user
from ticketlock.report import ListedUnit, UnitsReader, items_told, plain, state_of
from ticketlock.units import FoundMark, OpenUnit, Outcome, Record, UnitTable
from ticketlock.units._records import DEFAULT_PREFIX, Marks, Strange, new_id
from ticketlock.units._recovery import (
    Correction,
    Settled,
    correct,
    corrections,
    inspect,
    inspect_name,
    roll_back,
    unfinished,
)
from ticketlock.units._recovery import repair as repaired
from ticketlock.units._recovery import settle as settled
from ticketlock.units._words import LOW_LEVEL, Tables

# Part of the error of a table with other keys.
_OF_ANOTHER_KIND = "ValidationException"

_ORDERS: dict[str, Callable[[OpenUnit], Any]] = {
    "age": lambda unit: -unit.age_s,
    "lease": lambda unit: math.inf if unit.lease_ends_in_s is None else unit.lease_ends_in_s,
    "items": lambda unit: -(unit.items or 0),
    "state": state_of,
}

_TOLD = {
    "dropped": "dropped: the item keeps its old value",
    "replaced": "replaced: the item has the given value",
    "finished": "finished: DynamoDB has taken the unit's own value, and nothing was corrected",
}

_UNKNOWN = (Record.CLOSED, Record.GONE, Record.MISSING)


class OfUnits(Explained):
    """One of the commands."""

    meanings: ClassVar[Mapping[int | str, str]] = {
        **MEANINGS,
        0: "success",
        OUTPUT_LOST: "stdout cannot be written: a full disk, a closed pipe; what was to be done is done",
        WAIT_IS_OVER: "the unit is pending, and its lease has not expired",
        LEASE_LOST: "there is no record of the unit, or, for `rollback`, it is committed",
        CONFIGURATION: "configuration: the tables, credentials, Region, a permission; or marks are left to you",
    }

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        settings = settings_of(ctx)
        try:
            with explaining(settings):
                return super().invoke(ctx)
        except InvalidUnitRequest as error:
            typed = self.as_typed(ctx, error.field)
            if typed is None:
                raise Ended(str(error), CONFIGURATION) from error
            raise click.UsageError(f"{typed} is {error.value}; allowed: {error.allowed}", ctx) from error
        except CommittedUnfinished as error:
            raise Ended(str(error), CONFIGURATION) from error
        except (RequestNotApplied, OutcomeUnknown) as error:
            raise Ended(f"a table in {settings.place()} cannot be reached: {error}", UNAVAILABLE) from error


@contextmanager
def explaining(settings: CommandSettings) -> Iterator[None]:
    """Within the block, an error about the units table ends the command, and names that table."""
    try:
        yield
    except TableNotFound as error:
        raise Ended(f"{error}: {settings.place()}", CONFIGURATION) from error
    except TableRefused as error:
        hint = f": is {settings.units_table!r} a units table, and not a lock table?"
        raise Ended(f"{error}{hint if _OF_ANOTHER_KIND in str(error) else ''}", CONFIGURATION) from error


class Desk(UnitsReader):
    """What an operator's commands for units work with."""

    def __init__(self, settings: CommandSettings) -> None:
        super().__init__(settings.units_table_name, client=settings.client())
        self.settings = settings

    def read_open(self, strange: Callable[[Strange], object], most: int | None = None) -> list[ListedUnit]:
        """See ``UnitsReader``; an error ends the command."""
        with explaining(self.settings):
            return super().read_open(strange, most)

    def table(self, name: str) -> UnitTable:
        """A table of users."""
        return self.perform_steps(Tables(self.table_name).table(name, "table"))


def listed_json(listed: ListedUnit) -> dict[str, Any]:
    """A unit of a list, with what to do about it."""
    return {**unit_json(listed), "next": listed.step, "isStuck": listed.needs_you}


def no_record(unit: str, table: str) -> Ended:
    """The error for a unit whose record was deleted, or that never had one, or has it in another table."""
    return Ended(f"there is no record of the unit {plain(unit)} in '{plain(table)}'", LEASE_LOST)


@click.command(
    "ls",
    cls=OfUnits,
    example="ticketlock units ls --units-table units --sort lease",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    default="age",
    help="The oldest first; or first the lease that ends first, or the most items; or by state.  [default: age]",
)
@json_option
@units_options
@click.pass_context
def list_units(context: click.Context, sort: str, as_json: bool) -> None:
    """List the units that are pending, and those that have ended and are not closed.

    Reads only the records of these units; and of the 20 oldest that are committed and not closed after 5 s, up to
    2,000 items together, a read unit for each 4 KB of an item, to count the unfinished ones.
    """
    desk = Desk(settings_of(context))

    def strange(error: Strange) -> None:
        if isinstance(error, UnsupportedFormat):
            click.echo(f"ticketlock: {plain(str(error))}", err=True)
            return
        click.echo(f"ticketlock: a row of {plain(desk.table_name)} is not a unit's: {plain(error.value)}", err=True)

    listed = sorted(desk.read_open(strange), key=lambda each: _ORDERS[sort](each.unit))
    if as_json:
        click.echo(json_of([listed_json(each) for each in listed]))
    elif listed:
        console().print(units_table(listed))
    else:
        click.echo("No open units.", err=True)


@click.command(
    cls=OfUnits,
    example="ticketlock units show 01KAQBT0E4SA1M0SPPS3EJ8KYB --values",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, LEASE_LOST, CONFIGURATION),
)
@click.argument("unit", required=False)
@click.option("--name", metavar="TEXT", help="In place of UNIT: which unit of this name was committed.")
@click.option("--values", is_flag=True, help="Show the values that it writes, too; of a name, its result.")
@json_option
@units_options
@click.pass_context
def show(context: click.Context, unit: str | None, name: str | None, values: bool, as_json: bool) -> None:
    """Show the record of UNIT, which of its items carry its mark, and who has corrected items of it.

    Of the items it shows only the keys, unless --values is given. A name that is not used stays free.
    """
    desk = Desk(settings_of(context))
    if unit is None or name is not None:
        if unit is not None or name is None:
            raise click.UsageError("UNIT and --name: give one of them")
        receipt = desk.perform_steps(inspect_name(desk.table_name, name))
        if receipt is None:
            why = "no unit of it was committed, or it is forgotten"
            raise Ended(f"the name {plain(name)} has no receipt in '{plain(desk.table_name)}': {why}", LEASE_LOST)
        told = receipt_json(name, receipt, values=values)
        click.echo(json_of(told) if as_json else receipt_told(told))
        return
    shown = desk.perform_steps(inspect(desk.records, unit))
    if shown is None:
        raise no_record(unit, desk.table_name)
    corrected = desk.perform_steps(corrections(desk.records, unit))
    if as_json:
        click.echo(json_of(shown_json(shown, corrected, values=values)))
    else:
        console().print(shown_table(shown, corrected, values=values))


@click.command(
    cls=OfUnits,
    example="ticketlock units settle 01KAQBT0E4SA1M0SPPS3EJ8KYB",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, WAIT_IS_OVER, LEASE_LOST, CONFIGURATION),
)
@click.argument("unit")
@json_option
@units_options
@click.pass_context
def settle(context: click.Context, unit: str, as_json: bool) -> None:
    """Finish UNIT if it is committed, or roll it back if its lease has expired.

    It does not ask for confirmation: any unit that meets its marks does the same.
    """
    desk = Desk(settings_of(context))
    end = desk.perform_steps(settled(desk.records, unit))
    _tell_end(desk, unit, end, as_json=as_json)
    if end.outcome is Outcome.PENDING:
        assert end.unit is not None
        raise Ended(f"the unit {unit} is {state_with_time(end.unit)}: nothing was done", WAIT_IS_OVER)


@click.command(
    cls=OfUnits,
    example="ticketlock units rollback 01KAQBT0E4SA1M0SPPS3EJ8KYB",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, OUTPUT_LOST, LEASE_LOST, CONFIGURATION),
)
@click.argument("unit")
@yes_option
@json_option
@units_options
@click.pass_context
def rollback(context: click.Context, unit: str, yes: bool, as_json: bool) -> None:
    """Roll UNIT back if it is pending, even if its lease has not expired, and remove its marks.

    If its process is alive, its commit fails with UnitRolledBack.
    """
    desk = Desk(settings_of(context))
    shown = desk.perform_steps(inspect(desk.records, unit))
    if shown is not None and shown.unit.state is Outcome.PENDING:
        click.echo(f"{state_with_time(shown.unit)}; {items_told(shown.unit.items)}", err=True)
        if not yes:
            confirm(f"Roll the unit {unit} of {desk.settings.units_place()} back?")
    end = desk.perform_steps(roll_back(desk.records, unit))
    if end.outcome is Outcome.COMMITTED:
        assert end.unit is not None
        if as_json:
            click.echo(_told(unit, end))
        raise Ended(f"the unit {unit} was {state_with_time(end.unit)}: nothing was rolled back", LEASE_LOST)
    _tell_end(desk, unit, end, as_json=as_json)
    if not as_json:
        with telling(f"the unit {unit} is rolled back"):
            for entry in end.ended:
                click.echo(item_told(entry))


def _tell_end(desk: Desk, unit: str, end: Settled, *, as_json: bool) -> None:
    done = end.outcome.value if end.unit is None else f"{end.outcome.value}: {_done(end, end.unit.items)}"
    with telling(f"the unit {plain(unit)} is {done}"):
        if as_json:
            click.echo(_told(unit, end))
        elif end.unit is not None and end.outcome is not Outcome.PENDING:
            click.echo(done)
    if end.outcome is Outcome.FORGOTTEN:
        raise no_record(unit, desk.table_name)
    if isinstance(end.failed, InvalidUnitRequest):
        # The error's text may contain values of items.
        show = desk.settings.command(f"ticketlock units show {unit}")
        why = f"another program has changed a unit's attributes or rows: `{show}` tells where"
        raise Ended(f"not every item of the unit {unit} is as it should be: {why}", CONFIGURATION) from end.failed
    if end.refused:
        commands = [desk.settings.command(line) for entry in end.refused for line in to_correct(unit, entry)]
        raise Ended(str(end.failed), CONFIGURATION, commands)
    if end.failed is not None:
        raise end.failed


def _done(end: Settled, items: int | None) -> str:
    """What was done about the items of a unit that has ended, of which there are so many if its rows still exist."""
    if end.refused:
        return f"{len(end.refused)} of {items_told(items)} refused"
    if end.failed is not None:
        return f"not all of {items_told(items)} ended"
    if end.outcome is Outcome.ROLLED_BACK:
        return f"{items_told(len(end.ended))} unmarked"
    return "items finished" if items is None else f"{items_told(items)} finished"


def _told(unit: str, end: Settled) -> str:
    items = [entry_json(entry) for entry in end.ended]
    refused = [entry_json(entry) for entry in end.refused]
    return json_of({"unit": unit, "outcome": end.outcome.value, "items": items, "refused": refused})


@click.command(
    "correct",
    cls=OfUnits,
    example=(
        """ticketlock units correct 01KAQBT0E4SA1M0SPPS3EJ8KYB accounts '{"id": {"S": "ann"}}'\n"""
        """ticketlock units correct 01KAQBT0E4SA1M0SPPS3EJ8KYB accounts '{"id": {"S": "ann"}}' --drop"""
    ),
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@click.argument("unit")
@click.argument("table")
@click.argument("key")
@click.option(
    "--item", type=click.File(encoding="utf-8"), help="The item's new value, whole, in the low-level JSON; - for stdin."
)
@click.option("--drop", is_flag=True, help="Drop what the unit writes: the item keeps its old value.")
@click.option("--by", metavar="TEXT", default=this_user, help="Who decides.  [default: the user, and the host]")
@click.option("--why", default="", help="For what reason.")
@yes_option
@units_options
@click.pass_context
def correct_item(
    context: click.Context,
    unit: str,
    table: str,
    key: str,
    item: TextIO | None,
    drop: bool,
    by: str,
    why: str,
    yes: bool,
) -> None:
    """End an item of the committed UNIT whose new value DynamoDB refuses: with another value, or with its old one.

    Without --item and --drop it prints the value that UNIT would write, and writes nothing. A correction is kept on
    record for a year, with what UNIT would have written.
    """
    if item is not None and drop:
        raise click.UsageError("--item and --drop: give one of them")
    desk = Desk(settings_of(context))
    data = desk.table(table)
    where = data.key_alone("key", LOW_LEVEL.item("key", _read("KEY", key)))
    if item is None and not drop:
        found = desk.perform_steps(unfinished(desk.records, unit, data, where))
        if found.image is None:
            click.echo("The unit deletes this item.", err=True)
        else:
            click.echo(json_of(found.image))
        return
    image = None if item is None else LOW_LEVEL.item("item", _read("--item", item))
    if not yes:
        found = desk.perform_steps(unfinished(desk.records, unit, data, where))
        instead = "its old value" if image is None else "the given value"
        confirm(f"Give {item_told(found.entry)} {instead}, for good, for a unit of {desk.settings.units_place()}?")
    correction = Correction(new_id(int(time.time() * 1_000)), image, by, why)
    done = desk.perform_steps(correct(desk.records, unit, data, where, correction))
    with telling(_TOLD[done]):
        click.echo(_TOLD[done])


def _read(name: str, given: str | TextIO) -> Any:
    try:
        return _decode_binaries(json.loads(given if isinstance(given, str) else given.read()))
    except ValueError as error:
        raise click.UsageError(f"{name} is no JSON of attributes, {{name: {{type: value}}}}: {error}") from error


def _decode_binaries(value: Any) -> Any:
    """JSON of the low-level API with bytes in place of base64."""
    if isinstance(value, list):
        return [_decode_binaries(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and isinstance(value.get("B"), str):
        return {"B": base64.b64decode(value["B"])}
    if len(value) == 1 and isinstance(value.get("BS"), list):
        return {"BS": [base64.b64decode(each) for each in value["BS"]]}
    return {name: _decode_binaries(each) for name, each in value.items()}


@click.command(
    cls=OfUnits,
    example="ticketlock units repair accounts\nticketlock units repair accounts --write",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@click.argument("table")
@click.option(
    "--prefix",
    metavar="TEXT",
    default=DEFAULT_PREFIX,
    show_default=True,
    help="The prefix of the attributes that units add to your items.",
)
@click.option("--write", is_flag=True, help="Write, after a confirmation; without it, only list what would be done.")
@yes_option
@click.option(
    "--lost-records",
    is_flag=True,
    help="Remove marks whose records are missing, too: only if no unit runs with another units table.",
)
@json_option
@units_options
@click.pass_context
def repair(
    context: click.Context, table: str, prefix: str, write: bool, yes: bool, lost_records: bool, as_json: bool
) -> None:
    """Find the marks of units in TABLE, and finish or remove each as its unit's record says: for restored tables.

    Reads the whole table. It leaves the marks of units whose lease has not expired.
    """
    settings = settings_of(context)
    desk, marks = Desk(settings), Marks(prefix)
    data = desk.table(table)
    if write and not yes:
        lost = ", and those whose record is missing," if lost_records else ""
        which = f"the marks of ended units{lost} in '{plain(data.name)}'"
        records = f"as the records in '{plain(desk.table_name)}' say"
        confirm(f"Finish or remove {which}, {records} ({settings.place()})?")
    found = desk.perform_steps(repaired(data, desk.records, marks, write=write, lost_records=lost_records))
    with telling(f"'{plain(data.name)}' was {'repaired' if write else 'read'}"):
        if as_json:
            shown = {"table": data.name, "unitsTable": desk.table_name, "written": write}
            click.echo(json_of({**shown, "marks": [mark_json(each) for each in found]}))
        else:
            _tell_repair(data.name, found, write=write)
    left = Counter(each.record for each in found if each.needs_you)
    if left:
        raise Ended(_left(left, desk.table_name), CONFIGURATION)


def _tell_repair(name: str, found: Sequence[FoundMark], *, write: bool) -> None:
    if not found:
        click.echo("No marks.", err=True)
        return
    console().print(marks_table(found, write=write))
    counts = Counter(each.action for each in found)
    shown = ", ".join(f"{counts[action]} {action}" for action in ("finished", "unmarked", "left"))
    click.echo(f"{plain(name)}: {_marks(len(found))}: {shown}")
    unknown = sum(each.action == "unmarked" and each.record in _UNKNOWN for each in found)
    if unknown:
        click.echo(f"For {unknown} of the unmarked items no record is left of what was to be written.")
    if not write:
        click.echo("Nothing was written: add --write to try it.")


def _left(left: Counter[Record], units_table: str) -> str:
    kinds = ", ".join(f"{number} {record.value}" for record, number in left.items())
    shown = f"{_marks(left.total())} left for you to decide: {kinds}"
    if Record.MISSING in left:
        shown += f". Is '{plain(units_table)}' the units table of these units? Only then use --lost-records"
    return shown


def _marks(number: int) -> str:
    return "1 mark" if number == 1 else f"{number} marks"


class _UnitsGroup(click.Group):
    """Has its whole first sentence in the list of commands."""

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002  # click cuts what is longer
        """Its first sentence."""
        return first_sentence(self)


@click.group(cls=_UnitsGroup, epilog="`ticketlock units COMMAND --help` has an example of each, and its exit codes.")
@units_group_options
def units() -> None:
    """List the units of work that are open, and end those of crashed processes."""


for _command in (correct_item, list_units, repair, rollback, settle, show):
    units.add_command(_command)
