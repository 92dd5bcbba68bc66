"""``ticketlock acquire``, ``renew`` and ``release``: a lock held across processes under the name of its owner."""

import json
from datetime import UTC, datetime
from typing import Any

import click

from ticketlock import Lease, LockName
from ticketlock.cli._exits import (
    ANSWER_WAS_NO,
    CONFIGURATION,
    LEASE_LOST,
    OUTPUT_LOST,
    SIGNALLED,
    UNAVAILABLE,
    USAGE,
    WAIT_IS_OVER,
    Ended,
    Explained,
)
from ticketlock.cli._operate import force
from ticketlock.cli._options import (
    decision_options,
    lease_option,
    namespace_option,
    table_options,
    waiting_options,
    yes_option,
)
from ticketlock.cli._settings import settings_of
from ticketlock.cli._signals import Signals
from ticketlock.cli._streams import OutputLost, telling
from ticketlock.cli._waiting import WaitOptions, stand_in_line
from ticketlock.report import plain

_HELD_BY = "The owner that you gave to `acquire`, or that it printed."

_owner_option = click.option("--owner", required=True, metavar="ID", help=_HELD_BY)


@click.command(
    cls=Explained,
    example="ticketlock acquire production --owner build-7 --lease 30m --wait 1h",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, WAIT_IS_OVER, CONFIGURATION, SIGNALLED),
)
@click.argument("entity")
@click.option(
    "--owner",
    metavar="ID",
    help="Who acquires the lock. Repeat the command with the same owner to get the same grant.  [default: a new one]",
)
@waiting_options
@table_options
@click.pass_context
def acquire(context: click.Context, /, **said: Any) -> None:
    """Wait for the lock on ENTITY in arrival order, and keep it for the length of the lease.

    Prints the holder as JSON. Nothing renews the lease by itself: run `ticketlock renew` to renew it, and
    `ticketlock release` to free the lock.
    """
    settings, options = settings_of(context), WaitOptions(**said)
    settings.ask_for_credentials()
    with Signals() as signals:
        lease = stand_in_line(settings, options, signals, heartbeat=False)
        try:
            _tell(lease)
        except OutputLost as lost:
            # Who does not know the owner cannot free the lock.
            lease._give_back()
            back = f"a new grant of the lock on '{plain(options.entity)}' was given back"
            raise Ended(f"{back}: the output cannot be written: {lost}", OUTPUT_LOST) from lost
        lease.detach()


@click.command(
    cls=Explained,
    example="ticketlock renew production --owner build-7 --lease 30m",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, LEASE_LOST, CONFIGURATION),
)
@click.argument("entity")
@_owner_option
@namespace_option
@lease_option
@table_options
@click.pass_context
def renew(context: click.Context, /, entity: str, owner: str, namespace: str, lease: float) -> None:
    """Renew the lease of the lock on ENTITY: a full lease, counted from now, unless it ends later already.

    Prints the holder as JSON, with the new deadline. A longer --lease than that of `acquire` extends this one lease.
    """
    renewed = settings_of(context).locks(lease_s=lease).resume(entity, owner, namespace=namespace)
    renewed.detach()
    with telling(f"the lease on '{plain(entity)}' was renewed"):
        _tell(renewed)


@click.command(
    cls=Explained,
    example=(
        "ticketlock release production --owner build-7\n"
        'ticketlock release production --force --why "build-7 was killed"'
    ),
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, OUTPUT_LOST, LEASE_LOST, CONFIGURATION),
)
@click.argument("entity")
@click.option("--owner", metavar="ID", help=_HELD_BY)
@click.option("--force", "by_force", is_flag=True, help="Take it away from its current holder. Asks first.")
@click.option("--fencing-token", type=int, metavar="N", help="With --force: only if the holder has this token.")
@decision_options
@yes_option
@namespace_option
@table_options
@click.pass_context
def release(
    context: click.Context,
    /,
    entity: str,
    owner: str | None,
    by_force: bool,
    fencing_token: int | None,
    by: str | None,
    why: str | None,
    yes: bool,
    namespace: str,
) -> None:
    """Free the lock on ENTITY, for its owner or by force."""
    if by_force == (owner is not None):
        raise click.UsageError("whose lock? Give --owner, or --force.")
    for option, value in (("--fencing-token", fencing_token), ("--by", by), ("--why", why)):
        if value is not None and not by_force:
            raise click.UsageError(f"{option} needs --force.")
    settings, lock = settings_of(context), LockName(entity, namespace)
    if owner is None:
        force(settings, lock, fencing_token, by=by, why=why, yes=yes)
        return
    released = settings.lock_table().release_as(lock, owner)
    shown = {
        "entity": entity,
        "namespace": namespace,
        "owner": owner,
        "heldSeconds": released.held_ms / 1_000,
        "leaseWasOver": released.lease_was_over,
    }
    with telling(f"the lock on '{plain(entity)}' was released"):
        click.echo(json.dumps(shown, ensure_ascii=False))
    if released.lease_was_over:
        raise Ended(f"the lease on '{plain(entity)}' expired before its release", LEASE_LOST)


def _tell(lease: Lease) -> None:
    rest_s = lease.remaining_s
    shown = {
        "entity": lease.entity,
        "namespace": lease.namespace,
        "owner": lease.owner,
        "fencingToken": lease.fencing_token,
        "deadline": _iso(lease.deadline),
        "remainingSeconds": round(rest_s, 3),
        "shared": lease.shared,
        "dataLeft": lease.data_left,
    }
    click.echo(json.dumps(shown, ensure_ascii=False))


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
