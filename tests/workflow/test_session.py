"""What heartbeat and release exchange: the newest token, the newest lease, and whether the work has ended.

Whatever the order of their requests: the task ends and the lock is free.
"""

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import pytest
from kit.engines import IN_MEMORY
from kit.events import execution_arn, step_event, turn_of
from kit.orders import every_order
from kit.step_functions import Callback, TaskService
from kit.stopped import LATE_MS
from kit.world import LEASE_MS, Process, Stepper, World, exclusion_held
from workflow.hold import Hold

from ticketlock import Grant, LockLost, LockName, Released
from ticketlock.wire._actions import number
from ticketlock.workflow import Workflow
from ticketlock.workflow._session import LastBeat

pytestmark = pytest.mark.shows("lost lease", "work that ends late", "repeated steps")

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"


@pytest.mark.parametrize(
    ("beat_number", "held_ms", "renews"),
    [(0, 0, False), (0, LEASE_MS // 2, True), (1, LEASE_MS // 2, True)],
    ids=["the first, fresh", "the first, aged", "the second"],
)
def test_a_beat_renews_unless_it_is_the_first_of_a_fresh_lease_which_writes_only_its_token(
    world: World, lock: LockName, beat_number: int, held_ms: int, renews: bool
) -> None:
    hold = Hold(world, lock)
    before = hold.owner.table.inspect(lock).item
    world.advance(held_ms)
    hold.beat(beat_number).run()
    after = hold.owner.table.inspect(lock).item
    assert after is not None
    assert (after.holders[0].lease_until_ms > hold.grant.lease_until_ms) == renews
    assert (after != before) == renews


@pytest.mark.parametrize("succeeded", [True, False], ids=["another owner holds", "no one holds"])
def test_a_beat_past_its_deadline_fails_its_task_by_name_even_if_no_one_took_the_lock(
    world: World, bob: Process, lock: LockName, succeeded: bool
) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    world.advance(LATE_MS)
    if succeeded:
        bob.granted(bob.claim(lock))
    lost = hold.beat(1, "second").run()
    assert isinstance(lost.error, LockLost)
    assert [(answer.task_token, answer.error) for answer in lost.answers] == [("second", "LockLost")]


def test_a_beat_older_than_the_newest_stores_no_token_and_still_answers_its_own_task(
    world: World, lock: LockName
) -> None:
    hold = Hold(world, lock)
    hold.beat(5, "newest").run()
    hold.beat(1, "older").run()
    released = hold.finish().run()
    assert [answer.task_token for answer in released.answers] == ["newest"]
    assert [answer.task_token for answer in hold.beat(2, "late").run().answers] == ["late"]


@pytest.mark.parametrize("how", ["its lease ended", "freed by force"])
def test_work_that_finished_after_its_lock_was_lost_is_lost(
    world: World, bob: Process, lock: LockName, how: str
) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    if how == "freed by force":
        bob.table.force_release(lock, hold.grant.fencing_token)
        bob.granted(bob.claim(lock))
    else:
        world.advance(LATE_MS)
    late = hold.finish().run()
    assert isinstance(late.error, LockLost)
    assert [answer.error for answer in late.answers] == ["LockLost"]
    assert hold.is_free() == (how != "freed by force")


def test_a_release_that_is_repeated_succeeds_though_others_have_held_the_lock_since(
    world: World, bob: Process, lock: LockName
) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    hold.finish().run()
    claim = bob.claim(lock)
    bob.table.release(claim, bob.granted(claim))
    assert hold.finish().run().error is None
    world.advance(2 * LEASE_MS)
    bob.granted(bob.claim(lock))
    assert hold.finish().run().error is None


def test_an_abandoned_hold_ends_the_heartbeat_and_leaves_the_lock_to_its_lease(
    world: World, bob: Process, lock: LockName
) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    assert [answer.error for answer in hold.abandon().run().answers] == [None]
    assert not hold.is_free()
    assert [answer.error for answer in hold.beat(1, "next").run().answers] == [None]
    world.advance(LEASE_MS + LATE_MS)
    assert bob.granted(bob.claim(lock)).took_over == 1


@pytest.mark.parametrize("work_has_ended", [False, True])
def test_the_last_beat_of_an_execution_ends_its_task_with_the_given_error_unless_the_work_has_ended(
    world: World, lock: LockName, work_has_ended: bool
) -> None:
    hold = Hold(world, lock)
    if work_has_ended:
        hold.finish().run()
    [answer] = hold.beat(5, last=LastBeat("ContinueHolding", "the turn")).run().answers
    assert (answer.error, answer.cause) == ((None, None) if work_has_ended else ("ContinueHolding", "the turn"))


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ((0, 0), (0, 1)),
        ((0, 1), (0, 2)),
        # Redriven, or entered again after a continuation failed: the retries begin at 0 again.
        ((0, 70_000), (1, 0)),
        ((0, 99_999_999), (1, 0)),
    ],
)
def test_a_try_of_the_heartbeats_task_outranks_every_earlier_one(
    workflow: Workflow, service: TaskService, lock: LockName, earlier: tuple[int, int], later: tuple[int, int]
) -> None:
    asked = {"entity": lock.entity, "task": {"functionArn": FUNCTION}}
    turn = turn_of(workflow, execution_arn(), asked, targets=[FUNCTION], beatsAnExecution=10**9)
    for token, (second, retry) in [("newest", later), ("older", earlier)]:
        entered = f"2027-01-15T08:00:0{second}.123Z"
        workflow.heartbeat(step_event("Heartbeat", turn, token, execution="another", entered=entered, retry=retry))
    workflow.release({"turn": turn})
    assert service.answered == ["newest"]


def test_a_redriven_heartbeat_whose_lock_went_to_another_owner_fails_at_once(
    world: World, bob: Process, lock: LockName
) -> None:
    hold = Hold(world, lock)
    for beat_number in range(4):
        hold.beat(beat_number).run()
        world.advance(LEASE_MS // 2)
    world.advance(LEASE_MS)
    bob.granted(bob.claim(lock))
    assert [answer.error for answer in hold.beat(0, "again").run().answers] == ["LockLost"]


def beats_on(hold: Hold, beats: range) -> None:
    """A hold longer than one lease."""
    for beat_number in beats:
        hold.world.advance(LEASE_MS // 2)
        hold.beat(beat_number, f"beat {beat_number}").run()


def crashes_half_way(release: Callback[Any]) -> None:
    release.step()
    release.step()


def test_the_retry_of_a_crashed_release_succeeds_despite_a_beat_in_between(world: World, lock: LockName) -> None:
    """The beat's own renewal fails, and the lease that the release compares with is kept."""
    hold = Hold(world, lock)
    hold.beat(0).run()
    beats_on(hold, range(1, 4))
    crashes_half_way(hold.finish())
    world.advance(LEASE_MS // 4)
    assert [answer.error for answer in hold.beat(4, "next").run().answers] == [None]
    assert hold.finish().run().error is None


def test_a_release_in_time_succeeds_despite_a_late_copy_of_the_first_beat(world: World, lock: LockName) -> None:
    """Found by a random schedule: the copy wrote the first lease over the newest one."""
    hold = Hold(world, lock)
    stalled = hold.beat(0, "first")
    hold.beat(0, "first").run()
    beats_on(hold, range(1, 4))
    crashes_half_way(hold.finish())
    stalled.run()
    repeated = hold.finish().run()
    assert repeated.error is None
    assert [answer.task_token for answer in repeated.answers] == ["beat 3"]


@pytest.mark.parametrize("wall_is_off_ms", [-60_000, 240_000])
@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
def test_a_cold_release_with_a_wrong_clock_judges_by_the_tables_time(
    world: World, bob: Process, lock: LockName, is_late: bool, wall_is_off_ms: int
) -> None:
    hold = Hold(world, lock)
    world.advance(LATE_MS if is_late else LEASE_MS - 10_000)
    if is_late:
        bob.granted(bob.claim(lock))
    for _ in range(2):
        cold = world.process(wall_is_off_ms=wall_is_off_ms, cold=True)
        error = Callback(cold, hold.claim, hold.finishes).run().error
        assert isinstance(error, LockLost if is_late else NoneType)


def test_a_heartbeat_frees_the_lock_whose_release_failed(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    hold.owner.client.update_item(
        TableName=world.engine.table_name,
        Key=hold.session.key(),
        UpdateExpression="SET finishedToken = :token, unreleasedToken = :token",
        ExpressionAttributeValues={":token": number(hold.grant.fencing_token)},
    )
    world.advance(LEASE_MS // 2)
    assert [answer.error for answer in hold.beat(1, "next").run().answers] == [None]
    assert hold.is_free()


def test_a_session_outlives_a_grant_but_only_its_own_token_counts(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    hold.finish().run()
    again = world.process()
    hold.claim = again.claim(lock)
    hold.grant = again.granted(hold.claim)
    assert hold.beat(0, "second").run().answers == []
    released = hold.finish().run()
    assert [answer.task_token for answer in released.answers] == ["second"]
    assert hold.is_free()


def test_an_entity_named_like_a_session_is_not_one(world: World) -> None:
    hold = Hold(world, world.lock())
    hold.beat(0).run()
    other = world.process()
    lock = LockName(f"session#{hold.session.execution}", "serialize")
    other.granted(other.claim(lock))
    other.queued(other.claim(lock))
    state = other.table.inspect(lock)
    assert (state.item.held if state.item else None, len(state.rows)) == (1, 1)
    assert [answer.error for answer in hold.finish().run().answers] == [None]


# Every function is invoked twice, every reply is late: the requests of several of them in every order.

Steps = list[Callback[Any]]
MANY = pytest.mark.verify("many orders, each of many requests")


def fresh(_hold: Hold) -> None:
    """A beat only stores its token."""


def aged(hold: Hold) -> None:
    """A beat renews."""
    hold.world.advance(LEASE_MS // 2)


def beaten(times: int) -> Callable[[Hold], None]:
    """The first beat leaves its token, the later ones renew."""

    def beats(hold: Hold) -> None:
        for beat_number in range(times):
            hold.beat(beat_number, f"before {beat_number}").run()
            hold.world.advance(LEASE_MS // 2)

    return beats


BEAT = (1, "token")


@pytest.mark.shows("lost requests")
@IN_MEMORY
@pytest.mark.parametrize(
    ("before", "beats", "ends", "answered"),
    [
        *(
            pytest.param(
                before, beats, ends, "token", marks=MANY if len(beats) > 1 else (), id=f"{name}, {before.__name__}"
            )
            for before in (fresh, aged)
            for name, beats, ends in [
                ("a beat and a release", [BEAT], [Hold.finish]),
                ("a beat, its copy and a release", [BEAT, BEAT], [Hold.finish]),
                ("a beat, a release and its copy", [BEAT], [Hold.finish, Hold.finish]),
                # The execution is stopped: the work has ended, whatever the clean-up concludes.
                ("a beat, a release and an abandonment", [BEAT], [Hold.finish, Hold.abandon]),
            ]
        ),
        pytest.param(beaten(1), [], [Hold.finish, Hold.finish], "before 0", id="a release and its copy"),
        # The first one's task has timed out: the second one's must be ended.
        pytest.param(
            beaten(1),
            [(1, "second"), (2, "third")],
            [Hold.finish],
            "third",
            marks=MANY,
            id="a beat, the next one and a release",
        ),
        # A beat from before a redrive is still in progress.
        pytest.param(
            beaten(3),
            [(2, "before 2"), (10, "redriven")],
            [Hold.finish],
            "redriven",
            marks=MANY,
            id="a late beat, a redriven one and a release",
        ),
    ],
)
def test_in_every_order_of_requests_no_step_fails_the_heartbeat_ends_and_the_lock_is_free(
    world: World,
    processes: Sequence[Process],
    before: Callable[[Hold], None],
    beats: Sequence[tuple[int, str]],
    ends: Sequence[Callable[[Hold], Callback[Any]]],
    answered: str,
) -> None:
    def start() -> tuple[tuple[Hold, Steps], Steps]:
        hold = Hold(world, world.lock(), processes)
        before(hold)
        steps = [*(hold.beat(*beat) for beat in beats), *(end(hold) for end in ends)]
        return (hold, steps), steps

    for order, (hold, steps) in every_order(world, start):
        answers = [answer for each in steps for answer in each.answers]
        assert {each.error for each in steps} == {None}, order
        assert {answer.error for answer in answers} == {None}, order
        assert answered in {answer.task_token for answer in answers}, order
        assert hold.is_free(), order


@pytest.mark.shows("lost requests")
@IN_MEMORY
@pytest.mark.parametrize("succeeded", [True, False], ids=["another owner holds", "no one holds"])
def test_in_every_order_of_a_beat_and_a_release_after_the_lease_both_fail_with_LockLost(
    world: World, processes: Sequence[Process], bob: Process, succeeded: bool
) -> None:
    """Whether or not another owner has the lock by then."""

    def start() -> tuple[tuple[Hold, Steps], Steps]:
        hold = Hold(world, world.lock(), processes)
        hold.beat(0, "first").run()
        world.advance(LATE_MS)
        if succeeded:
            bob.granted(bob.claim(hold.claim.lock))
        steps: Steps = [hold.beat(1, "second"), hold.finish()]
        return (hold, steps), steps

    for order, (hold, (beating, releasing)) in every_order(world, start):
        assert isinstance(releasing.error, LockLost), order
        assert "second" in {answer.task_token for each in (beating, releasing) for answer in each.answers}, order
        assert {answer.error for answer in releasing.answers} <= {"LockLost"}, order
        # A beat that finds the work finished leaves the answer to the release.
        assert all(answer.error in (None, "LockLost") for answer in beating.answers), order
        assert hold.is_free() != succeeded, order


@pytest.mark.shows("lost requests")
@IN_MEMORY
def test_in_every_order_of_a_beat_a_release_and_a_successor_after_the_lease_the_successor_holds(
    world: World, processes: Sequence[Process]
) -> None:
    *pool, successor = processes

    def start() -> tuple[tuple[Hold, Callback[Released], Stepper[Any]], list[Stepper[Any]]]:
        hold = Hold(world, world.lock(), pool)
        successor.sent.clear()
        hold.beat(0, "first").run()
        world.advance(LATE_MS)
        releasing = hold.finish()
        taking = successor.steps(successor.claim(hold.claim.lock), lambda me: me.take_ticket(None))
        return (hold, releasing, taking), [hold.beat(1, "second"), releasing, taking]

    for order, (hold, releasing, taking) in every_order(world, start):
        assert isinstance(releasing.error, LockLost), order
        assert isinstance(taking.result, Grant), order
        item = successor.table.inspect(hold.claim.lock).item
        assert item is not None
        assert [holder.fencing_token for holder in item.holders] == [taking.result.fencing_token], order
        assert exclusion_held([*pool, successor]), order
