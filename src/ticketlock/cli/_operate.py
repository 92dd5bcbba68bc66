"""``ticketlock init``, ``limit`` and ``remove-waiter``: what operators change."""

import sys
from typing import Any

import click

from ticketlock import InvalidLockRequest, LockLost, LockName, LockState, create_table
from ticketlock.cli._exits import (
    ANSWER_WAS_NO,
    CONFIGURATION,
    LEASE_LOST,
    OUTPUT_LOST,
    UNAVAILABLE,
    USAGE,
    Ended,
    Explained,
)
from ticketlock.cli._options import decision_options, namespace_option, table_options, yes_option
from ticketlock.cli._settings import CommandSettings, settings_of
from ticketlock.cli._streams import OutputLost, telling
from ticketlock.cli._wording import confirm
from ticketlock.locks import LockItem, ended_by_unsetting, no_waiter
from ticketlock.report import decided, lease, permits_of, plain, span, unsetting, who_end

# Unlike a lock's requests, these may be slow, and the SDK may retry them.
_PATIENT: dict[str, Any] = {"read_timeout": 20, "retries": {"total_max_attempts": 4, "mode": "standard"}}


@click.command(
    cls=Explained,
    example="ticketlock init --table locks --deletion-protection",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@yes_option
@click.option("--deletion-protection", is_flag=True, help="No one can delete the table until this is switched off.")
@table_options
@click.pass_context
def init(context: click.Context, /, yes: bool, deletion_protection: bool) -> None:
    """Create the lock table, billed on demand, with time to live.

    Of an existing lock table only time to live is enabled, if it is off.
    """
    settings = settings_of(context)
    name, place = settings.table_name, settings.lock_place()
    if not yes:
        confirm(f"Create {place}?")
    more: dict[str, Any] = {"DeletionProtectionEnabled": True} if deletion_protection else {}
    client = settings.client(**_PATIENT)
    try:
        made = create_table(name, client=client, **more)
    except ValueError as wrong:  # the existing table is not a lock table
        raise Ended(str(wrong), CONFIGURATION) from wrong
    shown = f"{'created' if made else 'there was already'} {place}"
    with telling(shown):
        click.echo(shown)


def _reason(why: str | None, *, yes: bool) -> str:
    """The reason that was given; if none was, and there is someone to ask, what they answer."""
    if why is None and not yes and sys.stdin.isatty():
        why = click.prompt("Why? `show` prints it; Enter for no reason", default="", show_default=False, err=True)
    return why or ""


def force(
    settings: CommandSettings,
    lock: LockName,
    fencing_token: int | None,
    *,
    by: str | None,
    why: str | None,
    yes: bool,
) -> None:
    """Take a lock away from its holders, after a confirmation that names them."""
    table, name = settings.lock_table(), plain(lock.entity)
    found = table.inspect(lock)
    holders = [
        holder for holder in (found.item.holders if found.item else ()) if fencing_token in (None, holder.fencing_token)
    ]
    if not holders:
        raise Ended(f"no one holds the lock on '{name}'{_with(fencing_token)}", LEASE_LOST)
    for holder in holders:
        rest_ms = holder.lease_until_ms - found.now.likely_ms
        lease = f"its lease ends in {span(rest_ms)}" if rest_ms > 0 else f"its lease expired {span(-rest_ms)} ago"
        click.echo(f"{plain(holder.owner)}, fencing token {holder.fencing_token}: {lease}", err=True)
    if not yes:
        who = "this holder" if len(holders) == 1 else "each of these holders"
        then = f"Until its next heartbeat, {who} may work at the same time as the next one"
        confirm(f"Take the lock on '{name}' in {settings.lock_place()} away? {then}")
    reason = _reason(why, yes=yes)
    lost: OutputLost | None = None
    for holder in holders:
        try:
            table.force_release(lock, holder.fencing_token, by=by, why=reason)
            click.echo(f"taken from {plain(holder.owner)}, fencing token {holder.fencing_token}")
        except LockLost:
            click.echo(f"{plain(holder.owner)} does not hold it any more", err=True)
        except OutputLost as unsaid:
            # Who has confirmed it means all of them.
            lost = unsaid
    if lost is not None:
        with telling(f"the lock on '{name}' was taken from all of these holders"):
            raise lost


class _Permits(click.IntRange):
    """A number; the N that another command has printed in place of one is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        if value == "N":
            self.fail("put the number of permits that the lock's users ask for in place of N", param, ctx)
        return super().convert(value, param, ctx)


@click.command(
    cls=Explained,
    example='ticketlock limit order-42 0 --why "INC-7: two builds deploy at once"\nticketlock limit order-42 --unset',
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@click.argument("entity")
@click.argument("permits", type=_Permits(0, 100), metavar="[N]", required=False)
@click.option(
    "--unset", is_flag=True, help="Remove the limit: the number that the users ask for applies again; N, if given."
)
@decision_options
@yes_option
@namespace_option
@table_options
@click.pass_context
def limit(
    context: click.Context,
    /,
    entity: str,
    permits: int | None,
    unset: bool,
    by: str | None,
    why: str | None,
    yes: bool,
    namespace: str,
) -> None:
    """Limit how many may hold the lock on ENTITY at once; replaces the number its users ask for; 0 closes it.

    Current holders keep the lock. The limit stays until you set another one, or unset it.
    """
    if permits is None and not unset:
        raise click.UsageError("how many? Give N, or --unset.")
    settings, lock, name = settings_of(context), LockName(entity, namespace), plain(entity)
    table = settings.lock_table()
    if unset or not yes:
        found = table.inspect(lock)
        if unset:
            _warn_of_waiters_that_end(found, permits)
        if not yes:
            confirm(f"{_what(permits, unset=unset)} '{name}' in {settings.lock_place()} ({_as_found(found)})?")
    reason = _reason(why, yes=yes)
    if not unset:
        assert permits is not None
        item = table.set_limit(lock, permits, by=by, why=reason).item
    else:
        item = _unset(settings, lock, permits, by=by, why=reason)
    shown = f"{name}: {'not used yet' if item is None else _as_it_is(item)}"
    with telling(shown):
        click.echo(shown)


def _warn_of_waiters_that_end(found: LockState, permits: int | None) -> None:
    if ended := ended_by_unsetting(found, permits):
        click.echo(f"{who_end(ended)}, with PermitsMismatch", err=True)


def _unset(
    settings: CommandSettings, lock: LockName, permits: int | None, *, by: str | None, why: str
) -> LockItem | None:
    table = settings.lock_table()
    try:
        return table.unset_limit(lock, permits, by=by, why=why).item
    except InvalidLockRequest as error:
        if error.field != "permits" or permits is not None:
            raise
        how = unsetting(lock, table.inspect(lock)).typed(settings.command)
        raise click.UsageError(
            f"no one had used the lock on '{plain(lock.entity)}' before its limit was set, so also give the number of "
            f"permits: `{how.command}`; {how.text}"
        ) from error


def _what(permits: int | None, *, unset: bool) -> str:
    if unset:
        return "Remove the limit of the lock on"
    return "Close the lock on" if permits == 0 else f"Let at most {permits} at once hold the lock on"


def _as_found(found: LockState) -> str:
    item = found.item
    if item is None:
        return "not used yet"
    limited = item.limit_set if item.permits_are_set else None
    who = "" if limited is None else f"; set {decided(limited, found.now.likely_ms)}"
    return f"now {permits_of(item.permits)}, held by {item.held}{who}"


def _as_it_is(item: LockItem) -> str:
    return f"{permits_of(item.permits)}, held by {item.held}, {item.waiting} waiting"


def _with(fencing_token: int | None) -> str:
    return "" if fencing_token is None else f" with fencing token {fencing_token}"


@click.command(
    cls=Explained,
    example="ticketlock show order-42\nticketlock remove-waiter order-42 1795269400007",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, OUTPUT_LOST, LEASE_LOST, CONFIGURATION),
)
@click.argument("entity")
@click.argument("ticket", type=click.IntRange(0))
@yes_option
@namespace_option
@table_options
@click.pass_context
def remove_waiter(context: click.Context, /, entity: str, ticket: int, yes: bool, namespace: str) -> None:
    """Remove the waiter with TICKET from the queue for the lock on ENTITY; `ticketlock show` lists the tickets.

    A waiter that still runs joins again at the end of the queue: end its process or execution to remove it for good.
    """
    settings, lock, name = settings_of(context), LockName(entity, namespace), plain(entity)
    table = settings.lock_table()
    if not yes:
        found = table.inspect(lock)
        row = next((each for each in found.rows if each.ticket == ticket), None)
        if row is None:
            raise no_waiter(lock, ticket)
        waited_ms = found.now.likely_ms - row.created_at_ms
        of_lease = lease(row.lease_until_ms - found.now.likely_ms)
        click.echo(f"{plain(row.owner)}, ticket {ticket}: has waited {span(waited_ms)}, lease {of_lease}", err=True)
        confirm(f"Remove it from the queue for '{name}' in {settings.lock_place()}?")
    shown = f"removed {plain(table.remove_waiter(lock, ticket).owner)}, ticket {ticket}"
    with telling(shown):
        click.echo(shown)
