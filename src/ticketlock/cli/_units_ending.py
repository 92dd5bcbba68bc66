"""``ticketlock units settle`` and ``rollback``: finish one unit, or roll it back."""

import click

from ticketlock.cli._exits import (
    ANSWER_WAS_NO,
    CONFIGURATION,
    LEASE_LOST,
    UNAVAILABLE,
    USAGE,
    WAIT_IS_OVER,
    Ended,
)
from ticketlock.cli._of_units import Desk, OfUnits
from ticketlock.cli._settings import settings_of, units_options
from ticketlock.cli._show import json_option
from ticketlock.cli._units_listing import no_record
from ticketlock.cli._units_reports import entry_json, item_told, items_told, json_of, state_told
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units import Outcome
from ticketlock.units._operators import Settled, inspect, roll_back
from ticketlock.units._operators import settle as settled

_DONE = {Outcome.COMMITTED: "finished", Outcome.ROLLED_BACK: "unmarked"}


@click.command(
    cls=OfUnits,
    example="ticketlock units settle 01KAQBT0E4SA1M0SPPS3EJ8KYB",
    ends=(0, USAGE, UNAVAILABLE, WAIT_IS_OVER, LEASE_LOST, CONFIGURATION),
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
    told = desk.follow(settled(desk.heads, desk.marks, unit))
    _tell_end(desk, unit, told, as_json=as_json)
    if told.outcome is Outcome.PENDING:
        assert told.unit is not None
        raise Ended(f"the unit {unit} is {state_told(told.unit)}: nothing was done", WAIT_IS_OVER)


@click.command(
    cls=OfUnits,
    example="ticketlock units rollback 01KAQBT0E4SA1M0SPPS3EJ8KYB",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, LEASE_LOST, CONFIGURATION),
)
@click.argument("unit")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@units_options
@click.pass_context
def rollback(context: click.Context, unit: str, yes: bool, as_json: bool) -> None:
    """Roll UNIT back if it is pending, even if its lease has not expired, and remove its marks.

    If its process is alive, its commit fails with UnitRolledBack.
    """
    desk = Desk(settings_of(context))
    shown = desk.follow(inspect(desk.heads, desk.marks, unit))
    if shown is not None and shown.unit.state is Outcome.PENDING:
        click.echo(f"{state_told(shown.unit)}; {items_told(shown.unit.items)}", err=True)
        if not yes:
            click.confirm(f"Roll the unit {unit} back?", abort=True, err=True)
    told = desk.follow(roll_back(desk.heads, desk.marks, unit))
    if told.outcome is Outcome.COMMITTED:
        assert told.unit is not None
        if as_json:
            click.echo(_told(unit, told))
        raise Ended(f"the unit {unit} was {state_told(told.unit)}: nothing was rolled back", LEASE_LOST)
    _tell_end(desk, unit, told, as_json=as_json)
    if not as_json:
        for entry in told.ended:
            click.echo(item_told(entry))


def _tell_end(desk: Desk, unit: str, told: Settled, *, as_json: bool) -> None:
    if as_json:
        click.echo(_told(unit, told))
    elif told.outcome in _DONE:
        done = f": {items_told(len(told.ended))} {_DONE[told.outcome]}" if told.ended else ""
        click.echo(f"{told.outcome.value}{done}")
    if told.outcome is Outcome.FORGOTTEN:
        raise no_record(unit, desk.heads.table)
    if isinstance(told.failed, InvalidUnitRequest):
        # The error's text may contain values of items.
        why = "another program has changed a unit's attributes or rows: `ticketlock units show` tells where"
        raise Ended(f"not every item of the unit {unit} is as it should be: {why}", CONFIGURATION) from told.failed
    if told.failed is not None:
        raise told.failed


def _told(unit: str, told: Settled) -> str:
    items = [entry_json(entry) for entry in told.ended]
    return json_of({"unit": unit, "outcome": told.outcome.value, "items": items})
