"""``make soak``, for minutes in the place of an hour: what it judges is so, and it sees what is broken."""

from collections.abc import Iterable

import pytest
from clients import Check
from soak import judged, judged_hour, waiters
from soak_hour import Scale, hour

from ticketlock import _conditions
from ticketlock._queue import Queue

SHORT = Scale(minutes=1, locks=6, machines=10)


def broken(checks: Iterable[Check]) -> list[str]:
    return [check.text for check in checks if not check.kept]


def test_traffic_from_many_machines_with_faults_and_crashes_keeps_every_promise_and_leaves_nothing() -> None:
    seen = hour(SHORT)
    assert seen.broken == ()
    assert broken(judged_hour(seen)) == []
    assert seen.grants > 100
    assert seen.happened["requests that met a fault"] > 0


def test_a_waiter_that_does_not_wait_for_those_before_it_is_seen_to_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    def finds_room(self: Queue, *_: object) -> bool:
        return self.item is not None and self.item.room(shared=self.claim.shared) > 0

    monkeypatch.setattr(Queue, "may_enter", finds_room)
    assert any("no overtaking" in told for told in hour(SHORT).broken)


def test_a_newcomer_that_goes_past_those_who_wait_is_seen_to_overtake_without_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_conditions, "NOBODY_WAITS", "waiting >= :zero")
    assert any("no overtaking" in told for told in hour(SHORT).broken)


def test_waiters_of_two_processes_each_get_their_turn_and_leave_nothing() -> None:
    assert broken(judged("10 waiters", waiters(10), asked=10, locks=1)) == []
