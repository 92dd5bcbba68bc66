"""A simulated world: the real protocol and the real driver, many machines, one table, and a scheduler that decides.

Between any two moments of a request (sent, applied, answered) another machine may continue, time may pass, and a fault
may be injected. Nothing here waits: a schedule of hours takes milliseconds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from kit.invariants import LEASE_MS
from property.caps import REAL, Caps
from property.chance import Chance
from property.checker import Checker
from property.clocks import NO_POLL, Machine, Pending, Poll, TrueTime
from property.faults import (
    JUMPS_MS,
    LATEST_MS,
    LEAVE_A_COPY,
    ON_A_REQUEST,
    ON_ANYTHING,
    PAUSES_MS,
    READS,
    SKEWS_MS,
    TIMED_OUT_MS,
    Faults,
    answered,
    drawn_lateness_ms,
    may_befall,
)
from property.parties import TABLE

if TYPE_CHECKING:
    from property.explore import Deployments

from ticketlock import LockName
from ticketlock._expressions._values import Attributes
from ticketlock.client._waiters import LocalWaiters
from ticketlock.locks._items import Session, lock_key
from ticketlock.locks._outcomes import Claim
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.testing import MemoryDynamoDB
from ticketlock.testing._tables import ItemId, Table
from ticketlock.wire._actions import Actions, Call, Fork, Sleep
from ticketlock.wire._driver import Driver

OPERATOR = "operator"
_A_DAY_MS = 24 * 3_600_000
_NEVER_MS = float("inf")


@dataclass(frozen=True, slots=True)
class Late:
    """A copy of a request that will arrive later.

    Attributes:
        arrives_ms: when it arrives at the latest; a scheduler may let it arrive before.
        polled: its sender's last read of the lock by then.
    """

    call: Call
    sender: Machine
    sent_ms: float
    arrives_ms: float
    polled: Poll


@dataclass(eq=False)
class Applying:
    """A transaction that the service has decided and applies item by item: of the others, readers see the old state.

    Attributes:
        step: the step at which it was decided.
        token: its idempotency token.
        left: the items that are not applied yet, and their old states.
        pending: the request of a sender that waits for the answer.
        next_at_ms: when the next item is applied at the earliest.
    """

    step: int
    token: str | None
    left: dict[ItemId, Attributes | None]
    pending: Pending
    next_at_ms: float


@dataclass
class World:
    """All participants of a world; ``step`` lets one thing happen.

    Attributes:
        wakes: whether a release wakes the next waiter, which is parked until then.
        row_lease_ms: the lease of the row of one that is parked far behind; 0 if none is.
        misjudges: whether a waiter that is soon next in line may take itself for far behind: the mean hold is a guess.
        caps: those of the protocol.
        transactions_take_ms: for how long a transaction is in progress: other writes conflict with it meanwhile.
        in_steps: whether the service applies a transaction item by item, and anything may happen in between.
        late: copies of requests that will arrive later.
        applying: transactions that are decided and not yet applied.
        tasks: the callback tasks that wait for their answers.
        lines: waiters that a release wakes, if the machines are threads of one process.
        deployments: whose numbers of permits the machines ask with; None if all ask for ``permits``.
        longest_lease_ms: the longest lease that any machine asks for.
        next_polls: the first poll of a waiter that found it next in line, by its ticket and the fencing token: a
            release that grants the lock to it depends on that poll.
    """

    chance: Chance
    faults: Faults
    permits: int = 1
    wakes: bool = False
    row_lease_ms: int = 0
    misjudges: bool = True
    caps: Caps = REAL
    transactions_take_ms: int = 0
    in_steps: bool = False
    time: TrueTime = field(default_factory=TrueTime)
    lock: LockName = field(default_factory=lambda: LockName("entity"))

    def __post_init__(self) -> None:
        take_s = self.transactions_take_ms / 1_000
        self.memory = MemoryDynamoDB(lock_table=TABLE, clock=self.time, transactions_take_s=take_s)
        # Time to live deletes by it, also where the requests of machines are recorded.
        self.others = self.memory
        self.checker = Checker(self.time, self.memory, self.lock, self.permits, caps=self.caps)
        self.machines: list[Machine] = []
        self.late: list[Late] = []
        self.applying: list[Applying] = []
        self.tasks: dict[str, Machine] = {}
        self.checker.tasks = self.tasks.keys()
        self.steps = 0
        self.lines = LocalWaiters()
        self.deployments: Deployments | None = None
        self.next_polls: dict[tuple[int, int], Poll] = {}
        self.longest_lease_ms = 3 * LEASE_MS // 2

    def add(
        self,
        name: str,
        script: Callable[["World", Machine, Driver], Actions[None]],
        *,
        rate: float | None = None,
        wall_is_off_ms: float | None = None,
    ) -> None:
        """Add a machine that runs a script; its clocks are drawn unless they are given."""
        if rate is None:
            rate = 1 + (self.chance.pick(9) - 4) / 4_000
        if wall_is_off_ms is None:
            wall_is_off_ms = [0, 0, 0, 300, -300, 240_000, -240_000][self.chance.pick(7)]
        machine = Machine(self.time, name, rate, wall_is_off_ms)
        machine.actions = script(self, machine, Driver(TABLE, TIME_CHECK, machine, 8_000, jitter=self._jitter))
        self.machines.append(machine)
        self._resume(machine, lambda actions: next(actions))

    def claim(self, owner: str, *, shared: bool = False, session: Session | None = None) -> Claim:
        """What an acquisition asks for."""
        permits, since_ms = self.permits, None
        if self.deployments is not None:
            is_behind = self.chance.pick(6) == 5
            permits, since_ms = self.deployments.starts(owner, shared=shared, is_behind=is_behind)
        return Claim(
            self.lock, owner, LEASE_MS, permits=permits, shared=shared, session=session, permits_since_ms=since_ms
        )

    @contextmanager
    def task(self, machine: Machine, task_token: str) -> Iterator[None]:
        """A callback task of Step Functions, open within the block."""
        self.tasks[task_token] = machine
        machine.answered_tasks.discard(task_token)
        try:
            yield
        finally:
            self.tasks.pop(task_token, None)

    def _jitter(self) -> float:
        return self.chance.pick(8) / 8 if self.faults != Faults() else 0.5

    # What happens.

    def step(self) -> bool:
        """Let one thing happen; False if no machine has anything left to do, and no copy arrives by itself."""
        due = [which for which, copy in enumerate(self.late) if copy.arrives_ms <= self.time.now_ms]
        if due:
            self.late_one_arrives(due[0])
        elif self.is_over and not self.applying and all(copy.arrives_ms == _NEVER_MS for copy in self.late):
            return False
        elif not self._something_fails():
            now_ms = self.time.now_ms
            ready: list[Machine | Applying] = [*self.ready()]
            ready += (each for each in self.applying if each.next_at_ms <= now_ms)
            # Time passes when no machine is ready, and sometimes before one continues.
            if not ready or self.chance.pick(10) == 9:
                self.let_time_pass([1, 5, 20, 100, 700][self.chance.pick(5)] if ready else 0)
            else:
                which: Machine | Applying = ready[self.chance.pick(len(ready))]
                self.go_on(which) if isinstance(which, Machine) else self.applies_an_item(which)
        return True

    @property
    def is_over(self) -> bool:
        """Whether no machine has anything left to do."""
        return all(machine.is_over for machine in self.machines)

    def ready(self) -> list[Machine]:
        """The machines that may continue now."""
        return [machine for machine in self.machines if machine.is_ready()]

    def let_time_pass(self, ms: float = 0) -> None:
        """Let so much time pass; or, with 0, until a machine is ready or a copy arrives."""
        self.steps += 1
        if ms == 0:
            ready_at = [each.ready_at_ms() for each in self.machines if not each.is_over]
            applied_at = [each.next_at_ms for each in self.applying]
            until_ms = min(*ready_at, *(copy.arrives_ms for copy in self.late), *applied_at, _NEVER_MS)
            ms = max(1, until_ms - self.time.now_ms)
            self.checker.sees_sleep(ms, is_settled=not self.applying)
        self.time.now_ms += ms
        self.late = [copy for copy in self.late if self.time.now_ms - copy.sent_ms <= LATEST_MS]
        if ms > _A_DAY_MS and self.chance.pick(2):
            self.expires()
        # Another server, with another clock, sends the next reply.
        if self.faults != Faults():
            self.time.skew_ms = SKEWS_MS[self.chance.pick(len(SKEWS_MS))]
        self.checker.sees_time()

    def go_on(self, machine: Machine) -> None:
        """Continue a machine: its request is applied or meets a fault, or it gets the answer, or it wakes."""
        self.steps += 1
        pending = machine.pending
        if pending is None:
            self._resume(machine, lambda actions: actions.send(None))
        elif not pending.applied:
            fault = self.faults.which(ON_A_REQUEST, self.chance)
            late_by_ms = drawn_lateness_ms(self.chance) if fault in LEAVE_A_COPY else _NEVER_MS
            if fault is None or not self.befalls(fault, machine, late_by_ms):
                self._apply(machine, pending)
        else:
            machine.pending = None
            error = pending.error
            if error is not None:
                self._resume(machine, lambda actions: actions.throw(error))
            else:
                self._resume(machine, lambda actions: actions.send(pending.answer))

    def applies_an_item(self, which: Applying) -> None:
        """The service applies one more item of a transaction; its sender is answered after the last one."""
        self.steps += 1
        item = list(which.left)[self.chance.pick(len(which.left))]
        del which.left[item]
        which.next_at_ms = self._applies_next_at_ms()
        self.memory._service.tables.transactions.note_change(item)
        if not which.left:
            self.applying.remove(which)
            which.pending.is_being_applied = False

    # Faults.

    def late_one_arrives(self, which: int) -> None:
        """A copy of a request arrives long after its sender has given it up."""
        self.steps += 1
        copy = self.late.pop(which)
        self.checker.log.append(f"{self.steps}: a late copy of {copy.sender.name}'s {copy.call.operation} arrives")
        self.checker.copies.add(self.steps)
        self._perform(Pending(copy.call), copy.sender, copy.polled)
        self.checker.struck()

    def expires(self) -> None:
        """TTL deletes everything that it may, or some of it."""
        self.steps += 1
        reserved = {item for each in self.applying for item in each.left}
        over = [
            item
            for item in self.memory.items(TABLE)
            if _expires_at_ms(item) < self.time.now_ms and _id_of(item) not in reserved
        ]
        for item in over:
            if self.chance.pick(4) < 3:
                self.others.delete_item(TableName=TABLE, Key={"pk": item["pk"], "sk": item["sk"]})
        if over and self.checker.reads_table:
            self.checker.sees_table(self.steps)

    def may_meet(self, fault: str) -> list[Machine]:
        """The machines that this fault of machines may affect.

        An operator that has closed the lock must open it again soon, since waiters poll until then.
        """
        return [each for each in self.machines if not each.is_over and (fault == "jump" or each.name != OPERATOR)]

    def strikes(self, fault: str, victim: Machine, how: int = 0) -> None:
        """Inject a fault of machines into this one.

        Args:
            how: which variant: how long, how far.
        """
        self.steps += 1
        self.checker.struck(victim)
        what = fault
        if fault == "jump":
            victim.set_wall(JUMPS_MS[how])
            what = f"its wall clock is off by {JUMPS_MS[how]} ms"
        elif fault == "crash":
            victim.crash()
            self.checker.note_end_of(victim)
        else:
            what = f"{fault} for {PAUSES_MS[how]} ms"
            (victim.freeze if fault == "freeze" else victim.pause)(PAUSES_MS[how])
        self.checker.log.append(f"{self.steps}: {victim.name}: {what}")

    def befalls(self, fault: str, machine: Machine, late_by_ms: float = _NEVER_MS) -> bool:
        """Inject a fault into the request that a machine has sent, if possible.

        Args:
            late_by_ms: when the copy that it leaves arrives, unless it is made to arrive before.
        """
        pending = machine.pending
        assert pending is not None
        if not may_befall(fault, pending.call.operation):
            return False
        if fault == "torn":
            pending.first, pending.began = self._asked(pending), pending.began or self.steps
        elif fault == "request_lost":
            self._fails(pending, ConnectTimeoutError(endpoint_url="world"))
        elif fault == "throttled":
            self._fails(pending, answered("ThrottlingException", pending.call.operation))
        elif fault == "conflict":
            self._fails(pending, _conflict(pending.call.operation))
        elif fault == "reply_lost":
            self._perform(pending, machine, machine.polled)
            machine.unheard += 1
            self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        else:
            polled = machine.polled if machine.polled.step else Poll(self.steps)
            arrives_ms = self.time.now_ms + late_by_ms
            self.late.append(Late(pending.call, machine, self.time.now_ms, arrives_ms, polled))
            machine.copies += 1
            if fault == "twice":
                self._apply(machine, pending)
            else:
                machine.unheard += 1
                self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        self.checker.log.append(f"{self.steps}: {machine.name}'s {pending.call.operation}: {fault}")
        self.checker.struck()
        return True

    def _something_fails(self) -> bool:
        fault = self.faults.which(ON_ANYTHING, self.chance)
        if fault == "expire":
            self.expires()
        elif fault is not None and (victims := self.may_meet(fault)):
            victim = victims[self.chance.pick(len(victims))]
            self.strikes(fault, victim, 0 if fault == "crash" else self.chance.pick(4))
        return fault is not None

    def _fails(self, pending: Pending, error: BotoCoreError | ClientError) -> None:
        # The service may still be applying it.
        pending.applied, pending.is_being_applied, pending.answer, pending.error = True, False, None, error
        if isinstance(error, ReadTimeoutError):
            self.time.now_ms += TIMED_OUT_MS

    # What is done.

    def _resume(self, machine: Machine, go: Callable[[Actions[None]], Call | Sleep | Fork]) -> None:
        assert machine.actions is not None
        try:
            action = go(machine.actions)
        except StopIteration:
            machine.actions = None
            return
        if isinstance(action, Sleep):
            machine.pending = None
            machine.wakes_at_ms = self.time.now_ms + max(0.0, action.ms)
        else:
            assert isinstance(action, Call), "locks send one request at a time"
            machine.pending = Pending(action)

    def _apply(self, machine: Machine, pending: Pending) -> None:
        self._perform(pending, machine, machine.polled)
        pending.applied = True
        refusal = pending.error.response if isinstance(pending.error, ClientError) else {}
        machine.backs_off = "TransactionConflict" in str(refusal)
        if machine.backs_off:
            machine.conflict_at_ms = self.time.now_ms
        # The reply shows the state of the lock: the first page of a Query, or a refusal with the lock item.
        asked = pending.call.parameters
        is_first_page = pending.call.operation == "query" and "ExclusiveStartKey" not in asked
        is_poll = is_first_page and asked["ExpressionAttributeValues"][":partition"]["S"] == self.lock.entity
        if is_poll or (asked.get("Key") == lock_key(self.lock) and "Item" in refusal):
            machine.polled = Poll(pending.began or self.steps, pending.began is None)

    def _of_the_next(self, call: Call) -> Poll | None:
        """The poll of the waiter to which a release grants the lock; None for all other requests."""
        grant = call.parameters.get("TransactItems", [{}])[0].get("Update", {})
        if "#last" not in grant.get("ExpressionAttributeNames", ()):
            return None
        values = grant["ExpressionAttributeValues"]
        return self.next_polls.get((int(values[":ticket"]["N"]), int(values[":seen_token"]["N"])), NO_POLL)

    def _perform(self, pending: Pending, sender: Machine, polled: Poll) -> None:
        if pending.call.service == "stepfunctions":
            self._answer(pending)
            return
        try:
            pending.answer = self._asked(pending)
        except ClientError as error:
            pending.error = error
        if pending.first is not None and pending.error is None:
            pending.answer = self._torn(pending.first, pending.answer)
        change = pending.call.parameters.get("UpdateExpression", "")
        if "issued = if_not_exists(issued, :epoch) + :one, waiting" in change and pending.error is None:
            self.checker.sees_mint(int(pending.call.parameters["ExpressionAttributeValues"][":now"]["N"]))
        if pending.call.operation not in READS:
            self.checker.sees_write(self.steps, sender, self._of_the_next(pending.call) or polled)

    def _asked(self, pending: Pending) -> Any:
        """The service's answer, if it answers at once."""
        client: Any = self.memory
        operation, parameters = pending.call.operation, pending.call.parameters
        if operation in READS:
            return self._read(pending)
        if operation != "transact_write_items" or not self.in_steps:
            return getattr(client, operation)(**parameters)
        token = parameters.get("ClientRequestToken")
        if any(each.token == token for each in self.applying):
            raise answered("TransactionInProgressException", operation)
        table, tables = self._table, self.memory._service.tables
        before = {item: table.get(item[1]) for item in map(_written, parameters["TransactItems"])}
        answer = client.transact_write_items(**parameters)
        left = {item: was for item, was in before.items() if table.get(item[1]) is not was}
        for item in left:
            tables.transactions.takes(item)
        if left:
            pending.is_being_applied = True
            self.applying.append(Applying(self.steps, token, left, pending, self._applies_next_at_ms()))
        return answer

    def _applies_next_at_ms(self) -> float:
        return self.time.now_ms + [0, 1, 5, 20, 100, 500][self.chance.pick(6)]

    def _read(self, pending: Pending) -> Any:
        """What a read returns: what is not applied yet is in its old state."""
        client: Any = self.memory
        table = self._table
        unapplied = {item[1]: was for each in self.applying for item, was in each.left.items()}
        applied = {key: table.get(key) for key in unapplied}
        for key, was in unapplied.items():
            table.put(key, was)
        try:
            answer = getattr(client, pending.call.operation)(**pending.call.parameters)
        finally:
            for key, became in applied.items():
                table.put(key, became)
        if self.applying:
            pending.began = min(pending.began or self.steps, *(each.step for each in self.applying))
        return answer

    @property
    def _table(self) -> Table:
        return self.memory._service.tables[TABLE]

    def _torn(self, first: Any, then: Any) -> Any:
        """A reply in which each item is in its old or its new state."""
        last = first.get("LastEvaluatedKey", then.get("LastEvaluatedKey"))
        was, became = ({item["sk"]["S"]: item for item in reply["Items"]} for reply in (first, then))
        items = []
        for sk in sorted(was.keys() | became.keys()):
            found = was.get(sk)
            # The simplest choice: the lock item in its old state, the rows in their new one.
            if found != became.get(sk) and sk.endswith("/") == bool(self.chance.pick(2)):
                found = became.get(sk)
            if found is not None and (last is None or sk <= last["sk"]["S"]):
                items.append(found)
        return {**then, "Items": items, **({"LastEvaluatedKey": last} if last is not None else {})}

    def _answer(self, pending: Pending) -> None:
        """Step Functions answers the call that ends a callback task."""
        task_token = pending.call.parameters["taskToken"]
        machine = self.tasks.pop(task_token, None)
        pending.answer = {}
        if machine is None:
            pending.error = answered("TaskTimedOut", pending.call.operation)
        else:
            machine.answered(task_token)


def _id_of(item: Attributes) -> ItemId:
    return TABLE, (item["pk"]["S"], item["sk"]["S"])


def _written(action: Any) -> ItemId:
    """The item that an action of a transaction writes."""
    (asked,) = action.values()
    return _id_of(asked.get("Key") or asked["Item"])


def _expires_at_ms(item: Attributes) -> float:
    return int(item["expiresAt"]["N"]) * 1_000 if "expiresAt" in item else _NEVER_MS


def _conflict(operation: str) -> ClientError:
    if operation != "transact_write_items":
        return answered("TransactionConflictException", operation)
    error = answered("TransactionCanceledException", operation)
    error.response["CancellationReasons"] = [{"Code": "TransactionConflict"}, {"Code": "None"}]
    return error
