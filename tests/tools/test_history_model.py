"""The checker of histories: correct histories pass, and each broken promise is found by its name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.lines import ENTITY, Client, Reference, event, good_locks, line, stay, told_by
from kit.lock_history import Event, Kind, history
from kit.lock_model import judge
from ticketlock_local.demo.checks import Verdict

from ticketlock import LockState
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.verify("tests no part of the product")

HISTORIES = 100


def verdict(events: Sequence[Event], *, value: int | None = None) -> Verdict:
    return judge(history(events), {}, None if value is None else {ENTITY: value})


def broken(events: Sequence[Event], *, value: int | None = None) -> set[str]:
    """The names of the promises that are broken."""
    return {failure.partition(":")[0] for failure in verdict(events, value=value).failures}


def changed(events: Sequence[Event], process: int | str, kind: str, change: Callable[[Event], Event]) -> list[Event]:
    """The same history but for one kind of event of one process's acquisition."""
    chosen = (str(process), kind, "acquire")
    return [change(each) if (each.process, each.kind, each.action) == chosen else each for each in events]


def without(events: Sequence[Event], process: int | str, kind: str) -> list[Event]:
    return [each for each in events if (each.process, each.kind, each.action) != (str(process), kind, "acquire")]


# Correct histories.


@settings(max_examples=300)
@given(good_locks())
def test_every_history_of_a_correct_lock_passes(lock: Reference) -> None:
    assert verdict(lock.events, value=lock.counter).failures == ()


class WithoutAQueue(Reference):
    """Any client takes the lock if a permit is free."""

    def rows_before(self, _: Client) -> list[Client]:
        return []


class WithoutALimit(Reference):
    """The first in the queue takes the lock, though no permit is free."""

    def holding(self) -> list[Client]:
        return []


class ForgetsItsToken(Reference):
    """Now and then a token is granted again."""

    def _grant(self, client: Client, *, ticket: int | None) -> None:
        super()._grant(client, ticket=ticket)
        self.token -= self.token % 2


@pytest.mark.parametrize(
    ("lock", "promise", "at_least"),
    [
        (WithoutAQueue, "no overtaking", 65),
        (WithoutALimit, "exclusion", 95),
        (ForgetsItsToken, "fencing", 95),
    ],
)
def test_a_lock_that_is_broken_is_found_by_the_promise_that_it_breaks(
    lock: type[Reference], promise: str, at_least: int
) -> None:
    """In most histories; in the others it did nothing wrong, or nothing that shows from outside."""
    told = (told_by(lock(1, Random(seed)), shares=False) for seed in range(HISTORIES))
    assert sum(promise in broken(each.events) for each in told) >= at_least


# Exclusion.


def together(permits: int) -> list[Event]:
    """Three that hold at the same time."""
    events = [told for place in range(3) for told in stay(f"{place}", place, place, 1, permits=permits)]
    return [replace(each, local_ms=9_000) if each.kind == "holds" else each for each in events]


def held_until(events: Sequence[Event], local_ms: int) -> list[Event]:
    """The same history, but the first one relied on its lock until then."""
    return changed(events, 0, "holds", lambda each: replace(each, local_ms=local_ms))


READER_THEN_WRITER = [*stay("0", 0, 0, 1, shared=True), *stay("1", 1, 1, 1)]
LATE_WRITE = [*line(2), event("0", "invoked", 2_500, action="update", found=0)]


@pytest.mark.parametrize(
    ("events", "is_broken"),
    [
        pytest.param(together(3), False, id="three with 3 permits"),
        pytest.param(together(2), True, id="three with 2 permits"),
        pytest.param(READER_THEN_WRITER, False, id="a writer after a reader"),
        pytest.param(held_until(READER_THEN_WRITER, 2_500), True, id="a writer beside a reader"),
        # A write of the first one, sent after the second was granted the lock.
        pytest.param([*LATE_WRITE, event("0", "applied", 2_510, action="update")], True, id="a late write, applied"),
        pytest.param([*LATE_WRITE, event("0", "refused", 2_510, action="update")], False, id="a late write, refused"),
        pytest.param(LATE_WRITE, False, id="a late write, unknown"),
        pytest.param(held_until(line(2), 2_001), True, id="a holder that relied on its lock too long"),
        pytest.param(held_until(line(2), 2_000), False, id="a holder that relied on its lock to the last moment"),
        # It proves nothing.
        pytest.param(without(held_until(line(2), 2_500), 0, "holds"), False, id="a holder that did not check again"),
    ],
)
def test_one_more_than_the_lock_admits_breaks_exclusion(events: list[Event], is_broken: bool) -> None:
    assert broken(events) == ({"exclusion"} if is_broken else set())


# Fencing.


@given(st.integers(2, 6), st.booleans(), st.data())
def test_a_token_that_is_granted_twice_or_tokens_that_fall_break_fencing(
    waiters: int, twice: bool, data: st.DataObject
) -> None:
    one, other = sorted(data.draw(st.lists(st.integers(0, waiters - 1), min_size=2, max_size=2, unique=True)))
    events = changed(line(waiters), other, "applied", lambda each: replace(each, fencing_token=100 + one))
    if not twice:
        events = changed(events, one, "applied", lambda each: replace(each, fencing_token=100 + other))
    assert "fencing" in broken(events)


# Order.


@given(st.integers(2, 6), st.data())
def test_two_grants_that_change_their_turns_break_the_order(waiters: int, data: st.DataObject) -> None:
    one, other = data.draw(st.lists(st.integers(0, waiters - 1), min_size=2, max_size=2, unique=True))
    turns = list(range(waiters))
    turns[one], turns[other] = other, one
    events = [told for ticket, turn in enumerate(turns) for told in stay(f"{ticket}", ticket, turn, waiters)]
    assert broken(events) == {"no overtaking"}


def overtaken(times: int, *, after_a_grant: bool = True) -> list[Event]:
    """The first one is passed, so many times, by grants whose polls began before its row was written."""
    first = [*stay("first", 1, times + 1, 2)]
    before = [*stay("before", 0, 0, 2)] if after_a_grant else []
    others = [told for turn in range(1, times + 1) for told in stay(f"{turn}", turn + 1, turn, 2)]
    return [*before, *first, *[replace(each, polled_ms=0) if each.polled_ms else each for each in others]]


def test_a_grant_in_progress_while_a_row_was_written_is_the_one_slip() -> None:
    slip = "first (token 102) was overtaken by 1 (token 101), perhaps while its row was in the queue"
    assert verdict(overtaken(1)) == Verdict((), (slip,))
    answered_before_the_row_stood = changed(overtaken(1), "first", "stands", lambda each: replace(each, local_ms=2_001))
    assert verdict(answered_before_the_row_stood) == Verdict((), ())
    assert broken(overtaken(2)) == {"no overtaking"}
    # Of two grants that may have been made before the row stood, none is a second slip.
    assert verdict(overtaken(2, after_a_grant=False)).failures == ()


def passing(**wishes: object) -> list[Event]:
    """The second one is granted the lock before the first, whose row is in the queue."""
    return [*stay("0", 0, 1, 2, permits=2), *stay("1", 1, 0, 2, **{"permits": 2, **wishes})]


PASSED = [*stay("0", 0, 1, 2), *stay("1", 1, 0, 2)]
HELD = [
    event("held", "invoked", 0, permits=2),
    event("held", "applied", 4, ticket=-1, fencing_token=50),
    event("held", "holds", 1_500),
]
# With an unknown ticket: it passes every row from before its request.
ASKS, GRANTED = event("1", "invoked", 500), event("1", "applied", 1_000, fencing_token=100)


@pytest.mark.parametrize(
    ("events", "is_broken"),
    [
        pytest.param(PASSED, True, id="a row that stood"),
        pytest.param(
            changed(PASSED, 0, "stands", lambda each: replace(each, until_ms=999)), False, id="a row that expired"
        ),
        pytest.param(
            changed(PASSED, 0, "applied", lambda each: replace(each, ticket=7)), False, id="a row of another ticket"
        ),
        pytest.param(passing(), False, id="permits for both"),
        pytest.param([*HELD, *passing()], True, id="permits for both, one of them held"),
        pytest.param(passing(shared=True), True, id="a reader past a writer"),
        pytest.param([*stay("0", 0, 1, 2), ASKS, GRANTED], True, id="an unknown ticket, asked for later"),
        pytest.param(
            [*stay("0", 0, 1, 2), replace(ASKS, local_ms=5), GRANTED], False, id="an unknown ticket, asked for before"
        ),
    ],
)
def test_a_grant_past_a_row_that_certainly_stood_breaks_the_order(events: list[Event], is_broken: bool) -> None:
    assert broken(events) == ({"no overtaking"} if is_broken else set())


def test_a_waiter_that_gave_up_can_be_overtaken_until_its_last_poll_in_the_queue() -> None:
    gone, end = without(without(PASSED, 0, "applied"), 0, "holds"), event("0", "refused", 3_000)
    answered_ms = 1_000
    assert broken([*gone, event("0", "polls", answered_ms + 1), end]) == {"no overtaking"}
    # It may have left meanwhile, or been granted the lock and not have heard of it.
    assert broken([*gone, event("0", "polls", answered_ms), end]) == set()
    assert broken([*gone, end]) == set()


# Updates.


def update(process: str, found: int, at_ms: int, kind: Kind = "applied") -> list[Event]:
    sent = event(process, "invoked", at_ms, action="update", found=found)
    return [sent] if kind == "unknown" else [sent, replace(sent, kind=kind, local_ms=at_ms + 1)]


@pytest.mark.parametrize(
    ("updates", "value", "is_lost"),
    [
        ([*update("0", 0, 10), *update("1", 1, 20), *update("2", 2, 30, "refused")], 2, False),
        ([*update("0", 0, 10), *update("1", 0, 20)], 1, True),
        # An unknown update may be in the counter, or not.
        *(([*update("0", 0, 10), *update("1", 1, 20, "unknown")], value, value in (0, 3)) for value in range(4)),
    ],
)
def test_every_update_that_was_applied_is_in_the_counter(updates: list[Event], value: int, is_lost: bool) -> None:
    assert broken(updates, value=value) == ({"no lost update"} if is_lost else set())


# Leftovers.

NOW = Moment(local_ms=0, earliest_ms=5_000, latest_ms=5_000, wall_ms=5_000)


def left_by(events: Sequence[Event], *, lease_until_ms: int) -> tuple[str, ...]:
    holder = Holder(owner="0", fencing_token=100, lease_until_ms=lease_until_ms, lease_ms=5_000, since_ms=0, data=None)
    item = LockItem(
        issued=9,
        waiting=1,
        ticket_at_ms=0,
        void_up_to=0,
        fencing_token=100,
        permits=1,
        held=1,
        mean_hold_ms=None,
        holders=(holder,),
    )
    row = Row(ticket=9, owner="1", lease_until_ms=lease_until_ms, created_at_ms=0)
    return judge(history(events), {ENTITY: LockState(item, (row,), NOW)}).failures


def test_a_holder_a_row_and_a_count_that_are_left_are_named_when_all_owners_have_left() -> None:
    holder, row, count = (f"nothing left: {ENTITY}: {what}: 1" for what in ("holder", "queue row", "waiter counted"))
    assert left_by(line(2), lease_until_ms=0) == (holder, row, count)
    # Of processes that may have crashed only running leases count.
    crashed = [each for each in line(2) if each.action != "release"]
    assert left_by(crashed, lease_until_ms=4_999) == ()
    assert left_by(crashed, lease_until_ms=5_000) == (holder, row)
