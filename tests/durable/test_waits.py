"""A durable execution waits in the same queue as everyone else, and nothing of it runs meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext, StepContext
from botocore.exceptions import ClientError
from kit.awaited import Awaited
from kit.events import execution_arn, step_event, turn_of
from kit.places import until
from kit.step_functions import TaskService

from durable.executions import Executions, one_step, works
from ticketlock import LockClient, LockName, PermitsMismatch, Position, RecordWaitExceeded, aio
from ticketlock.workflow import Workflow

Make = Callable[..., Executions]
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"


@pytest.mark.shows("exclusion", "order")
def test_ten_executions_two_clients_and_a_workflow_are_served_one_at_a_time_in_the_order_of_their_tickets(
    executions: Make,
) -> None:
    tasks = TaskService()
    world = executions(one_step, lease=30, step_functions=tasks.client())
    workflow = Workflow(world.table_of(tasks.client()))
    serialised = execution_arn()

    def client_works(who: object) -> None:
        with world.client(step_functions=tasks.client()) as locks, locks.acquire("order"), world.inside(who):
            pass

    def workflow_works() -> None:
        until(lambda: "the task" in tasks.answered)
        turn = workflow.check_position(step_event("CheckPosition", parked)).reply
        with world.inside("the workflow"):
            assert turn["status"] == "granted"
        workflow.release(step_event("Release", turn))

    started: list[str] = []
    order = [1, 2, 3, 4, "one", 5, 6, 7, "the workflow", "other", 8, 9, 10]
    with world.client(step_functions=tasks.client()) as locks, ThreadPoolExecutor() as pool:
        first = locks.acquire("order")
        done = []
        for count, who in enumerate(order, 1):
            if isinstance(who, int):
                started.append(world.start(who))
            elif who == "the workflow":
                parked = turn_of(workflow, serialised, {"entity": "order", "task": {"functionArn": FUNCTION}})
                workflow.wait_for_wake_up(step_event("WaitForWakeUp", parked, "the task"))
                done.append(pool.submit(workflow_works))
            else:
                done.append(pool.submit(client_works, who))
            world.wait_until_parked(count)
        tickets = [row.ticket for row in world.rows()]
        first.release()
        tokens = [world.result(arn) for arn in started]
        for each in done:
            each.result()
    assert tickets == sorted(tickets)
    assert (world.order, world.most) == (order, 1)
    assert tokens == sorted(tokens)
    # Each was woken: no callback has timed out.
    assert len(world.local.answered) == 10


def test_a_release_of_a_client_wakes_an_execution_and_the_reverse(executions: Make) -> None:
    world = executions(one_step, lease=30)
    with world.client() as locks:
        first = locks.acquire("order")
        arn = world.start("the execution")
        world.wait_until_parked()
        first.release()
        with locks.acquire("order") as last:
            assert world.order == ["the execution"]
        assert world.result(arn) < last.fencing_token
    # The execution did not wait for its callback to time out.
    assert world.invocations[arn] <= 2


def test_a_release_of_a_client_for_tasks_wakes_an_execution(executions: Make) -> None:
    world = executions(one_step, lease=30)

    async def holds() -> str:
        clients: dict[str, Any] = {"client": world.memory.async_client, "lambda_client": Awaited(world.local)}
        async with aio.LockClient("locks", clocks=world.local, **clients) as locks, await locks.acquire("order"):
            arn = world.start("the execution")
            await asyncio.to_thread(world.wait_until_parked)
        return arn

    arn = asyncio.run(holds())
    world.result(arn)
    assert len(world.local.answered) == 1


class Forbidden:
    def send_durable_execution_callback_success(self, **_: Any) -> None:
        refusal: Any = {"Error": {"Code": "AccessDeniedException", "Message": "is not authorized to perform"}}
        raise ClientError(refusal, "SendDurableExecutionCallbackSuccess")


class OfAnOldBoto3:
    pass


@pytest.mark.parametrize("lambda_client", [None, Forbidden(), OfAnOldBoto3()], ids=["none", "forbidden", "old"])
def test_a_client_that_cannot_wake_an_execution_frees_its_lock_and_leaves_it_to_its_own_look(
    executions: Make, lambda_client: object
) -> None:
    world = executions(one_step, skip_time=True)
    with LockClient("locks", client=world.memory.client, lambda_client=lambda_client, clocks=world.local) as locks:
        first = locks.acquire("order", heartbeat=False, lease=timedelta(days=3))
        arn = world.start("the execution")
        world.wait_until_parked()
        first.release()
        world.result(arn)
    # Whoever is woken polls; whose callback times out parks again.
    assert not [name for name, _ in world.operations(arn) if ": poll" in name]


def test_a_record_wait_ends_with_an_error_that_names_the_holder(executions: Make) -> None:
    def handler(world: Executions, event: Any, context: DurableContext) -> list[str]:
        try:
            with world.locks.hold(context, "order", record_wait=event):
                return []
        except RecordWaitExceeded as over:
            return [each[0] for each in over.holders]

    world = executions(handler)
    with world.client(owner_name="the client") as locks, locks.acquire("order"):
        for record_wait in (0, 1):
            (holder,) = world.result(world.start(record_wait))
            assert "the client" in holder
    assert world.rows() == ()


def test_a_waiter_that_has_lost_its_place_takes_a_free_lock_at_its_next_look(executions: Make) -> None:
    looked: list[int] = []

    def loses_its_place(seen: Position) -> None:
        looked.append(seen.place.ticket)
        if len(looked) == 2:
            world.locks.table.remove_waiter(LockName("order"), seen.place.ticket)
            held.release()

    world = executions(one_step, skip_time=True, on_wait=loses_its_place)
    with world.client() as locks:
        held = locks.acquire("order", heartbeat=False, lease=timedelta(days=3))
        arn = world.start("the execution")
        world.result(arn)
    # After the first park has lost the place.
    assert [name for name, _ in world.operations(arn) if ": park" in name][1:] == ["lock order: park 2"]


def test_a_branch_that_cannot_be_woken_beside_a_busy_sibling_keeps_its_place_for_a_minute(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        def waits(branch: DurableContext) -> None:
            # Before its sibling is busy it would suspend the execution, which goes on after the time-out.
            until(lambda: is_busy)
            try:
                with world.locks.hold(branch, "order") as lease:
                    lease.within(branch).step(works(world, "the branch"))
            finally:
                is_suspended.append(True)

        def sibling(branch: DurableContext) -> None:
            def is_long(_: StepContext) -> None:
                is_busy.append(True)
                until(lambda: may_go_on)

            branch.step(is_long)

        context.parallel([waits, sibling]).throw_if_error()

    is_busy: list[bool] = []
    is_suspended: list[bool] = []
    may_go_on: list[bool] = []
    world = executions(handler, function_timeout=900)
    with world.client() as locks:
        held = locks.acquire("order", heartbeat=False, lease=timedelta(days=3))
        arn = world.start()
        until(lambda: is_suspended)
        kept = world.runner._store.load(arn).operations
        (callback,) = [each.callback_details for each in kept if each.callback_details is not None]
        world.runner._executor._on_callback_timeout(arn, callback.callback_id)
        assert world.rows()[0].lease_until_ms - world.local.read().wall_ms > 600_000
        held.release()
        assert world.rows()[0].lease_until_ms - world.local.read().wall_ms < 70_000
    may_go_on.append(True)
    world.result(arn)
    assert world.order == ["the branch"]


def test_a_waiter_that_may_not_have_the_lock_any_more_leaves_the_queue(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> str:
        try:
            with world.locks.hold(context, "order"):
                return "held"
        except PermitsMismatch:
            context.create_callback("what it does then").result()
            return "refused"

    world = executions(handler)
    with world.client() as locks, locks.acquire("order"):
        arn = world.start()
        world.wait_until_parked()
        world.locks.table.set_limit(LockName("order"), 1)
        world.locks.table.unset_limit(LockName("order"), 2)
        world.runner.send_callback_success(world.runner.wait_for_callback(arn), b'"woken"')
        until(lambda: not world.rows())
        assert not world.runner._store.load(arn).is_complete


def test_another_number_of_permits_is_refused_as_everywhere(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        with world.locks.hold(context, "order", permits=2):
            pass

    world = executions(handler)
    with world.client() as locks, locks.acquire("order"):
        assert world.error(world.start()).endswith("PermitsMismatch")
