"""``ticketlock units correct``: ends an item of a committed unit whose new value DynamoDB refuses."""

import getpass
import json
import time
from typing import Any, TextIO

import click

from ticketlock.cli._exits import ANSWER_WAS_NO, CONFIGURATION, UNAVAILABLE, USAGE
from ticketlock.cli._of_units import Desk, OfUnits
from ticketlock.cli._settings import settings_of, units_options
from ticketlock.cli._units_reports import bytes_read, item_told, json_of
from ticketlock.units._operators import Correction, correct, unfinished
from ticketlock.units._record import new_id
from ticketlock.units._values import LOW_LEVEL

_TOLD = {
    "dropped": "dropped: the item keeps its old value",
    "replaced": "replaced: the item has the new value",
    "finished": "finished: DynamoDB has taken the unit's own value, and nothing was corrected",
}


@click.command(
    "correct",
    cls=OfUnits,
    example=(
        """ticketlock units correct 01KAQBT0E4SA1M0SPPS3EJ8KYB accounts '{"id": {"S": "ann"}}'\n"""
        """ticketlock units correct 01KAQBT0E4SA1M0SPPS3EJ8KYB accounts '{"id": {"S": "ann"}}' --drop"""
    ),
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, CONFIGURATION),
)
@click.argument("unit")
@click.argument("table")
@click.argument("key")
@click.option("--item", type=click.File(), help="The item's new value, whole, in the low-level JSON; - for stdin.")
@click.option("--drop", is_flag=True, help="Drop what the unit writes: the item keeps its old value.")
@click.option("--by", default=getpass.getuser, help="Who decides.  [default: the name of the user]")
@click.option("--why", default="", help="For what reason.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
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
        found = desk.follow(unfinished(desk.heads, desk.marks, unit, data, where))
        if found.image is None:
            click.echo("The unit deletes this item.", err=True)
        else:
            click.echo(json_of(found.image))
        return
    image = None if item is None else LOW_LEVEL.item("item", _read("--item", item.read()))
    if not yes:
        found = desk.follow(unfinished(desk.heads, desk.marks, unit, data, where))
        instead = "its old value" if image is None else "the given value"
        click.confirm(f"Give {item_told(found.entry)} {instead}, for good?", abort=True, err=True)
    correction = Correction(new_id(int(time.time() * 1_000)), image, by, why)
    done = desk.follow(correct(desk.heads, desk.marks, unit, data, where, correction))
    click.echo(_TOLD[done])


def _read(name: str, given: str) -> Any:
    try:
        return bytes_read(json.loads(given))
    except ValueError as error:
        raise click.UsageError(f"{name} is no JSON of attributes, {{name: {{type: value}}}}: {error}") from error
