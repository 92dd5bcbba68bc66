"""``ticketlock ls`` and ``ticketlock show``: the locks in the table."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ticketlock import LockName, LockState, LockSummary, LockTable, TableRefused, UnsupportedFormat
from ticketlock.cli._advice import Advice, advice_on
from ticketlock.cli._exits import CONFIGURATION, OUTPUT_LOST, UNAVAILABLE, USAGE, Explained
from ticketlock.cli._settings import namespace_option, settings_of, table_options
from ticketlock.cli._verdicts import Judged, NextStep, TimedVerdict, judge, left_ms, verdict_on
from ticketlock.cli._watching import every_option, watch, watch_option
from ticketlock.cli._wording import (
    Columns,
    Ending,
    console,
    decided,
    lease,
    permits_and_who_set_them,
    plain,
    short_owner,
    span,
)
from ticketlock.locks import Decided, ForcedRelease, Holder, LimitSet, LockItem, Row, first_in_line
from ticketlock.wire import at_once

json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
wide_option = click.option("--wide", is_flag=True, help="Show whole names, such as ARNs; in a pipe they always are.")

# Reading one lock takes one request.
_READS_AT_ONCE = 16


@dataclass(frozen=True)
class Listed:
    """One lock of a list.

    Attributes:
        lock: what the Scan of the table has returned of it.
        front: its holders, and its queue as far as the first waiter; None if this caller may not read it, or if there
            is neither a holder nor a waiter, or it is in a newer format.
        is_newer: whether a newer version has written it, so that this one cannot read it.
    """

    lock: LockSummary
    front: LockState | None
    is_newer: bool = False

    @property
    def holders(self) -> list[dict[str, Any]]:
        """The holders, the one that has held it longest first."""
        by_age = sorted(self._stored_holders, key=lambda holder: holder.since_ms)
        return [_holder(each, self.now_ms) for each in by_age]

    @property
    def now_ms(self) -> int:
        """When it was read in detail, in table time; 0 if it was not."""
        return 0 if self.front is None else self.front.now.likely_ms

    @property
    def first(self) -> Row | None:
        """The first in line."""
        return None if self.front is None else first_in_line(self.front)

    @property
    def oldest_waiter(self) -> dict[str, Any] | None:
        """The first in line, for JSON."""
        return None if self.front is None or self.first is None else _waiter(self.first, self.front)

    @property
    def waiting(self) -> int:
        """How many wait, as the lock item counts them; without the crashed ones before the first in line, and 0 if
        there is no other. A count may outlast its waiter.
        """
        if self.front is None or self.front.item is None:
            return self.lock.waiting
        if (first := self.first) is None:
            return 0
        item = self.front.item
        crashed = sum(item.void_up_to < row.ticket < first.ticket for row in self.front.rows)
        return max(1, item.waiting - crashed)

    def judged(self) -> Judged:
        """The verdict on it; see ``judge``."""
        if self.is_newer:
            return Judged(TimedVerdict("newer format"), next=NextStep.UPGRADE)
        if self.front is None and not self.lock.held and not self.lock.waiting:
            return Judged(TimedVerdict("free" if self.lock.permits else "closed"))
        return judge(self.front)

    @property
    def advice(self) -> Advice | None:
        """What to do about it; None for nothing."""
        if self.is_newer:
            return Advice("a newer version of ticketlock has written it: upgrade this one to see it")
        return advice_on(self.lock.lock, self.front)

    @property
    def held_since_ms(self) -> float:
        """Since when it is held, by table time; infinity if there is no holder."""
        return min((holder.since_ms for holder in self._stored_holders), default=math.inf)

    @property
    def lease_until_ms(self) -> float:
        """When the first lease of a holder ends, by table time; infinity if there is no holder."""
        return min((holder.lease_until_ms for holder in self._stored_holders), default=math.inf)

    @property
    def _stored_holders(self) -> Sequence[Holder]:
        return () if self.front is None or self.front.item is None else self.front.item.holders

    @property
    def waited_since_ms(self) -> float:
        """Since when the first in line has waited, by table time; infinity if there is no waiter."""
        return math.inf if self.first is None else self.first.created_at_ms


def summary(listed: Listed, judged: Judged) -> dict[str, Any]:
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
        **_judged(judged),
        "holders": listed.holders,
        "oldestWaiter": listed.oldest_waiter,
    }


def list_table(locks: Iterable[Listed], *, wide: bool = False) -> Columns:
    """Locks, for people; with whole owners or only so much of them as there is room for."""
    made = Columns(("entity", "namespace", "holder"), ("held for", "waiting", "oldest", "permits"))
    for listed in locks:
        lock, holders, waiter = listed.lock, listed.holders, listed.oldest_waiter
        permits = f"{lock.permits} set" if lock.permits_are_set else str(lock.permits)
        held_by = _first_of(holders, wide=wide) if holders or not lock.held else f"? ({lock.held})"
        made.add(
            _name_cell(plain(lock.lock.entity), wide=wide),
            plain(lock.lock.namespace),
            "newer format" if listed.is_newer else _name_cell(held_by, wide=wide),
            span(round(holders[0]["heldForSeconds"] * 1_000)) if holders else "-",
            str(listed.waiting),
            span(round(waiter["waitingForSeconds"] * 1_000)) if waiter else "-",
            "closed" if lock.permits == 0 else permits,
        )
    return made


def _first_of(holders: list[dict[str, Any]], *, wide: bool) -> str:
    if not holders:
        return "-"
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    is_over = all(each["leaseEndsInSeconds"] <= 0 for each in holders)
    shared = " (shared)" if holders[0]["shared"] else ""
    return _owner(holders[0]["owner"], wide=wide) + more + shared + (" (expired)" if is_over else "")


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
        shown += _next(advice.typed(typed))
    return Group(title, *shown, _holders(item.holders, found.now.likely_ms, wide=wide), _waiters(found, wide=wide))


def _next(advice: Advice) -> Iterator[Text]:
    yield Text(f"next: {advice.text}{'' if advice.command is None else ':'}")
    if advice.command is not None:
        # On one line, however narrow the terminal is: it is pasted.
        yield Text(advice.command, no_wrap=True, overflow="ignore")


def decisions(item: LockItem, now_ms: int, *, wide: bool) -> Iterator[str]:
    """What operators have decided about the lock: who, when and why."""
    if item.limit_set is not None:
        yield f"limit set to {item.limit_set.permits}, {decided(item.limit_set, now_ms)}"
    if item.limit_unset is not None:
        yield f"limit unset, {decided(item.limit_unset, now_ms)}"
    if (forced := item.last_forced) is not None:
        whom = f"{_owner(forced.owner, wide=wide)}, fencing token {forced.fencing_token}"
        yield f"taken by force from {whom}, {decided(forced, now_ms)}"


def _holders(holders: Sequence[Holder], now_ms: int, *, wide: bool) -> RenderableType:
    if not holders:
        return Text("No one holds it.")
    # Most have none, and columns are scarce.
    data = ("data",) if any(each.data for each in holders) else ()
    made = Columns(("holder", "verdict"), ("lease", "renewed", "held for", "fencing token"), data)
    for each in holders:
        verdict = verdict_on(each, now_ms)
        made.add(
            _name_cell(_owner(each.owner, wide=wide) + (" (shared)" if each.shared else ""), wide=wide),
            _in_words(verdict),
            _lease_of(each, now_ms),
            "-" if verdict.word == "granted" else f"{span(max(0, now_ms - each.renewed_ms))} ago",
            span(now_ms - each.since_ms),
            str(each.fencing_token),
            *([plain(each.data or "")] if data else []),
        )
    return made


def _in_words(verdict: TimedVerdict) -> str:
    return f"expired {span(verdict.for_ms or 0)} ago" if verdict.word == "expired" else verdict.word


def _lease_of(holder: Holder, now_ms: int) -> str:
    rest_ms = left_ms(holder, now_ms)
    return span(holder.lease_ms) if rest_ms == 0 else f"{span(rest_ms)} of {span(holder.lease_ms)}"


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


ORDERS: dict[str, Callable[[Listed], Any]] = {
    "name": lambda each: each.lock.lock.entity,
    "held": lambda each: each.held_since_ms,
    "waiting": lambda each: -each.waiting,
    "oldest": lambda each: each.waited_since_ms,
    "lease": lambda each: each.lease_until_ms,
}


@click.command(
    "ls",
    cls=Explained,
    example="ticketlock ls --busy --prefix order- --sort held",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@click.option("--namespace", help="Only the locks of this namespace.")
@click.option("--prefix", default="", help="Only locks whose entity begins with this text.")
@click.option("--busy", is_flag=True, help="Only locks with a holder or a waiter.")
@click.option(
    "--sort",
    type=click.Choice(list(ORDERS)),
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
        return [summary(lock, lock.judged()) for lock in listed]

    if watched:

        def report(listed: list[Listed], _lines: int | None) -> RenderableType:
            return list_table(listed, wide=wide) if listed else Text("No locks.")

        watch(read, every_s=every, to_json=to_json if as_json else None, report=report)
        return
    listed = read()
    if as_json:
        click.echo(_json(to_json(listed)))
    elif listed:
        console().print(list_table(listed, wide=wide))
    else:
        click.echo("No locks.", err=True)


def read_list(table: LockTable, namespace: str | None, prefix: str, *, busy: bool) -> list[Listed]:
    """The locks of a namespace, or of all, whose entities begin with a prefix, by name.

    Args:
        busy: only those with a holder or a waiter.
    """
    found = [
        lock
        for lock in table.list_locks()
        if namespace in (None, lock.lock.namespace)
        and lock.lock.entity.startswith(prefix)
        and (not busy or lock.held or lock.waiting)
    ]
    found.sort(key=lambda lock: (lock.lock.entity, lock.lock.namespace))
    return [each for each in in_detail(table, found) if not busy or each.lock.held or each.waiting]


def in_detail(table: LockTable, locks: Sequence[LockSummary], *, to_the_end: bool = False) -> list[Listed]:
    """Locks with their holders and their queues.

    Args:
        to_the_end: whether to read whole queues, or only up to the first waiter.
    """

    def read(lock: LockSummary) -> Listed:
        if not lock.held and not lock.waiting:
            return Listed(lock, None)
        try:
            return Listed(lock, table.inspect(lock.lock, to_the_end=to_the_end))
        except TableRefused:
            # A caller that may list all locks may lack the permission to read some.
            return Listed(lock, None)
        except UnsupportedFormat:
            return Listed(lock, None, is_newer=True)

    return at_once([partial(read, lock) for lock in locks], _READS_AT_ONCE)


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
        click.echo(_json(to_json(read())))
    else:
        console().print(report(read(), None))


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
