"""``ticketlock ls`` and ``ticketlock show``: the locks in the table."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ticketlock import LockName, LockState
from ticketlock.cli._exits import CONFIGURATION, OUTPUT_LOST, UNAVAILABLE, USAGE, Explained
from ticketlock.cli._options import (
    every_option,
    json_option,
    namespace_option,
    only_namespace_option,
    prefix_option,
    table_options,
    watch_option,
    wide_option,
)
from ticketlock.cli._settings import settings_of
from ticketlock.cli._units_reports import json_of
from ticketlock.cli._watching import watch
from ticketlock.cli._wording import Columns, Ending, console
from ticketlock.locks import Decided, ForcedRelease, Holder, LimitSet, Row
from ticketlock.report import (
    ORDERS,
    URGENT,
    Judged,
    Listed,
    advice_on,
    decisions,
    judge,
    lease,
    left_ms,
    permits_and_who_set_them,
    plain,
    read_list,
    short_owner,
    span,
    verdict_on,
)


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
        **_judged(listed.judged),
        "holders": [_holder(each, listed.now_ms) for each in _by_age(listed)],
        "oldestWaiter": None if listed.front is None or listed.first is None else _waiter(listed.first, listed.front),
    }


def list_table(locks: Iterable[Listed], *, wide: bool = False) -> Columns:
    """Locks, for people; with whole owners or only so much of them as there is room for."""
    made = Columns(("entity", "namespace", "holder"), ("held for", "waiting", "oldest", "permits"))
    for listed in locks:
        lock, first = listed.lock, listed.first
        permits = f"{lock.permits} set" if lock.permits_are_set else str(lock.permits)
        held_by = _first_of(listed, wide=wide) if listed.holders or not lock.held else f"? ({lock.held})"
        made.add(
            _name_cell(plain(lock.lock.entity), wide=wide),
            plain(lock.lock.namespace),
            "newer format" if listed.is_newer else _name_cell(held_by, wide=wide),
            span(listed.now_ms - _by_age(listed)[0].since_ms) if listed.holders else "-",
            str(listed.waiting),
            "-" if first is None else span(listed.now_ms - first.created_at_ms),
            "closed" if lock.permits == 0 else permits,
        )
    return made


def _by_age(listed: Listed) -> list[Holder]:
    """The holders, the one that has held it longest first."""
    return sorted(listed.holders, key=lambda holder: holder.since_ms)


def _first_of(listed: Listed, *, wide: bool) -> str:
    holders = _by_age(listed)
    if not holders:
        return "-"
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    is_over = all(each.lease_until_ms <= listed.now_ms for each in holders)
    shared = " (shared)" if holders[0].shared else ""
    return _owner(holders[0].owner, wide=wide) + more + shared + (" (expired)" if is_over else "")


def _owner(owner: str, *, wide: bool) -> str:
    return plain(owner if wide else short_owner(owner))


def _name_cell(shown: str, *, wide: bool) -> str | Ending:
    return shown if wide else Ending(shown)


def _judged(judged: Judged) -> dict[str, Any]:
    return {
        "verdict": judged.verdict.word,
        "verdictForSeconds": _seconds(judged.verdict.for_ms),
        "next": judged.next.value,
        "isStuck": judged.is_stuck,
    }


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
        "limitSet": _decision(item.limit_set if item else None),
        "limitUnset": _decision(item.limit_unset if item else None),
        "lastForced": _decision(item.last_forced if item else None),
        **_judged(judge(found)),
        "holders": [_holder(each, found.now.likely_ms) for each in (item.holders if item else ())],
        "waiters": [_waiter(each, found) for each in found.rows],
    }


def state_tables(
    lock: LockName, found: LockState, *, wide: bool = False, typed: Callable[[str], str] = str
) -> RenderableType:
    """A lock with its holders and its queue, for people.

    Args:
        wide: with whole owners, or only so much as there is room for.
        typed: makes of a command what is to be typed.
    """
    title = Text(f"{plain(lock.entity)} in {plain(lock.namespace)}", style="bold")
    item = found.item
    if item is None:
        return Group(title, Text("Never used, or not for weeks."))
    facts = [
        permits_and_who_set_them(item.permits, are_set=item.permits_are_set, are_deployed=bool(item.permits_since_ms)),
        f"last fencing token {item.fencing_token}",
    ]
    if item.mean_hold_ms is not None:
        facts.append(f"held for {span(item.mean_hold_ms)} on average")
    if item.data_left is not None:
        facts.append(f"left: {plain(item.data_left)}")
    shown = [Text("; ".join(facts)), *map(Text, decisions(item, found.now.likely_ms, wide=wide))]
    if (advice := advice_on(lock, found)) is not None:
        advice = advice.typed(typed)
        shown.append(Text(f"next: {advice.text}{'' if advice.command is None else ':'}"))
        if advice.command is not None:
            # On one line, however narrow the terminal is: it is pasted.
            shown.append(Text(advice.command, no_wrap=True, overflow="ignore"))
    return Group(title, *shown, _holders(item.holders, found.now.likely_ms, wide=wide), _waiters(found, wide=wide))


def _holders(holders: Sequence[Holder], now_ms: int, *, wide: bool) -> RenderableType:
    if not holders:
        return Text("No one holds it.")
    # Most have none, and columns are scarce.
    data = ("data",) if any(each.data for each in holders) else ()
    made = Columns(("holder", "verdict"), ("lease", "renewed", "held for", "fencing token"), data)
    for each in holders:
        verdict, rest_ms = verdict_on(each, now_ms), left_ms(each, now_ms)
        made.add(
            _name_cell(_owner(each.owner, wide=wide) + (" (shared)" if each.shared else ""), wide=wide),
            f"expired {span(verdict.for_ms or 0)} ago" if verdict.word == "expired" else verdict.word,
            span(each.lease_ms) if rest_ms == 0 else f"{span(rest_ms)} of {span(each.lease_ms)}",
            "-" if verdict.word == "granted" else f"{span(max(0, now_ms - each.renewed_ms))} ago",
            span(now_ms - each.since_ms),
            str(each.fencing_token),
            *([plain(each.data or "")] if data else []),
        )
    return made


def _waiters(found: LockState, *, wide: bool) -> RenderableType:
    if not found.rows:
        return Text("No one waits.")
    made = Columns(("waiter",), ("ticket", "waiting for", "lease", ""))
    for row in found.rows:
        each = _waiter(row, found)
        made.add(
            _name_cell(_owner(row.owner, wide=wide) + (" (shared)" if row.shared else ""), wide=wide),
            str(row.ticket),
            span(round(each["waitingForSeconds"] * 1_000)),
            lease(row.lease_until_ms - found.now.likely_ms),
            "void" if each["isVoid"] else "parked" if each["isParked"] else "",
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
        "leaseSeconds": _seconds(holder.lease_ms),
        "renewedForSeconds": _seconds(max(0, now_ms - holder.renewed_ms)),
        "verdict": verdict_on(holder, now_ms).word,
    }


def _decision(decided: Decided | None) -> dict[str, Any] | None:
    if decided is None:
        return None
    shown: dict[str, Any] = {"by": decided.by, "why": decided.why, "atMs": decided.at_ms}
    if isinstance(decided, LimitSet):
        shown["permits"] = decided.permits
    if isinstance(decided, ForcedRelease):
        shown |= {"owner": decided.owner, "fencingToken": decided.fencing_token}
    return shown


def _waiter(row: Row, found: LockState) -> dict[str, Any]:
    return {
        "owner": row.owner,
        "ticket": row.ticket,
        "shared": row.shared,
        "permits": row.permits,
        "isParked": row.session is not None,
        "isVoid": found.item is None or row.ticket <= found.item.void_up_to,
        "waitingForSeconds": _seconds(found.now.likely_ms - row.created_at_ms),
        "leaseEndsInSeconds": _seconds(row.lease_until_ms - found.now.likely_ms),
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


@click.command(
    "ls",
    cls=Explained,
    example="ticketlock ls --busy --prefix order- --sort held",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@only_namespace_option
@prefix_option
@click.option("--busy", is_flag=True, help="Only locks with a holder or a waiter.")
@click.option(
    "--sort",
    type=click.Choice([name for name in ORDERS if name != URGENT]),
    default="name",
    help=(
        "By name; or first those held longest, with the most waiters, with the oldest waiter, with the lease that ends "
        "first.  [default: name]"
    ),
)
@wide_option
@json_option
@watch_option
@every_option(5)
@table_options
@click.pass_context
def list_locks(
    context: click.Context,
    namespace: str | None,
    prefix: str,
    busy: bool,
    sort: str,
    wide: bool,
    as_json: bool,
    watched: bool,
    every: float,
) -> None:
    """List the locks: who holds them and for how long, and how long the first in line has waited.

    Reads the whole table, and then each listed lock that has a holder or a waiter.
    """
    table, wide = settings_of(context).lock_table(), wide or not console().is_terminal

    def read() -> list[Listed]:
        return sorted(read_list(table, namespace, prefix, busy=busy), key=ORDERS[sort])

    def to_json(listed: list[Listed]) -> list[dict[str, Any]]:
        return list(map(summary, listed))

    if watched:

        def report(listed: list[Listed], _lines: int | None) -> RenderableType:
            return list_table(listed, wide=wide) if listed else Text("No locks.")

        watch(read, every_s=every, to_json=to_json if as_json else None, report=report)
        return
    listed = read()
    if as_json:
        click.echo(json_of(to_json(listed)))
    elif listed:
        console().print(list_table(listed, wide=wide))
    else:
        click.echo("No locks.", err=True)


@click.command(
    cls=Explained,
    example="ticketlock show order-42 --watch --every 5s",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@click.argument("entity")
@namespace_option
@wide_option
@json_option
@watch_option
@every_option(2)
@table_options
@click.pass_context
def show(
    context: click.Context, entity: str, namespace: str, wide: bool, as_json: bool, watched: bool, every: float
) -> None:
    """Show who holds the lock on ENTITY, whether it renews its lease, and who waits for it and how long."""
    settings, lock = settings_of(context), LockName(entity, namespace)
    table, wide = settings.lock_table(), wide or not console().is_terminal

    def read() -> LockState:
        return table.inspect(lock)

    def to_json(found: LockState) -> dict[str, Any]:
        return state(lock, found)

    def report(found: LockState, _lines: int | None) -> RenderableType:
        return state_tables(lock, found, wide=wide, typed=settings.command)

    if watched:
        watch(read, every_s=every, to_json=to_json if as_json else None, report=report)
    elif as_json:
        click.echo(json_of(to_json(read())))
    else:
        console().print(report(read(), None))
