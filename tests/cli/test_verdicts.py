"""What an operator is told of a lock: whether its holders renew, who is stuck, and what to do next."""

import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from cli.seen import printed

from ticketlock import Claim, Grant, LockName, LockState, LockTable, PermitsMismatch, Place, Position
from ticketlock.cli._show import state_tables
from ticketlock.locks._items import Session, row_key
from ticketlock.locks._operators import ended_by_unsetting, live_rows
from ticketlock.report import command, judge
from ticketlock.testing import ManualClock, MemoryDynamoDB

LOCK = LockName("order-42")


class Desk:
    """A lock in memory, and what is done with it, in words: a minute's leases for holders, an hour's for waiters.

    A holder of hours has a lease of three, and a short waiter one of a minute.
    """

    def __init__(self, permits: int = 1) -> None:
        self.waiting: list[tuple[Claim, Place]] = []
        self._clock = clock = ManualClock()
        self._memory = MemoryDynamoDB(clock=clock)
        self.table = LockTable("locks", client=self._memory.client, clocks=clock, sleep=clock.sleep)
        self._permits = permits
        self._held: list[tuple[Claim, int]] = []

    def do(self, words: str) -> LockState:
        """Words of ``done``, or seconds that pass; then what is read of the lock."""
        done: dict[str, Callable[[], object]] = {
            "hold": self._hold,
            "hold for hours": lambda: self._hold(10_800_000, "deploys 1.4"),
            "share": lambda: self._hold(shared=True),
            "wait": self._wait,
            "wait for 2": lambda: self._wait(permits=2),
            "wait deployed": lambda: self._wait(permits_since_ms=1),
            "wait as before": lambda: self._forget_permits(self._wait()),
            "wait briefly": lambda: self._wait(60_000),
            "park": lambda: self._wait(session=Session("an execution", "serialize")),
            "poll": lambda: self._wait(owner="arn:aws:states:eu-west-1:123456789012:execution:orders:run-1"),
            "leave": lambda: self.table.remove_waiter(LOCK, self.table.inspect(LOCK).rows[0].ticket),
            "renew": lambda: self.table.renew(*self._held[-1]),
            "suspend": self._suspend,
            "release": lambda: self.table.force_release(LOCK, self._held.pop()[1]),
            "close": lambda: self.table.set_limit(LOCK, 0, by="ann@bastion"),
            "limit": lambda: self.table.set_limit(LOCK, 1, by="ann@bastion"),
            "open": lambda: self.table.unset_limit(LOCK),
        }
        for word in words.split(", "):
            self._clock.advance(float(word[:-2])) if word.endswith(" s") else done[word]()
        return self.table.inspect(LOCK, rows=1)

    def _hold(self, lease_ms: int = 60_000, data: str | None = None, *, shared: bool = False) -> None:
        owner = f"holder {len(self._held)}"
        claim = Claim(LOCK, owner, lease_ms, permits=self._permits, data=data, shared=shared)
        found = self.table.take_ticket(claim, None)
        assert isinstance(found, Grant)
        self._held.append((claim, found.fencing_token))

    def _suspend(self) -> None:
        """For a day, as a durable execution does."""
        claim, token = self._held[-1]
        self.table.contend(claim, lambda me: me.suspend(token, me.now.latest_ms + 86_400_000))

    def _wait(self, lease_ms: int = 3_600_000, owner: str | None = None, permits: int = 0, **more: Any) -> Place:
        owner = owner or f"waiter {len(self.waiting) + 1}"
        claim = Claim(LOCK, owner, lease_ms, permits=permits or self._permits, **more)
        found = self.table.take_ticket(claim, None)
        assert isinstance(found, Position)
        self.waiting.append((claim, found.place))
        return found.place

    def _forget_permits(self, place: Place) -> None:
        """Leave the row as an earlier version writes it."""
        self._memory.client.update_item(
            TableName="locks", Key=row_key(LOCK, place.ticket), UpdateExpression="REMOVE permits"
        )


@pytest.mark.parametrize(
    ("words", "verdict", "for_s"),
    [
        ("hold", "granted", 0),
        ("hold, 33 s", "granted", 33),
        ("hold, 39 s", "silent", 39),
        ("hold, 30 s, renew, 33 s", "renewing", 33),
        ("hold, 30 s, renew, 39 s", "silent", 39),
        ("hold, 30 s, renew, 59 s", "silent", 59),
        ("hold, 65 s", "expired", 5),
        ("hold, suspend, 3600 s", "suspended", 3_600),
        ("hold, suspend, 86405 s", "expired", 5),
        ("hold, release", "free", None),
        ("hold, close", "granted", 0),
        ("hold, release, close", "closed", None),
    ],
)
def test_a_holder_is_silent_once_a_renewal_is_overdue_and_expired_at_the_end_of_its_lease(
    words: str, verdict: str, for_s: int | None
) -> None:
    found = judge(Desk().do(words)).verdict
    assert found.word == verdict
    # The holder has counted its lease from the latest time that it may have been.
    assert found.for_ms is None if for_s is None else for_s - 3 < (found.for_ms or 0) / 1_000 <= for_s


@pytest.mark.parametrize(
    ("words", "step", "is_stuck"),
    [
        ("hold, 39 s", "nothing", False),
        ("hold, wait, 30 s", "wait", False),
        ("hold, 1 s, release, hold, wait, 30 s, renew, 30 s, renew, 5 s", "check its work", True),
        ("hold, wait, 39 s", "wait out lease", True),
        ("hold, suspend, wait, 600 s", "wait", False),
        ("hold, suspend, 3600 s", "nothing", False),
        ("hold, wait, 65 s", "next takes it", False),
        ("hold, wait, 68 s", "next takes it", False),
        ("hold, wait, 75 s", "remove-waiter", True),
        ("hold, park, 75 s", "next takes it", False),
        ("hold, park, 100 s", "remove-waiter", True),
        ("share, 30 s, share, wait, 34 s", "wait", False),
        ("hold for hours, wait", "ask holder", True),
        ("hold for hours, wait, 30 s, renew", "wait", False),
        ("hold for hours", "nothing", False),
        ("hold, 20 s, release, hold for hours, wait, 19 s", "wait", False),
        ("hold, 20 s, release, hold for hours, wait, 21 s", "ask holder", True),
        ("hold, wait, close", "ask who closed", True),
        ("hold, wait, close, release", "ask who closed", True),
        ("hold, wait, release, 9 s", "next takes it", False),
        ("hold, wait, 50 s, release, 11 s", "remove-waiter", True),
        ("hold, park, release, 34 s", "next takes it", False),
        ("hold, park, release, 36 s", "remove-waiter", True),
        ("hold, poll, release, 34 s", "next takes it", False),
        ("hold, poll, release, 36 s", "remove-waiter", True),
        ("hold, wait, close, release, 50 s, open, 9 s", "next takes it", False),
        ("hold, wait briefly, wait, release, 65 s", "next takes it", False),
        ("hold, wait briefly, wait, release, 75 s", "remove-waiter", True),
        ("hold, release, close", "nothing", False),
        ("hold, 65 s", "nothing", False),
        ("hold, close, 65 s", "nothing", False),
        ("share, 40 s, share, 25 s", "nothing", False),
        ("share, 35 s, share, wait, 5 s", "wait", False),
        ("share, share, 39 s, wait", "wait out lease", True),
        ("share, 20 s, share, wait, 41 s", "wait out lease", True),
        ("share, 59 s, share, wait, 64 s", "next takes it", False),
    ],
)
def test_what_to_do_next_depends_on_the_verdict_and_on_whether_someone_waits(
    words: str, step: str, is_stuck: bool
) -> None:
    state = Desk().do(words)
    found = judge(state)
    assert (found.next.value, found.is_stuck) == (step, is_stuck)
    has_a_sentence = any(line.startswith("next: ") for line in printed(state_tables(LOCK, state)))
    assert has_a_sentence == (step != "nothing" or words == "hold, 65 s")


@pytest.mark.parametrize(
    ("permits", "words", "verdict", "step"),
    [
        (3, "hold, limit, wait", "limited", "ask who limited"),
        (3, "limit, hold, wait", "limited", "ask who limited"),
        (3, "limit, hold, wait as before", "limited", "ask who limited"),
        (3, "hold, limit, wait, 30 s, renew, 33 s", "limited", "ask who limited"),
        (3, "hold for hours, limit, wait", "limited", "ask holder"),
        (3, "hold, limit, wait, 39 s", "silent", "wait out lease"),
        (3, "hold, limit, wait, open", "free", "next takes it"),
        (3, "hold, limit", "granted", "nothing"),
        (1, "hold, limit, wait", "granted", "wait"),
        (1, "share, limit, wait", "granted", "wait"),
        (1, "hold, limit, wait for 2", "limited", "ask who limited"),
    ],
)
def test_a_lock_that_more_could_hold_but_for_its_limit_is_limited(
    permits: int, words: str, verdict: str, step: str
) -> None:
    found = judge(Desk(permits).do(words))
    assert (found.verdict.word, found.next.value) == (verdict, step)
    assert found.is_stuck == (step in ("ask holder", "wait out lease"))


@pytest.mark.parametrize(
    ("words", "tone"),
    [
        ("hold", "good"),
        ("hold, 30 s, renew", "good"),
        ("hold for hours", "plain"),
        ("hold for hours, 30 s, renew", "good"),
        ("hold for hours, wait", "late"),
        ("hold, 39 s", "late"),
        ("hold, 65 s", "bad"),
        ("hold, wait, close", "plain"),
        ("hold, close, release", "shut"),
        ("hold, 1 s, release, hold, wait, 30 s, renew, 30 s, renew, 5 s", "late"),
        ("hold, wait, release, 9 s", "open"),
        ("hold, wait, release, 88 s", "late"),
    ],
)
def test_only_a_lock_whose_holder_is_known_to_live_and_that_is_not_stuck_is_green(words: str, tone: str) -> None:
    assert judge(Desk().do(words)).tone == tone


def test_the_worst_of_several_holders_counts_and_a_free_place_counts_only_if_it_is_not_taken() -> None:
    desk = Desk(permits=3)
    state = desk.do("hold, hold, 20 s, hold, 19 s, wait")
    found = judge(state)
    assert found.holder is not None
    assert (found.verdict.word, found.alike, found.holder.owner) == ("silent", 2, "holder 0")
    # Not from the others, too.
    taken_away = f"ticketlock release order-42 --force --fencing-token {found.holder.fencing_token}"
    assert taken_away in " ".join(printed(state_tables(LOCK, state)))
    assert judge(desk.do("release")).verdict.word == "free"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "hold, wait, release, 88 s",
            (
                "next: the first in line, waiter 1, has not taken it for 88 s: it has crashed, is paused, or was not "
                "the first until now; look again in 10 s; if then all waiters stand still, run `ticketlock doctor` "
                "with their role; if only this one, remove it (a live one joins again at the end):\n"
                "ticketlock remove-waiter order-42 TICKET"
            ),
        ),
        (
            "close, wait",
            (
                "next: ask ann@bastion whether it may be opened: no one gets the lock before that; its waiters ask for "
                "1 permit; to open it:\nticketlock limit order-42 1 --unset"
            ),
        ),
        (
            "hold, limit, wait for 2",
            (
                "next: ask ann@bastion whether more than 1 may hold it at once; its waiters ask for 2 permits, its "
                "users before the limit for 1; to unset the limit:\nticketlock limit order-42 2 --unset"
            ),
        ),
        (
            "hold for hours, wait",
            (
                "next: its lease is 3.0 h, and has not been renewed: ask holder 0 (data: deploys 1.4) whether it "
                "works; if it is certainly gone:\nticketlock release order-42 --force --fencing-token TOKEN"
            ),
        ),
    ],
)
def test_a_stuck_lock_is_shown_with_whose_fault_it_is_and_the_whole_command(words: str, sentence: str) -> None:
    state = Desk().do(words)
    assert state.item is not None
    expected = sentence.replace("TICKET", str(state.rows[0].ticket)).replace("TOKEN", str(state.item.fencing_token))
    assert f"\n{expected}\n" in "\n".join(printed(state_tables(LOCK, state), 400))


@pytest.mark.parametrize(
    ("permits", "words", "typed", "told"),
    [
        (3, "close, wait, wait, wait", "3 --unset", "; its waiters ask for 3 permits; "),
        (3, "close, wait deployed, wait deployed", "--unset", "before that; to open it"),
        (3, "close, wait as before, wait", "3 --unset", "; its waiters ask for 3 permits; "),
        (3, "hold, close, release, wait", "--unset", "before that; to open it"),
        (1, "hold, close, release, wait for 2", "2 --unset", "ask for 2 permits, its users before the limit for 1; "),
        (1, "close, wait as before", "N --unset", "; N is the number of permits that its users ask for: a waiter "),
        (1, "close, wait, wait for 2", "N --unset", "; its waiters ask for 1 or 2 permits: all but those that "),
    ],
)
def test_a_closed_lock_is_opened_by_the_printed_command_with_the_number_that_its_waiters_ask_for(
    permits: int, words: str, typed: str, told: str
) -> None:
    desk = Desk(permits)
    desk.do(words)
    lines = printed(state_tables(LOCK, desk.table.inspect(LOCK)), 400)
    (at,) = [place for place, line in enumerate(lines) if line.startswith("next: ")]
    assert (told in lines[at], lines[at + 1]) == (True, f"ticketlock limit order-42 {typed}")
    if "N" not in typed:
        desk.table.unset_limit(LOCK, None if typed == "--unset" else int(typed.split()[0]))
        found = [desk.table.check_turn(*each, None) for each in desk.waiting]
        assert all(isinstance(each, Grant) for each in found[:permits])


@pytest.mark.parametrize(
    ("words", "permits", "ended"),
    [
        ("close, wait, wait for 2", 1, [2]),
        ("close, wait, wait for 2", 2, [1]),
        ("close, wait, wait for 2", None, []),
        ("hold, close, wait, wait for 2", None, [2]),
        ("close, wait deployed, wait for 2", 2, [2]),
        ("hold, close, wait deployed, wait for 2", 2, [2]),
        ("close, wait as before", 2, []),
        ("close, wait briefly, 65 s, wait for 2", 2, []),
    ],
)
def test_who_unsets_a_limit_is_told_which_waiters_ask_for_another_number(
    words: str, permits: int | None, ended: list[int]
) -> None:
    desk = Desk()
    desk.do(words)
    state = desk.table.inspect(LOCK)
    assert [row.permits for row in ended_by_unsetting(state, permits)] == ended
    if permits is not None:
        desk.table.unset_limit(LOCK, permits)
        for row in live_rows(state):
            claim, place = next(each for each in desk.waiting if each[0].owner == row.owner)
            ends = row.permits in ended or row.permits is None
            with pytest.raises(PermitsMismatch) if ends else nullcontext():
                desk.table.check_turn(claim, place, None)


@pytest.mark.parametrize(
    ("entity", "namespace", "typed"),
    [
        ("order 42", "default", "limit 'order 42' 1 --unset"),
        ("a\u00a0b\n'\\", "default", "limit $'a\\xc2\\xa0b\\x0a\\x27\\x5c' 1 --unset"),
        ("-x", "a b", "limit --unset --namespace 'a b' -- -x 1"),
    ],
)
def test_a_command_is_of_the_very_lock_when_a_shell_reads_it(entity: str, namespace: str, typed: str) -> None:
    made = command("limit", LockName(entity, namespace), "1", options="--unset")
    assert made == f"ticketlock {typed}"
    read = subprocess.run(["bash", "-c", f"printf '%s\\0' {typed}"], capture_output=True, check=True).stdout
    assert {entity, namespace} <= {*read.decode().split("\0"), "default"}
