"""A lock as it stands in the table: in JSON, and as tables for people."""

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ticketlock import LockName, LockState, LockSummary
from ticketlock.cli._wording import permits_of, plain, span
from ticketlock.locks._items import Holder, Row

_WIDE = 10_000


def console() -> Console:
    """Where tables go: as wide as the terminal; in a pipe as wide as they are."""
    made = Console(highlight=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made


def summary(lock: LockSummary) -> dict[str, Any]:
    """One lock of a list, for JSON."""
    return {
        "entity": lock.lock.entity,
        "namespace": lock.lock.namespace,
        "held": lock.held,
        "shared": lock.held_shared > 0,
        "permits": lock.permits,
        "permitsAreSet": lock.permits_are_set,
        "waiting": lock.waiting,
        "fencingToken": lock.fencing_token,
        "meanHoldSeconds": _seconds(lock.mean_hold_ms),
    }


def list_table(locks: Iterable[LockSummary]) -> Table:
    """Locks, for people."""
    made = _table(("entity", "namespace"), ("held", "permits", "waiting", "fencing token", "mean hold"))
    for lock in locks:
        _add_row(
            made,
            plain(lock.lock.entity),
            plain(lock.lock.namespace),
            f"{lock.held} shared" if lock.held_shared else str(lock.held),
            f"{lock.permits} set" if lock.permits_are_set else str(lock.permits),
            str(lock.waiting),
            str(lock.fencing_token),
            "-" if lock.mean_hold_ms is None else span(lock.mean_hold_ms),
        )
    return made


def state(lock: LockName, found: LockState) -> dict[str, Any]:
    """A lock with its holders and its queue, for JSON. Ages and rests by the table's time."""
    item = found.item
    return {
        "entity": lock.entity,
        "namespace": lock.namespace,
        "permits": item.permits if item else None,
        "permitsAreSet": item.permits_are_set if item else False,
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
        return Group(title, Text("Nobody has used it, or not for weeks."))
    limit = permits_of(item.permits)
    facts = [
        limit + (", set by an operator" if item.permits_are_set else ""),
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
        return Text("Nobody holds it.")
    made = _table(("holder",), ("fencing token", "held for", "lease"), ("data",))
    for each in holders:
        _add_row(
            made,
            plain(each["owner"]) + (" (shared)" if each["shared"] else ""),
            str(each["fencingToken"]),
            span(round(each["heldForSeconds"] * 1_000)),
            _lease(each["leaseEndsInSeconds"]),
            plain(each["data"] or ""),
        )
    return made


def _waiters(waiters: list[dict[str, Any]]) -> RenderableType:
    if not waiters:
        return Text("Nobody waits.")
    made = _table(("waiter",), ("ticket", "waiting for", "lease"), ("",))
    for each in waiters:
        _add_row(
            made,
            plain(each["owner"]) + (" (shared)" if each["shared"] else ""),
            str(each["ticket"]),
            span(round(each["waitingForSeconds"] * 1_000)),
            _lease(each["leaseEndsInSeconds"]),
            "void" if each["isVoid"] else "workflow, is called" if each["isCalled"] else "",
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
        "isCalled": row.session is not None,
        "isVoid": found.item is None or row.ticket <= found.item.void_up_to,
        "waitingForSeconds": _seconds(found.now.likely_ms - row.created_at_ms),
        "leaseEndsInSeconds": _seconds(row.lease_until_ms - found.now.likely_ms),
    }


def _lease(seconds: float) -> str:
    return f"over since {span(round(-seconds * 1_000))}" if seconds <= 0 else f"{span(round(seconds * 1_000))} left"


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


def _add_row(table: Table, *cells: str) -> None:
    # As they are: a name in brackets is no markup.
    table.add_row(*(Text(cell) for cell in cells))


def _table(names: tuple[str, ...], numbers: tuple[str, ...], more: tuple[str, ...] = ()) -> Table:
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in names:
        made.add_column(name, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    for name in more:
        made.add_column(name, overflow="fold")
    return made
