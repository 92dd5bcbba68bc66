"""``ticketlock ls`` and ``ticketlock show``: what stands in the table."""

import json
from typing import Any

import click
from rich.live import Live

from ticketlock import LockName
from ticketlock.cli._reports import console, list_table, state, state_tables, summary
from ticketlock.cli._settings import settings_of, table_options
from ticketlock.cli._signals import Signals
from ticketlock.cli._wait_in_line import Seconds, namespace_option

json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")


@click.command("ls")
@click.option("--namespace", help="Only the locks of this namespace.")
@click.option("--busy", is_flag=True, help="Only those that somebody holds or waits for.")
@json_option
@table_options
@click.pass_context
def list_locks(context: click.Context, namespace: str | None, busy: bool, as_json: bool) -> None:
    """List the locks. Reads the whole table."""
    found = [
        lock
        for lock in settings_of(context).lock_table().list_locks()
        if namespace in (None, lock.lock.namespace) and (not busy or lock.held or lock.waiting)
    ]
    found.sort(key=lambda lock: (lock.lock.entity, lock.lock.namespace))
    if as_json:
        click.echo(_json([summary(lock) for lock in found]))
    elif found:
        console().print(list_table(found))
    else:
        click.echo("No locks.", err=True)


@click.command()
@click.argument("entity")
@namespace_option
@json_option
@click.option("--watch", is_flag=True, help="Look again and again, until a signal comes.")
@click.option("--every", type=Seconds(0.1), default=2.0, metavar="SECONDS", help="How often to look.  [default: 2]")
@table_options
@click.pass_context
def show(context: click.Context, entity: str, namespace: str, as_json: bool, watch: bool, every: float) -> None:
    """Show who holds the lock on ENTITY and who waits for it, how long and until when."""
    table, lock = settings_of(context).lock_table(), LockName(entity, namespace)
    if not watch:
        found = table.inspect(lock)
        click.echo(_json(state(lock, found))) if as_json else console().print(state_tables(lock, found))
        return
    with Signals() as signals:
        if as_json:
            while signals.ending() is None:
                # A line a look.
                click.echo(json.dumps(state(lock, table.inspect(lock)), ensure_ascii=False))
                signals.wait(every)
            return
        with Live(console=console(), auto_refresh=False, transient=True) as live:
            while signals.ending() is None:
                live.update(state_tables(lock, table.inspect(lock)), refresh=True)
                signals.wait(every)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
