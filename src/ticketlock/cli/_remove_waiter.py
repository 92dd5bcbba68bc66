"""``ticketlock remove-waiter``: removes a waiter from the queue."""

import click

from ticketlock import LockName
from ticketlock.cli._exits import ANSWER_WAS_NO, CONFIGURATION, LEASE_LOST, UNAVAILABLE, USAGE, Ended
from ticketlock.cli._explained import Explained
from ticketlock.cli._settings import settings_of, table_options
from ticketlock.cli._wait_in_line import namespace_option
from ticketlock.cli._wording import lease, plain, span


@click.command(
    cls=Explained,
    example="ticketlock show order-42\nticketlock remove-waiter order-42 1795269400007",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, LEASE_LOST, CONFIGURATION),
)
@click.argument("entity")
@click.argument("ticket", type=click.IntRange(0))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@namespace_option
@table_options
@click.pass_context
def remove_waiter(context: click.Context, /, entity: str, ticket: int, yes: bool, namespace: str) -> None:
    """Remove the waiter with TICKET from the queue for the lock on ENTITY; `ticketlock show` lists the tickets.

    A waiter that still runs joins again at the end of the queue: end its process or execution to remove it for good.
    """
    table, lock, name = settings_of(context).lock_table(), LockName(entity, namespace), plain(entity)
    if not yes:
        found = table.inspect(lock)
        row = next((each for each in found.rows if each.ticket == ticket), None)
        if row is None:
            raise _no_waiter(name, ticket)
        waited_ms = found.now.likely_ms - row.created_at_ms
        of_lease = lease(row.lease_until_ms - found.now.likely_ms)
        click.echo(f"{plain(row.owner)}, ticket {ticket}: has waited {span(waited_ms)}, lease {of_lease}", err=True)
        click.confirm(f"Remove it from the queue for '{name}'?", abort=True, err=True)
    removed = table.remove_waiter(lock, ticket)
    if removed is None:
        raise _no_waiter(name, ticket)
    click.echo(f"removed {plain(removed.owner)}, ticket {ticket}")


def _no_waiter(name: str, ticket: int) -> Ended:
    return Ended(f"no one waits for the lock on '{name}' with ticket {ticket}", LEASE_LOST)
