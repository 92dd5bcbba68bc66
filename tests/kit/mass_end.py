"""Thousands of executions that end at once, and the function that cleans up after them, in virtual time.

The handler is the real one; the table is in memory; Step Functions describes executions from a token bucket, by its
quota (https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html), and counts the requests. As many
events are handled at once as the function has concurrency; the others wait, as they do in Lambda.
"""

import contextlib
import heapq
import io
import itertools
import json
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import clean_up
from botocore.exceptions import ClientError
from kit.awaited import Sending
from kit.events import MACHINE, execution_arn, step_event, turn_of
from kit.functions import functions_over

from ticketlock import LockTable
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.workflow import Workflow

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:work"
# The duration of one request, in virtual time.
TABLE_S, STEP_FUNCTIONS_S = 0.005, 0.020


class Bucket:
    """A token bucket: so many tokens a second, and at most so many saved."""

    def __init__(self, clock: ManualClock, a_second: float, size: int) -> None:
        self._clock = clock
        self._a_second, self._size = a_second, size
        self._left, self._filled_ms = float(size), clock.wall_ms

    def takes(self) -> bool:
        now_ms = self._clock.wall_ms
        self._left = min(self._size, self._left + (now_ms - self._filled_ms) / 1_000 * self._a_second)
        self._filled_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Turns:
    """Threads of which one runs at a time: when one sleeps, the next one that is due runs, in virtual time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._began_ms = clock.wall_ms
        self._sleeping: list[tuple[float, int, threading.Event]] = []
        self._number = itertools.count()
        self._over = threading.Event()

    @property
    def now_s(self) -> float:
        return (self._clock.wall_ms - self._began_ms) / 1_000

    def sleep(self, seconds: float) -> None:
        if not self._sleeping or self.now_s + seconds < self._sleeping[0][0]:
            # It would be the next one itself: switching threads is slow on a busy machine.
            self._clock.advance(seconds)
            return
        woken = self._due_at(self.now_s + seconds)
        self._wake_next()
        woken.wait()

    def run(self, works: Iterable[Callable[[], None]]) -> None:
        """Run all of them to their ends."""

        def to_its_end(work: Callable[[], None], woken: threading.Event) -> None:
            woken.wait()
            work()
            self._wake_next()

        for work in works:
            threading.Thread(target=to_its_end, args=(work, self._due_at(self.now_s)), daemon=True).start()
        self._wake_next()
        self._over.wait()

    def _due_at(self, at_s: float) -> threading.Event:
        woken = threading.Event()
        heapq.heappush(self._sleeping, (at_s, next(self._number), woken))
        return woken

    def _wake_next(self) -> None:
        if not self._sleeping:
            self._over.set()
            return
        at_s, _, woken = heapq.heappop(self._sleeping)
        self._clock.advance(max(0.0, at_s - self.now_s))
        woken.set()


def slow(client: Any, sleep: Callable[[float], None], seconds: float, seen: Callable[[str], None]) -> Any:
    """A client whose requests take a while, and are counted."""

    def call(operation: str, parameters: Mapping[str, Any]) -> Any:
        seen(operation)
        sleep(seconds)
        return getattr(client, operation)(**parameters)

    return Sending(client, call)


class MeteredStepFunctions:
    """Step Functions: all executions have ended; it describes them at the rate of its quota."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.refused = 0

    def describe_execution(self, **_: Any) -> Mapping[str, Any]:
        if not self._bucket.takes():
            self.refused += 1
            throttled: Any = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}
            raise ClientError(throttled, "DescribeExecution")
        return {"status": "ABORTED", "redriveCount": 0}

    def send_task_success(self, **_: Any) -> Mapping[str, Any]:
        return {}


@dataclass
class Ended:
    """One execution that has ended.

    Attributes:
        kind: what it left.
        event: of its end.
        table, calls: the requests to the table, and the calls to Step Functions, of its clean-up.
        late_s: from the event to the end of the clean-up.
        error: what the handler raised.
    """

    kind: str
    event: Mapping[str, Any]
    table: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    late_s: float = 0.0
    error: Exception | None = None


class MassEnd:
    """Executions over a table in memory, and what cleans up after them.

    Args:
        describes_a_second, describes_saved: the quota of DescribeExecution.
    """

    def __init__(self, *, describes_a_second: float = 15, describes_saved: int = 300) -> None:
        self.clock = ManualClock()
        self.turns = Turns(self.clock)
        self.memory = MemoryDynamoDB(clock=self.clock)
        self.step_functions = MeteredStepFunctions(Bucket(self.clock, describes_a_second, describes_saved))
        self._setting_up = Workflow(self._table(self.memory.client, self.step_functions))
        self._entities = itertools.count()
        self._at_work = threading.local()

    def failed_works(self, count: int) -> list[Ended]:
        """Executions whose task failed, and that released the lock themselves."""
        ended = []
        for _ in range(count):
            execution, request = self._asked(f"failed-{next(self._entities)}")
            turn = turn_of(self._setting_up, execution, request)
            self._setting_up.heartbeat(step_event("Heartbeat", turn, "beat"))
            failure = {"Error": "Declined", "Cause": '{"errorType": "Declined"}'}
            self._setting_up.release({"turn": turn, "kind": "function", "work": FUNCTION, "failure": failure})
            ended.append(self._ended("left nothing", execution, request, "FAILED"))
        return ended

    def never_came(self, count: int) -> list[Ended]:
        """Executions whose first step never ran."""
        asked = [self._asked(f"free-{next(self._entities)}") for _ in range(count)]
        return [self._ended("left nothing", *each, "FAILED") for each in asked]

    def waiters(self, count: int) -> list[Ended]:
        """Executions that wait in one queue, behind a holder."""
        entity = f"queue-{next(self._entities)}"
        turn_of(self._setting_up, *self._asked(entity))
        ended = []
        for _ in range(count):
            execution, request = self._asked(entity)
            assert turn_of(self._setting_up, execution, request)["status"] != "granted"
            ended.append(self._ended("left a row", execution, request, "ABORTED"))
        return ended

    def clean_up(self, ended: Sequence[Ended], *, a_second: float, concurrency: int) -> None:
        """Pass the events to the handler, so many a second."""
        queue = deque((number / a_second, each) for number, each in enumerate(ended))
        began_s = self.turns.now_s
        client = slow(self.memory.client, self.turns.sleep, TABLE_S, lambda name: self._count("table", name))
        states = slow(self.step_functions, self.turns.sleep, STEP_FUNCTIONS_S, lambda name: self._count("calls", name))
        table = self._table(client, states)
        table.now()  # As in a function's initialisation.

        def container() -> None:
            while queue:
                arrives_s, each = queue.popleft()
                self.turns.sleep(max(0.0, began_s + arrives_s - self.turns.now_s))
                self._at_work.ended = each
                try:
                    clean_up.handler(each.event, None)
                except Exception as error:
                    each.error = error
                each.late_s = self.turns.now_s - began_s - arrives_s

        # Metrics are written to stdout.
        with functions_over(table), contextlib.redirect_stdout(io.StringIO()):
            self.turns.run([container] * concurrency)

    def rows(self) -> int:
        """How many queue rows there still are."""
        return sum("createdAtMs" in item for item in self.memory.items())

    def _count(self, what: str, operation: str) -> None:
        ended = getattr(self._at_work, "ended", None)
        if ended is not None:
            getattr(ended, what)[operation] += 1

    def _table(self, client: Any, step_functions: Any) -> LockTable:
        return LockTable(
            "locks", client=client, step_functions=step_functions, clocks=self.clock, sleep=self.turns.sleep
        )

    def _asked(self, entity: str) -> tuple[str, Mapping[str, Any]]:
        return execution_arn(), {"entity": entity, "task": {"functionArn": FUNCTION}}

    def _ended(self, kind: str, execution: str, request: Mapping[str, Any], status: str) -> Ended:
        detail = {
            "executionArn": execution,
            "stateMachineArn": MACHINE,
            "status": status,
            "input": json.dumps(request),
            "stopDate": self.clock.wall_ms,
        }
        return Ended(kind, {"id": str(uuid.uuid4()), "detail": detail})
