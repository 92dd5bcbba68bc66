"""A durable execution holds a lock: over suspensions, until it ends, however it ends."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, cast

import boto3
import pytest
from aws_durable_execution_sdk_python import DurableContext, durable_step
from aws_durable_execution_sdk_python.config import (
    CallbackConfig,
    CompletionConfig,
    Duration,
    ParallelConfig,
    StepConfig,
)
from aws_durable_execution_sdk_python.retries import RetryPresets
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext
from kit.places import until
from kit.units import make_tables

from durable.executions import LEASE_S, Executions, one_step, works
from ticketlock import (
    AlreadyHeld,
    InvalidLockRequest,
    LockLost,
    LockName,
    RecordWaitExceeded,
    TableRefused,
    client_config,
)
from ticketlock.durable import DurableLease, DurableLocks, LockedStep, _locks
from ticketlock.durable._holding import DurableHolding
from ticketlock.testing import Fault
from ticketlock.units import Units

Make = Callable[..., Executions]
ONCE = StepConfig(retry_strategy=RetryPresets.none())


def test_a_lock_is_held_over_a_suspension_in_which_nothing_runs(executions: Make) -> None:
    def handler(world: Executions, event: Any, context: DurableContext) -> list[int]:
        with world.locks.hold(context, "order") as lease:
            before = lease.step(works(world, event))
            context.wait(Duration.from_seconds(LEASE_S + 1))
            return [before, lease.step(works(world, event))]

    world = executions(handler)
    first = world.start("first")
    held = world.wait_until_suspended()
    assert held.lease_until_ms - world.local.read().wall_ms > 1_000 * LEASE_S
    second = world.start("second")
    before, after = world.result(first)
    assert before == after == held.fencing_token
    assert world.result(second) == [held.fencing_token + 1] * 2
    assert (world.order, world.most) == (["first"] * 2 + ["second"] * 2, 1)
    assert (world.holder(), world.rows()) == (None, ())


def test_an_invocation_that_goes_on_takes_the_long_lease_back(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> int:
        with world.locks.hold(context, "order", while_suspended=3_600) as lease:
            answer = context.create_callback("answer", CallbackConfig(timeout=Duration.from_minutes(5)))
            answer.result()

            def body(_: object) -> int:
                holder = world.holder()
                assert holder is not None
                return holder.lease_until_ms - world.local.read().wall_ms

            return lease.step(body)

    world = executions(handler)
    arn = world.start()
    held = world.wait_until_suspended()
    assert held.lease_until_ms - world.local.read().wall_ms > 3_500_000
    world.runner.send_callback_success(world.runner.wait_for_callback(arn), b'"yes"')
    # Table time is known to within some seconds.
    assert world.result(arn) < 1_000 * LEASE_S + 5_000


def test_a_branch_that_goes_on_within_the_same_invocation_keeps_its_lock(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        def holds(branch: DurableContext) -> None:
            with world.locks.hold(branch, "order") as lease:
                for number in range(3):
                    lease.within(branch).step(works(world, number))
                    branch.wait(Duration.from_seconds(1))

        def sibling(branch: DurableContext) -> None:
            branch.step(lambda _: until(lambda: len(world.order) == 3))

        context.parallel([holds, sibling]).throw_if_error()

    world = executions(handler)
    arn = world.start()
    world.result(arn)
    assert world.order == [0, 1, 2]


@pytest.mark.parametrize("how", ["an exception", "a failing step", "a return"])
def test_the_end_of_the_block_frees_the_lock(executions: Make, how: str) -> None:
    def fails(_: object) -> None:
        raise ValueError("no more paint")

    def handler(world: Executions, _event: Any, context: DurableContext) -> str | None:
        with world.locks.hold(context, "order") as lease:
            if how == "an exception":
                raise ValueError("no more paint")
            if how == "a failing step":
                lease.within(config=ONCE).step(fails)
            return "returned"
        return None

    world = executions(handler)
    arn = world.start()
    if how == "a return":
        assert world.result(arn) == "returned"
    else:
        assert world.error(arn).rpartition(".")[2] in ("ValueError", "StepError")
    assert world.holder() is None


def test_operations_have_names_that_lambda_takes_for_any_entity(executions: Make) -> None:
    entity = "Bestellung\n№ 42" + "ü" * 300

    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        with world.locks.hold(context, entity):
            pass

    world = executions(handler)
    arn = world.start()
    world.result(arn)
    names = [name for name, _ in world.operations(arn)]
    assert all(name.isascii() and name.isprintable() and len(name) <= 256 for name in names)
    assert names[0].startswith("lock Bestellung%0A%E2%84%96 42%C3%BC")
    assert [name.rpartition(": ")[2] for name in names] == ["take", "release"]


def test_steps_have_names_that_lambda_takes_for_any_function(executions: Make) -> None:
    def prüfe(_: object) -> None: ...

    @durable_step
    def charge(_: object, order: int) -> None: ...

    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        with world.locks.hold(context, "order") as lease:
            lease.step(prüfe)
            lease.step(partial(prüfe))
            lease.within(name="the third").step(prüfe)
            lease.step(charge(42))
            for name in ("№", "", "x" * 257):
                with pytest.raises(InvalidLockRequest, match=r"^name"):
                    lease.within(name=name)

    world = executions(handler)
    arn = world.start()
    world.result(arn)
    assert [name for name, _ in world.operations(arn)][1:-1] == ["pr%C3%BCfe", "None", "the third", "charge"]


@pytest.mark.parametrize(
    "call",
    [
        lambda lease: lease.step(lambda _: "a receipt", name="charge"),
        lambda lease: lease.step(lambda _: "a receipt", "charge", StepConfig()),
        lambda lease: lease.step(lambda: "a receipt"),
    ],
)
def test_a_step_that_each_try_would_call_in_vain_is_refused_before_it_is_recorded(
    executions: Make, call: Callable[[DurableLease], object]
) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        with (
            world.locks.hold(context, "order") as lease,
            pytest.raises(InvalidLockRequest, match=r"lease\.within\(name="),
        ):
            call(lease)

    world = executions(handler)
    arn = world.start()
    world.result(arn)
    assert [name for name, _ in world.operations(arn)] == ["lock order: take", "lock order: release"]


def test_a_loss_while_suspended_is_recorded_and_raised_at_each_replay(executions: Make) -> None:
    def handler(world: Executions, event: Any, context: DurableContext) -> str:
        with world.locks.hold(context, "order", while_suspended=1) as lease:
            answer = context.create_callback("answer")
            answer.result()
            try:
                lease.step(works(world, event))
            except LockLost:
                context.wait(Duration.from_seconds(1))
                return "lost"
        return "held"

    world = executions(handler, resume_margin=0)
    arn = world.start("first")
    world.wait_until_suspended()
    world.locks.table.force_release(LockName("order"), _token(world))
    second = world.start("second")
    until(lambda: world.holder() is not None)
    world.runner.send_callback_success(world.runner.wait_for_callback(arn, name="answer"), b'"yes"')
    assert world.error(arn).endswith("LockLost")
    world.stop(second)
    assert world.order == []


@pytest.mark.shows("exclusion")
@pytest.mark.parametrize("is_broken", [False, True], ids=["as it is", "broken"])
def test_the_end_of_a_block_waits_for_a_body_that_an_early_end_of_parallel_left_behind(
    executions: Make, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    ending: list[DurableHolding] = []

    class Noted(DurableHolding):
        """Tells when the end of its block begins; if it is broken, that waits for no body."""

        def end(self) -> None:
            ending.append(self)
            if is_broken:
                self._running = 0
            super().end()

    monkeypatch.setattr(_locks, "DurableHolding", Noted)

    def handler(world: Executions, event: Any, context: DurableContext) -> str:
        with world.locks.hold(context, "order") as lease:

            def slow(branch: DurableContext) -> None:
                def body(_: object) -> None:
                    with world.inside(event):
                        until(lambda: world.most > 1 if is_broken else ending)

                lease.within(branch).step(body)

            def fails(_: DurableContext) -> None:
                until(lambda: event in world.order)
                raise ValueError("this branch fails")

            context.parallel([slow, fails])
        return "over"

    world = executions(handler)
    first, second = world.start("first"), world.start("second")
    assert world.result(first) == world.result(second) == "over"
    assert world.most == (2 if is_broken else 1)


def test_a_suspended_branch_that_never_runs_again_is_freed_by_the_status_event_of_a_success(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> str:
        def waits(branch: DurableContext) -> None:
            with world.locks.hold(branch, "order"):
                branch.create_callback("never").result()

        def succeeds(branch: DurableContext) -> str:
            branch.step(lambda _: until(lambda: (found := world.holder()) is not None and found.suspended))
            return "enough"

        config = ParallelConfig(completion_config=CompletionConfig(min_successful=1))
        return str(context.parallel([waits, succeeds], config=config).get_results()[0])

    world = executions(handler)
    arn = world.start()
    assert world.result(arn) == "enough"
    assert world.wait_until_suspended().owner.startswith(arn)
    assert world.ended(arn, "SUCCEEDED")["CleanedUpHolds"] == 1
    assert world.holder() is None


def test_a_branch_that_is_an_orphan_when_its_step_ends_frees_its_lock(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        def holds(branch: DurableContext) -> None:
            def body(_: object) -> None:
                world.order.append("holds")
                until(lambda: "enough" in world.order)

            with world.locks.hold(branch, "order") as lease:
                lease.within(branch).step(body)

        def succeeds(_: DurableContext) -> None:
            until(lambda: "holds" in world.order)

        context.parallel([holds, succeeds], config=ParallelConfig(completion_config=CompletionConfig(min_successful=1)))
        world.order.append("enough")
        context.step(lambda _: until(lambda: world.holder() is None))

    # A crashed holder would keep it for a day.
    world = executions(handler, lease=timedelta(days=1))
    arn = world.start()
    world.result(arn)
    assert not [name for name, _ in world.operations(arn) if name.endswith("release")]


@pytest.mark.parametrize("where", ["a step", "the release"])
def test_an_execution_that_fails_since_its_code_has_changed_frees_its_lock(executions: Make, where: str) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> None:
        with world.locks.hold(context, "order") as lease:
            context.wait(Duration.from_seconds(1))
            is_later = bool(world.order)
            if where == "a step" or not is_later:
                lease.within(name=f"is later: {is_later}").step(works(world, "a body"))
            if not is_later:
                context.wait(Duration.from_seconds(1))

    world = executions(handler, lease=timedelta(days=1))
    assert world.error(world.start()).endswith("NonDeterministicExecutionError")
    assert (world.order, world.holder()) == (["a body"], None)


@pytest.mark.shows("exclusion")
def test_an_invocation_that_was_given_up_does_not_suspend_the_lock_of_the_next(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> bool:
        is_first = sum(world.invocations.values()) == 1

        def body(_: object) -> bool:
            world.order.append("the next")
            until(lambda: "the first is over" in world.order)
            holder = world.holder()
            return holder is not None and not holder.suspended

        try:
            with world.locks.hold(context, "order") as lease:
                answer = context.create_callback("answer")
                if is_first:
                    until(lambda: "the next" in world.order)
                    answer.result()
                return lease.step(body)
        finally:
            if is_first:
                world.order.append("the first is over")

    world = executions(handler, invocation_timeout_s=3, lease=30)
    assert world.result(world.start()) is True
    assert world.order == ["the next", "the first is over"]


def test_a_unit_of_a_step_that_runs_three_times_is_committed_once_with_the_first_result(executions: Make) -> None:
    repeated: list[bool] = []

    def handler(world: Executions, _event: Any, context: DurableContext) -> Any:
        units = Units("units", client=world.memory.client, clocks=world.local)
        accounts = units.table("accounts")

        def charge(step: LockedStep, name: str) -> Any:
            with units.begin(name=name, under=step.fence) as unit:
                paid = {"id": "ann", "receipt": f"of attempt {step.attempt}"}
                unit.put(accounts, paid, condition="attribute_not_exists(id)")
            repeated.append(unit.repeated)
            if step.attempt < 3:
                raise ValueError("the answer was lost")
            return units.get(accounts, {"id": "ann"})

        with world.locks.hold(context, "order") as lease:
            return lease.step(charge, lease.unit_name("charge"))

    world = executions(handler, skip_time=True)
    make_tables(world.memory.client, {"units": "units", "accounts": "accounts"})
    assert world.result(world.start()) == {"id": "ann", "receipt": "of attempt 1"}
    assert repeated == [False, True, True]


def test_a_step_returns_what_its_own_serialisation_keeps(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> str:
        with world.locks.hold(context, "order") as lease:
            return repr(lease.step(lambda _: {"total": Decimal("1.10"), "lost": [1, 2]}))

    world = executions(handler)
    assert world.result(world.start()) == "{'total': Decimal('1.10'), 'lost': [1, 2]}"


def test_a_result_that_cannot_be_recorded_fails_the_step_at_once_and_frees_the_lock(executions: Make) -> None:
    def handler(world: Executions, event: Any, context: DurableContext) -> Any:
        with world.locks.hold(context, "order") as lease:

            def body(_: object) -> object:
                world.order.append(event)
                return object()

            return lease.step(body)

    world = executions(handler)
    assert world.error(world.start("only")).endswith("SerDesError")
    assert (world.order, world.holder()) == (["only"], None)


def test_a_result_may_have_no_data_as_the_sdk_lets_it(executions: Make) -> None:
    class Nothing(SerDes[Any]):
        def serialize(self, _value: Any, _context: SerDesContext) -> Any:
            return None

        def deserialize(self, _data: str, _context: SerDesContext) -> Any:
            raise AssertionError("the SDK deserialises only data")

    def handler(world: Executions, _event: Any, context: DurableContext) -> Any:
        with world.locks.hold(context, "order") as lease:
            return lease.within(config=StepConfig(serdes=Nothing())).step(lambda _: 1)

    world = executions(handler)
    assert world.result(world.start()) is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "№"}, "name"),
        ({"lease": 0}, "lease"),
        ({"record_wait": -1}, "record_wait"),
        ({"while_suspended": math.inf}, "while_suspended"),
        ({"permits": 0}, "permits"),
        ({"namespace": "a/b"}, "namespace"),
    ],
)
def test_what_is_out_of_its_bounds_is_refused_before_anything_is_recorded(
    executions: Make, given: dict[str, Any], field: str
) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> str:
        with pytest.raises(InvalidLockRequest) as refused, world.locks.hold(context, "order", **given):
            pass
        return refused.value.field

    world = executions(handler)
    arn = world.start()
    assert world.result(arn) == field
    assert (world.operations(arn), world.memory.sent) == ([], [])


def test_a_lease_that_one_request_could_outlast_is_refused_before_anything_is_recorded(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> str:
        client = boto3.client("dynamodb", "us-east-1", config=client_config())
        locks = DurableLocks("locks", client=client, lambda_client=world.local, lease=2)
        with pytest.raises(InvalidLockRequest, match="four read time-outs of the client") as refused:
            locks.hold(context, "order")
        return refused.value.field

    world = executions(handler)
    arn = world.start()
    assert world.result(arn) == "lease"
    assert world.operations(arn) == []


def test_a_region_that_both_clients_lack_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(InvalidLockRequest) as refused:
        DurableLocks("locks")
    assert (refused.value.field, str(refused.value).count("region_name")) == ("region_name", 1)


def test_a_function_that_is_not_durable_is_told_so(executions: Make) -> None:
    world = executions(one_step)
    with pytest.raises(InvalidLockRequest, match="@durable_execution"):
        world.locks.hold(cast("DurableContext", object()), "order")


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"permits": 2}], ids=["alone", "shared", "permits"])
@pytest.mark.parametrize("in_child", [False, True], ids=["block", "child"])
def test_a_lock_that_the_same_line_of_control_holds_is_refused_before_anything_is_recorded(
    executions: Make, options: dict[str, Any], in_child: bool
) -> None:
    def once_more(world: Executions, context: DurableContext) -> str:
        try:
            with world.locks.hold(context, "order", **options):
                return "held"
        except AlreadyHeld as refused:
            return str(refused)

    def handler(world: Executions, _event: Any, context: DurableContext) -> list[str]:
        with ExitStack() as stack:
            for _ in range(options.get("permits", 1)):
                stack.enter_context(world.locks.hold(context, "order", **options))
            context.wait(Duration.from_seconds(1))
            within = context.run_in_child_context
            told = within(partial(once_more, world)) if in_child else once_more(world, context)
        return [told, once_more(world, context)]

    world = executions(handler)
    arn = world.start()
    within, after = world.result(arn)
    assert "holds 'order', and would wait for itself" in within
    assert after == "held"
    assert len([name for name, _ in world.operations(arn) if name.endswith("take")]) == options.get("permits", 1) + 1


def test_a_branch_that_waits_for_the_lock_of_its_parent_is_told_who_holds_it(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> list[Any]:
        with world.locks.hold(context, "order") as lease:

            def branch(inner: DurableContext) -> bool:
                try:
                    with world.locks.hold(inner, "order", record_wait=0):
                        return False
                except RecordWaitExceeded as over:
                    return over.holders[0][0] == lease.owner

            return context.parallel([branch]).get_results()

    world = executions(handler)
    assert world.result(world.start()) == [True]


def test_a_table_that_fails_for_a_moment_is_asked_again_by_the_same_step(executions: Make) -> None:
    world = executions(one_step, skip_time=True)
    world.memory.faults.extend([Fault.THROTTLED] * 200)
    arn = world.start("only")
    until(lambda: world.invocations.get(arn, 0) > 1)
    world.memory.faults.clear()
    world.result(arn)
    assert world.order == ["only"]


def test_a_function_that_may_not_use_the_table_fails_with_the_error_of_the_table(executions: Make) -> None:
    def handler(world: Executions, _event: Any, context: DurableContext) -> str:
        with pytest.raises(TableRefused) as refused, world.locks.hold(context, "order"):
            pass
        return str(refused.value)

    world = executions(handler, skip_time=True)
    world.memory.faults.extend([Fault.ACCESS_DENIED] * 100)
    arn = world.start()
    assert "AccessDenied" in world.result(arn)
    assert world.operations(arn) == [("lock order: take", "FAILED")]


def _token(world: Executions) -> int:
    holder = world.holder()
    assert holder is not None
    return holder.fencing_token
