"""What heartbeat and release exchange: the newest token, the newest lease, and whether the work has ended."""

import pytest
from kit.events import step_event
from kit.step_functions import Callback, TaskService
from kit.world import LEASE_MS, Process, World
from workflow.hold import Hold

from ticketlock import LockLost, LockName
from ticketlock.wire._actions import number
from ticketlock.workflow._session import LastBeat

pytestmark = pytest.mark.shows("lost lease", "work that ends late", "repeated steps")


def test_the_first_beat_writes_only_its_token(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    before = hold.owner.table.inspect(lock).item
    hold.beat(0).run()
    assert hold.owner.table.inspect(lock).item == before


def test_a_first_beat_that_comes_late_renews(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    world.advance(LEASE_MS // 2)
    renewed = hold.beat(0).run().result
    assert renewed is not None
    assert renewed.lease_until_ms > hold.grant.lease_until_ms


def test_a_later_beat_renews(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    world.advance(LEASE_MS // 2)
    hold.beat(1).run()
    item = hold.owner.table.inspect(lock).item
    assert item is not None
    assert item.holders[0].lease_until_ms > hold.grant.lease_until_ms


def test_a_beat_that_lost_the_lock_fails_its_task_by_name(world: World, bob: Process, lock: LockName) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    world.advance(LEASE_MS + 5_000)
    bob.granted(bob.claim(lock))
    lost = hold.beat(1, "second").run()
    assert isinstance(lost.error, LockLost)
    assert [(answer.task_token, answer.error) for answer in lost.answers] == [("second", "LockLost")]


def test_a_beat_past_its_deadline_fails_its_task_even_if_no_one_took_the_lock(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    world.advance(LEASE_MS + 1_000)
    assert isinstance(hold.beat(1).run().error, LockLost)


def test_a_beat_older_than_the_newest_stores_no_token(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    hold.beat(2, "newest").run()
    hold.beat(1, "older").run()
    released = hold.finish().run()
    assert [answer.task_token for answer in released.answers] == ["newest"]


def test_work_that_finished_after_its_lease_is_lost(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    world.advance(LEASE_MS + 5_000)
    late = hold.finish().run()
    assert isinstance(late.error, LockLost)
    assert [answer.error for answer in late.answers] == ["LockLost"]
    assert hold.is_free()


def test_a_release_that_is_repeated_after_a_successor_came_still_succeeds(
    world: World, bob: Process, lock: LockName
) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    hold.finish().run()
    world.advance(2 * LEASE_MS)
    bob.granted(bob.claim(lock))
    assert hold.finish().run().error is None


def test_work_that_finished_after_its_lock_was_freed_by_force_is_lost(
    world: World, bob: Process, lock: LockName
) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    bob.table.force_release(lock, hold.grant.fencing_token)
    bob.granted(bob.claim(lock))
    late = hold.finish().run()
    assert isinstance(late.error, LockLost)
    assert [answer.error for answer in late.answers] == ["LockLost"]


def test_a_release_whose_first_call_crashed_after_it_was_applied_succeeds_though_others_have_held_the_lock_since(
    world: World, bob: Process, lock: LockName
) -> None:
    hold = Hold(world, lock)
    hold.finish().run()
    claim = bob.claim(lock)
    bob.table.release(claim, bob.granted(claim))
    assert hold.finish().run().error is None


def test_an_abandoned_hold_ends_the_heartbeat_and_leaves_the_lock_to_its_lease(
    world: World, bob: Process, lock: LockName
) -> None:
    hold = Hold(world, lock)
    hold.beat(0).run()
    assert [answer.error for answer in hold.abandon().run().answers] == [None]
    assert not hold.is_free()
    assert [answer.error for answer in hold.beat(1, "next").run().answers] == [None]
    world.advance(2 * LEASE_MS + 5_000)
    assert bob.granted(bob.claim(lock)).took_over == 1


def test_the_last_beat_of_an_execution_ends_its_task_with_the_given_error(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    answers = hold.beat(5, last=LastBeat("ContinueHolding", "the turn")).run().answers
    assert [(answer.error, answer.cause) for answer in answers] == [("ContinueHolding", "the turn")]


def test_the_last_beat_of_an_execution_whose_work_has_ended_ends_the_heartbeat(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    hold.finish().run()
    answers = hold.beat(5, last=LastBeat("ContinueHolding", "the turn")).run().answers
    assert [answer.error for answer in answers] == [None]


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
    world: World, lock: LockName, earlier: tuple[int, int], later: tuple[int, int]
) -> None:
    hold = Hold(world, lock)
    service = TaskService()
    workflow = service.workflow(hold.owner)
    claim, grant = hold.claim, hold.grant
    turn = {
        "claim": {
            "entity": lock.entity,
            "namespace": lock.namespace,
            "owner": claim.owner,
            "leaseMs": LEASE_MS,
            "permits": claim.permits,
            "shared": claim.shared,
        },
        "session": {"execution": hold.session.execution, "place": hold.session.fragment},
        "handOver": "poll",
        "beats": 0,
        "events": 0,
        "beatsAnExecution": 10**9,
        "grant": {
            "ticket": grant.ticket,
            "fencingToken": grant.fencing_token,
            "leaseUntilMs": grant.lease_until_ms,
            "sinceMs": grant.since_ms,
            "meanHoldMs": grant.mean_hold_ms,
        },
    }
    for token, (second, retry) in [("newest", later), ("older", earlier)]:
        entered = f"2027-01-15T08:00:0{second}.123Z"
        workflow.heartbeat(step_event("Heartbeat", turn, token, execution="another", entered=entered, retry=retry))
    assert [answer.task_token for answer in hold.finish().run().answers] == ["newest"]


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


def test_a_beat_that_is_not_the_newest_still_answers_its_own_task(world: World, lock: LockName) -> None:
    hold = Hold(world, lock)
    hold.beat(5, "newest").run()
    hold.finish().run()
    assert [answer.task_token for answer in hold.beat(2, "older").run().answers] == ["older"]


def test_the_retry_of_a_crashed_release_succeeds_despite_a_beat_in_between(world: World, lock: LockName) -> None:
    """A hold longer than one lease: the beat's own renewal fails, and the lease that the release compares with is
    kept.
    """
    hold = Hold(world, lock)
    hold.beat(0).run()
    for beat_number in range(1, 4):
        world.advance(LEASE_MS // 2)
        hold.beat(beat_number).run()
    died = hold.finish()
    died.step()
    died.step()
    world.advance(LEASE_MS // 4)
    assert [answer.error for answer in hold.beat(4, "next").run().answers] == [None]
    assert hold.finish().run().error is None


def test_a_release_in_time_succeeds_despite_a_late_copy_of_the_first_beat(world: World, lock: LockName) -> None:
    """Found by a random schedule: the copy wrote the first lease over the newest one."""
    hold = Hold(world, lock)
    stalled = hold.beat(0, "first")
    hold.beat(0, "first").run()
    for beat_number in range(1, 4):
        world.advance(LEASE_MS // 2)
        hold.beat(beat_number, f"beat {beat_number}").run()
    died = hold.finish()
    died.step()
    died.step()
    stalled.run()
    repeated = hold.finish().run()
    assert repeated.error is None
    assert [answer.task_token for answer in repeated.answers] == ["beat 3"]


@pytest.mark.parametrize("wall_is_off_ms", [-60_000, 240_000])
def test_a_cold_release_with_a_wrong_clock_judges_by_the_tables_time(
    world: World, bob: Process, lock: LockName, wall_is_off_ms: int
) -> None:
    in_time, late = Hold(world, lock), Hold(world, world.lock())
    world.advance(LEASE_MS - 10_000)
    for hold, error in ((in_time, None), (late, LockLost)):
        if hold is late:
            world.advance(LEASE_MS)
            bob.granted(bob.claim(late.claim.lock))
        for _ in range(2):
            cold = world.process(wall_is_off_ms=wall_is_off_ms, cold=True)
            released = Callback(cold, hold.claim, hold.finishes).run()
            assert (type(released.error) if released.error else None) == error


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
