"""Durable executions of one handler on AWS's local runner, over a lock table in memory."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import clean_up
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.lambda_service import ErrorObject, InvocationStatus, OperationStatus
from aws_durable_execution_sdk_python_testing.executor import Executor
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestResult, DurableFunctionTestRunner
from aws_durable_execution_sdk_python_testing.token import CallbackToken
from kit.functions import functions_over
from kit.places import until

from ticketlock import LockClient, LockName, LockTable
from ticketlock.durable import DurableLocks, LockedStep
from ticketlock.locks import Holder, Row
from ticketlock.testing import MemoryDynamoDB
from ticketlock.testing.durable import LocalLambda

# The runner waits for 5 s after an invocation that has failed.
Executor.RETRY_BACKOFF_SECONDS = 0
LEASE_S = 4

Handler = Callable[["Executions", Any, DurableContext], Any]


class CountsDown:
    """The part of an invocation's context that tells how long it may last; the runner's own tells always the same."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends - time.monotonic()) * 1_000)


class Executions:
    """The executions of one handler.

    Args:
        handler: gets this object, the event and the context.
        skip_time: whether waits take no time.
        invocation_timeout_s: when the service gives an invocation up.
        settings: of ``DurableLocks``.

    Attributes:
        order: who ran under the lock, in this order.
        most: how many ran at once.
        invocations: how many there were of each execution.
        may_end: for bodies that go on until a test lets them end.
    """

    def __init__(
        self, handler: Handler, *, skip_time: bool = False, invocation_timeout_s: int = 900, **settings: Any
    ) -> None:
        self.local = LocalLambda()
        self.memory = MemoryDynamoDB(clock=self.local)
        given = {"lease": LEASE_S, "resume_margin": 5, "function_timeout": 5, **settings}
        self.locks = DurableLocks("locks", client=self.memory, lambda_client=self.local, clocks=self.local, **given)
        self.order: list[Any] = []
        self.most = self._inside = 0
        self.invocations: dict[str, int] = {}
        self.may_end = threading.Event()
        self._mutex = threading.Lock()

        @durable_execution
        def wrapped(event: Any, context: DurableContext) -> Any:
            arn = context.execution_context.durable_execution_arn
            with self._mutex:
                self.invocations[arn] = self.invocations.get(arn, 0) + 1
            vars(context)["lambda_context"] = CountsDown(invocation_timeout_s)
            return handler(self, event, context)

        self.runner = DurableFunctionTestRunner(
            handler=wrapped, skip_time=skip_time, invocation_timeout=invocation_timeout_s, execution_timeout=10**7
        )
        self.local.serve(self.runner)
        if skip_time:
            # The runner skips waits, but no time-outs of callbacks.
            vars(self.runner._executor)["_schedule_callback_timeouts"] = self._skip_to_its_end
            vars(self.runner._executor)["_apply_callback_timeout"] = partial(
                self._time_out_if_open, self.runner._executor._apply_callback_timeout
            )

    def _skip_to_its_end(self, arn: str, options: Any, callback_id: str) -> None:
        if options is not None and options.timeout_seconds > 0:
            clock, executor = self.runner._clock, self.runner._executor
            delay_s = clock.arm(clock.now() + timedelta(seconds=options.timeout_seconds))
            self.runner._scheduler.call_later(lambda: executor._on_callback_timeout(arn, callback_id), delay=delay_s)

    def _time_out_if_open(self, time_out: Callable[[str, ErrorObject], None], callback_id: str, error: Any) -> None:
        # With skipped time an answer and the time-out come at once; the runner would log the second as an error.
        execution = self.runner._store.load(CallbackToken.from_str(callback_id).execution_arn)
        if execution.find_callback_operation(callback_id)[1].status is OperationStatus.STARTED:
            time_out(callback_id, error)

    def close(self) -> None:
        """End the runner, and the event loop that it leaves open."""
        closing: Any = self.runner.close
        closing()
        self.runner._scheduler._loop.close()

    def start(self, event: Any = None) -> str:
        """Start an execution; returns its ARN."""
        return self.runner.run_async(input=json.dumps(event))

    def result(self, arn: str) -> Any:
        """Wait for an execution to succeed; its result."""
        found = self._told(arn)
        assert found.status is InvocationStatus.SUCCEEDED, found.error
        return json.loads(found.result) if found.result else None

    def error(self, arn: str) -> str:
        """Wait for an execution to fail; the type of its error."""
        found = self._told(arn)
        assert found.status is InvocationStatus.FAILED
        assert found.error is not None
        return str(found.error.type)

    def _told(self, arn: str) -> DurableFunctionTestResult:
        # The runner's own wait is for the first who waits.
        until(lambda: self.runner._store.load(arn).is_complete)
        return DurableFunctionTestResult.create(self.runner._store.load(arn))

    def stop(self, arn: str) -> None:
        """Stop an execution; a running invocation goes on."""
        self.runner._executor.stop_execution(arn)

    def time_out(self, arn: str) -> None:
        """The time of an execution is over; a running invocation goes on."""
        self.runner._executor.on_timed_out(arn, ErrorObject.from_message("too long"))

    def ended(self, arn: str, status: str = "STOPPED") -> Any:
        """What the function that cleans up logs of the status event of an execution.

        https://docs.aws.amazon.com/lambda/latest/dg/durable-monitoring.html
        """
        detail = {"durableExecutionArn": arn, "status": status, "endTimestamp": datetime.now(UTC).isoformat()}
        event = {"source": "aws.lambda", "detail-type": "Durable Execution Status Change", "detail": detail}
        with functions_over(self.locks.table, lease_s=1) as lines:
            clean_up.handler(event, None)
        return json.loads(lines.getvalue())

    def operations(self, arn: str) -> list[tuple[str, str]]:
        """The names and states of an execution's operations."""
        return [(str(each.name), each.status.value) for each in self.runner._store.load(arn).operations[1:]]

    def holder(self, entity: str = "order") -> Holder | None:
        """Who holds the lock."""
        item = self.locks.table.inspect(LockName(entity)).item
        return item.holders[0] if item is not None and item.holders else None

    def rows(self, entity: str = "order") -> tuple[Row, ...]:
        """The queue."""
        return self.locks.table.inspect(LockName(entity)).rows

    def wait_until_suspended(self) -> Holder:
        """Wait until the holder is suspended."""
        found: list[Holder] = []

        def is_suspended() -> bool:
            holder = self.holder()
            found[:] = [] if holder is None else [holder]
            return holder is not None and holder.suspended

        until(is_suspended)
        return found[0]

    def wait_until_parked(self, count: int = 1) -> None:
        """Wait until so many wait, and nothing runs of those that are executions."""
        until(lambda: len(self.rows()) == count and all(self._is_parked(row) for row in self.rows()))

    def _is_parked(self, row: Row) -> bool:
        if row.session is None:
            return True
        found = self.memory.get_item(TableName="locks", Key=row.session.key())
        return "wakeUpToken" in found.get("Item", {})

    def client(self, **more: Any) -> LockClient:
        """A Python client in the same queue."""
        return LockClient("locks", client=self.memory.client, lambda_client=self.local, clocks=self.local, **more)

    def table_of(self, step_functions: Any) -> LockTable:
        """The table, for who wakes workflows, too."""
        more: Any = {"client": self.memory.client, "lambda_client": self.local, "clocks": self.local}
        return LockTable("locks", step_functions=step_functions, **more)

    @contextmanager
    def inside(self, who: Any) -> Iterator[None]:
        """Within the block someone runs under the lock."""
        with self._mutex:
            self.order.append(who)
            self._inside += 1
            self.most = max(self.most, self._inside)
        try:
            yield
        finally:
            with self._mutex:
                self._inside -= 1


def works(world: Executions, who: Any, may_end: threading.Event | None = None) -> Callable[[LockedStep], int]:
    """A body that goes on until it may end; its result is the fencing token."""

    def work(step: LockedStep) -> int:
        with world.inside(who):
            assert may_end is None or may_end.wait(60)
        return step.fencing_token

    return work


def one_step(world: Executions, event: Any, context: DurableContext) -> int:
    """A handler that does one thing under the lock."""
    with world.locks.hold(context, "order") as lease:
        return lease.step(works(world, event))
