"""``ticketlock ls`` and ``ticketlock show``: the locks in the table."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ticketlock import LockName, LockState, LockSummary, LockTable, TableRefused
from ticketlock.cli._exits import CONFIGURATION, UNAVAILABLE, USAGE, Explained
from ticketlock.cli._settings import Duration, namespace_option, settings_of, table_options
from ticketlock.cli._signals import Signals
from ticketlock.cli._wording import Columns, Ending, console, lease, permits_and_who_set_them, plain, span
from ticketlock.locks._items import Holder, Row
from ticketlock.locks._operators import first_in_line
from ticketlock.wire._performer import at_once

json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")

# Reading one lock takes one request.
_READS_AT_ONCE = 16


@dataclass(frozen=True)
class Listed:
    """One lock of a list.

    Attributes:
        lock: what the Scan of the table has returned of it.
        front: its holders, and its queue as far as the first waiter; None if this caller may not read it, or if there
            is neither a holder nor a waiter.
    """

    lock: LockSummary
    front: LockState | None

    @property
    def holders(self) -> list[dict[str, Any]]:
        """The holders, the one that has held it longest first."""
        if self.front is None or self.front.item is None:
            return []
        by_age = sorted(self.front.item.holders, key=lambda holder: holder.since_ms)
        return [_holder(each, self.front.now.likely_ms) for each in by_age]

    @property
    def oldest_waiter(self) -> dict[str, Any] | None:
        """The first in line."""
        row = first_in_line(self.front) if self.front is not None else None
        return _waiter(row, self.front) if row is not None and self.front is not None else None

    @property
    def waiting(self) -> int:
        """How many wait, as the lock item counts them: a count may outlast its waiter, but 0 if there is no row."""
        has_no_row = self.front is not None and not self.front.rows
        return 0 if has_no_row else self.lock.waiting

    @property
    def held_since_ms(self) -> float:
        """Since when it is held, by table time; infinity if there is no holder."""
        holders = self.front.item.holders if self.front is not None and self.front.item is not None else ()
        return min((holder.since_ms for holder in holders), default=math.inf)

    @property
    def waited_since_ms(self) -> float:
        """Since when the first in line has waited, by table time; infinity if there is no waiter."""
        row = first_in_line(self.front) if self.front is not None else None
        return row.created_at_ms if row is not None else math.inf


def summary(listed: Listed) -> dict[str, Any]:
    """One lock of a list, for JSON."""
    lock = listed.lock
    return {
        "entity": lock.lock.entity,
        "namespace": lock.lock.namespace,
        "held": lock.held,
        "shared": lock.held_shared > 0,
        "permits": lock.permits,
        "permitsAreSet": lock.permits_are_set,
        "waiting": listed.waiting,
        "fencingToken": lock.fencing_token,
        "meanHoldSeconds": _seconds(lock.mean_hold_ms),
        "holders": listed.holders,
        "oldestWaiter": listed.oldest_waiter,
    }


def list_table(locks: Iterable[Listed]) -> Columns:
    """Locks, for people."""
    made = Columns(("entity", "namespace", "holder"), ("held for", "waiting", "oldest", "permits"))
    for listed in locks:
        lock, holders, waiter = listed.lock, listed.holders, listed.oldest_waiter
        permits = f"{lock.permits} set" if lock.permits_are_set else str(lock.permits)
        made.add(
            plain(lock.lock.entity),
            plain(lock.lock.namespace),
            Ending(_first_of(holders) if holders or not lock.held else f"? ({lock.held})"),
            span(round(holders[0]["heldForSeconds"] * 1_000)) if holders else "-",
            str(listed.waiting),
            span(round(waiter["waitingForSeconds"] * 1_000)) if waiter else "-",
            "closed" if lock.permits == 0 else permits,
        )
    return made


def _first_of(holders: list[dict[str, Any]]) -> str:
    if not holders:
        return "-"
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    is_over = all(each["leaseEndsInSeconds"] <= 0 for each in holders)
    shared = " (shared)" if holders[0]["shared"] else ""
    return plain(holders[0]["owner"]) + more + shared + (" (lease expired)" if is_over else "")


def state(lock: LockName, found: LockState) -> dict[str, Any]:
    """A lock with its holders and its queue, for JSON. Ages and remaining leases are by table time."""
    item = found.item
    return {
        "entity": lock.entity,
        "namespace": lock.namespace,
        "permits": item.permits if item else None,
        "permitsAreSet": item.permits_are_set if item else False,
        "permitsSinceMs": item.permits_since_ms if item else None,
        "fencingToken": item.fencing_token if item else None,
        "meanHoldSeconds": _seconds(item.mean_hold_ms) if item else None,
        "dataLeft": item.data_left if item else None,
        "holders": [_holder(each, found.now.likely_ms) for each in (item.holders if item else ())],
        "waiters": [_waiter(each, found) for each in found.rows],
    }


def state_tables(lock: LockName, found: LockState) -> RenderableType:
    """A lock with its holders and its queue, for people."""
    title = Text(f"{plain(lock.entity)} in {plain(lock.namespace)}", style="bold")
    item = found.item
    if item is None:
        return Group(title, Text("Never used, or not for weeks."))
    facts = [
        permits_and_who_set_them(
            item.permits, are_set=item.permits_are_set, are_deployed=item.permits_since_ms is not None
        ),
        f"last fencing token {item.fencing_token}",
    ]
    if item.mean_hold_ms is not None:
        facts.append(f"held for {span(item.mean_hold_ms)} on average")
    if item.data_left is not None:
        facts.append(f"left: {plain(item.data_left)}")
    told = state(lock, found)
    return Group(title, Text("; ".join(facts)), _holders(told["holders"]), _waiters(told["waiters"]))


def _holders(holders: list[dict[str, Any]]) -> RenderableType:
    if not holders:
        return Text("No one holds it.")
    made = Columns(("holder",), ("fencing token", "held for", "lease"), ("data",))
    for each in holders:
        made.add(
            plain(each["owner"]) + (" (shared)" if each["shared"] else ""),
            str(each["fencingToken"]),
            span(round(each["heldForSeconds"] * 1_000)),
            _lease(each["leaseEndsInSeconds"]),
            plain(each["data"] or ""),
        )
    return made


def _waiters(waiters: list[dict[str, Any]]) -> RenderableType:
    if not waiters:
        return Text("No one waits.")
    made = Columns(("waiter",), ("ticket", "waiting for", "lease"), ("",))
    for each in waiters:
        made.add(
            plain(each["owner"]) + (" (shared)" if each["shared"] else ""),
            str(each["ticket"]),
            span(round(each["waitingForSeconds"] * 1_000)),
            _lease(each["leaseEndsInSeconds"]),
            "void" if each["isVoid"] else "workflow, parked" if each["isParked"] else "",
        )
    return made


def _holder(holder: Holder, now_ms: int) -> dict[str, Any]:
    return {
        "owner": holder.owner,
        "fencingToken": holder.fencing_token,
        "shared": holder.shared,
        "data": holder.data,
        "heldForSeconds": _seconds(now_ms - holder.since_ms),
        "leaseEndsInSeconds": _seconds(holder.lease_until_ms - now_ms),
    }


def _waiter(row: Row, found: LockState) -> dict[str, Any]:
    return {
        "owner": row.owner,
        "ticket": row.ticket,
        "shared": row.shared,
        "isParked": row.session is not None,
        "isVoid": found.item is None or row.ticket <= found.item.void_up_to,
        "waitingForSeconds": _seconds(found.now.likely_ms - row.created_at_ms),
        "leaseEndsInSeconds": _seconds(row.lease_until_ms - found.now.likely_ms),
    }


def _lease(seconds: float) -> str:
    return lease(round(seconds * 1_000))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


_ORDERS: dict[str, Callable[[Listed], Any]] = {
    "name": lambda each: each.lock.lock.entity,
    "held": lambda each: each.held_since_ms,
    "waiting": lambda each: -each.waiting,
    "oldest": lambda each: each.waited_since_ms,
}


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
