"""``ticketlock units ls`` and ``show``: the records of units."""

import math
from collections.abc import Callable
from typing import Any

import click

from ticketlock.cli._columns import console
from ticketlock.cli._exits import CONFIGURATION, LEASE_LOST, UNAVAILABLE, USAGE, Ended
from ticketlock.cli._of_units import Desk, OfUnits
from ticketlock.cli._settings import settings_of, units_options
from ticketlock.cli._show import json_option
from ticketlock.cli._units_reports import json_of, shown_json, shown_table, state_of, unit_json, units_table
from ticketlock.cli._wording import plain
from ticketlock.errors import UnsupportedFormat
from ticketlock.units import OpenUnit
from ticketlock.units._operators import inspect, open_units
from ticketlock.units._rows import Strange

_ORDERS: dict[str, Callable[[OpenUnit], Any]] = {
    "age": lambda unit: -unit.age_s,
    "lease": lambda unit: math.inf if unit.lease_ends_in_s is None else unit.lease_ends_in_s,
    "items": lambda unit: -(unit.items or 0),
    "state": state_of,
}


def no_record(unit: str, table: str) -> Ended:
    """The error for a unit whose record was deleted, or that never had one, or has it in another table."""
    return Ended(f"there is no record of the unit {plain(unit)} in '{plain(table)}'", LEASE_LOST)


@click.command(
    "ls",
    cls=OfUnits,
    example="ticketlock units ls --units-table units --sort lease",
    ends=(0, USAGE, UNAVAILABLE, CONFIGURATION),
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

    Reads the whole units table.
    """
    desk = Desk(settings_of(context))

    def strange(error: Strange) -> None:
        if isinstance(error, UnsupportedFormat):
            click.echo(f"ticketlock: {plain(str(error))}", err=True)
            return
        click.echo(f"ticketlock: a row of {plain(desk.heads.table)} is not a unit's: {plain(error.value)}", err=True)

    listed = sorted(desk.follow(open_units(desk.heads, strange)), key=_ORDERS[sort])
    if as_json:
        click.echo(json_of([unit_json(unit) for unit in listed]))
    elif listed:
        console().print(units_table(listed))
    else:
        click.echo("No open units.", err=True)


@click.command(
    cls=OfUnits,
    example="ticketlock units show 01KAQBT0E4SA1M0SPPS3EJ8KYB --values",
    ends=(0, USAGE, UNAVAILABLE, LEASE_LOST, CONFIGURATION),
)
@click.argument("unit")
@click.option("--values", is_flag=True, help="Show the values that it writes, too.")
@json_option
@units_options
@click.pass_context
def show(context: click.Context, unit: str, values: bool, as_json: bool) -> None:
    """Show the record of UNIT, and which of its items carry its mark.

    Of the items it shows only the keys, unless --values is given.
    """
    desk = Desk(settings_of(context))
    shown = desk.follow(inspect(desk.heads, desk.marks, unit))
    if shown is None:
        raise no_record(unit, desk.heads.table)
    if as_json:
        click.echo(json_of(shown_json(shown, values=values)))
    else:
        console().print(shown_table(shown, values=values))
