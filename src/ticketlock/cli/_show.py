"""``ticketlock ls`` and ``ticketlock show``: the locks in the table."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import click
from rich.live import Live

from ticketlock import LockName, LockState, LockSummary, LockTable, TableRefused
from ticketlock.cli._columns import console
from ticketlock.cli._durations import Duration
from ticketlock.cli._exits import CONFIGURATION, UNAVAILABLE, USAGE
from ticketlock.cli._explained import Explained
from ticketlock.cli._reports import Listed, list_table, state, state_tables, summary
from ticketlock.cli._settings import settings_of, table_options
from ticketlock.cli._signals import Signals
from ticketlock.cli._wait_in_line import namespace_option
from ticketlock.wire._at_once import at_once

json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


_ORDERS: dict[str, Callable[[Listed], Any]] = {
    "name": lambda each: each.lock.lock.entity,
    "held": lambda each: each.held_since_ms,
    "waiting": lambda each: -each.waiting,
    "oldest": lambda each: each.waited_since_ms,
}
# Reading one lock takes one request.
_READS_AT_ONCE = 16


@click.command(
    "ls",
    cls=Explained,
    example="ticketlock ls --busy --prefix order- --sort held",
    ends=(0, USAGE, UNAVAILABLE, CONFIGURATION),
)
@click.option("--namespace", help="Only the locks of this namespace.")
@click.option("--prefix", default="", help="Only locks whose entity begins with this text.")
@click.option("--busy", is_flag=True, help="Only locks with a holder or a waiter.")
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    default="name",
    help="By name; or first those held longest, with the most waiters, with the oldest waiter.  [default: name]",
)
@json_option
@table_options
@click.pass_context
def list_locks(
    context: click.Context, namespace: str | None, prefix: str, busy: bool, sort: str, as_json: bool
) -> None:
    """List the locks: who holds them and for how long, and how long the first in line has waited.

    Reads the whole table, and then each listed lock that has a holder or a waiter.
    """
    table = settings_of(context).lock_table()
    found = [
        lock
        for lock in table.list_locks()
        if namespace in (None, lock.lock.namespace)
        and lock.lock.entity.startswith(prefix)
        and (not busy or lock.held or lock.waiting)
    ]
    found.sort(key=lambda lock: (lock.lock.entity, lock.lock.namespace))
    entries = [each for each in _in_detail(table, found) if not busy or each.lock.held or each.waiting]
    listed = sorted(entries, key=_ORDERS[sort])
    if as_json:
        click.echo(_json([summary(lock) for lock in listed]))
    elif listed:
        console().print(list_table(listed))
    else:
        click.echo("No locks.", err=True)


def _in_detail(table: LockTable, locks: Sequence[LockSummary]) -> list[Listed]:
    def read(lock: LockSummary) -> Listed:
        if not lock.held and not lock.waiting:
            return Listed(lock, None)
        try:
            return Listed(lock, table.inspect(lock.lock, to_the_end=False))
        except TableRefused:
            # A caller that may list all locks may lack the permission to read some.
            return Listed(lock, None)

    return at_once([partial(read, lock) for lock in locks], _READS_AT_ONCE)


@click.command(
    cls=Explained,
    example="ticketlock show order-42 --watch --every 5s",
    ends=(0, USAGE, UNAVAILABLE, CONFIGURATION),
)
@click.argument("entity")
@namespace_option
@json_option
@click.option("--watch", is_flag=True, help="Read the lock again and again, until a signal arrives.")
@click.option("--every", type=Duration("100ms"), default=2.0, metavar="TIME", help="How often to read.  [default: 2s]")
@table_options
@click.pass_context
def show(context: click.Context, entity: str, namespace: str, as_json: bool, watch: bool, every: float) -> None:
    """Show who holds the lock on ENTITY and who waits for it, how long and until when."""
    table, lock = settings_of(context).lock_table(), LockName(entity, namespace)
    if not watch:
        found = table.inspect(lock)
        click.echo(_json(state(lock, found))) if as_json else console().print(state_tables(lock, found))
        return
    screen = console()
    with Signals() as signals, ExitStack() as stack:
        if as_json:

            def show_once(found: LockState) -> None:
                # One line for each read.
                click.echo(json.dumps(state(lock, found), ensure_ascii=False))

        elif screen.is_terminal:
            # At the end the last one stays.
            live = stack.enter_context(Live(console=screen, auto_refresh=False))

            def show_once(found: LockState) -> None:
                live.update(state_tables(lock, found), refresh=True)

        else:

            def show_once(found: LockState) -> None:
                screen.print(state_tables(lock, found), end="\n\n")

        while signals.ending() is None:
            show_once(table.inspect(lock))
            signals.wait(every)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
