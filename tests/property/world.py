"""A simulated world: the real protocol and the real driver, many machines, one table, and a scheduler that decides.

Between any two moments of a request (sent, applied, answered) anybody else may go on, time may pass, and something may
fail. Nothing here waits: a schedule of hours takes milliseconds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, ReadTimeoutError
from property.chance import Chance
from property.invariants import Belief, Standing, counts, exclusion, fencing, limit, no_overtaking

from ticketlock import LockName
from ticketlock._driver import Actions, Call, Driver, Sleep
from ticketlock._items import Item, LockItem, Row, is_lock_item
from ticketlock._outcomes import Grant
from ticketlock._time import Reading
from ticketlock._writes import Claim
from ticketlock.testing import MemoryDynamoDB

BEGIN_MS = 1_800_000_000_000
TABLE = "locks"
OPERATOR = "operator"


@dataclass
class Faults:
    """How often what goes wrong, in thousandths of the choices; all 0 is a world without faults."""

    request_lost: int = 0
    reply_lost: int = 0
    late: int = 0
    twice: int = 0
    throttled: int = 0
    conflict: int = 0
    crash: int = 0
    pause: int = 0
    jump: int = 0
    freeze: int = 0
    expire: int = 0


@dataclass
class TrueTime:
    """The time of the table, which drifts by nothing; its servers' clocks differ by less than a second."""

    now_ms: float = BEGIN_MS
    skew_ms: int = 0

    def read(self) -> Reading:
        return Reading(0, int(self.now_ms + self.skew_ms))


@dataclass
class Machine:
    """One machine's clocks, and what it is about to do."""

    world: "World"
    name: str
    rate: float
    wall_is_off_ms: float
    local_ms: float = 5_000_000
    read_at_ms: float = BEGIN_MS
    actions: Actions[None] | None = None
    pending: "Pending | None" = None
    wakes_at_ms: float = 0
    paused_until_ms: float = 0
    looked: int = 0

    def read(self) -> Reading:
        self._go_on()
        return Reading(int(self.local_ms), int(self.world.time.now_ms + self.wall_is_off_ms))

    def freeze(self, ms: float) -> None:
        """Stand still together with the local clock."""
        self._go_on()
        self.read_at_ms += ms
        self.paused_until_ms = max(self.paused_until_ms, self.read_at_ms)

    def _go_on(self) -> None:
        now_ms = self.world.time.now_ms
        if now_ms > self.read_at_ms:
            self.local_ms += (now_ms - self.read_at_ms) * self.rate
            self.read_at_ms = now_ms

    @property
    def is_over(self) -> bool:
        return self.actions is None


@dataclass
class Pending:
    """A request on its way."""

    call: Call
    applied: bool = False
    answer: Any = None
    error: BotoCoreError | ClientError | None = None


@dataclass
class World:
    """Everything there is; ``step`` lets one thing happen."""

    chance: Chance
    faults: Faults
    permits: int = 1
    time: TrueTime = field(default_factory=TrueTime)
    lock: LockName = field(default_factory=lambda: LockName("entity"))

    def __post_init__(self) -> None:
        self.memory = MemoryDynamoDB(lock_table=TABLE, clock=self.time)
        self.machines: list[Machine] = []
        self.late: list[tuple[Call, str]] = []
        self.beliefs: list[Belief] = []
        self.steps = 0
        self.rows: dict[int, Standing] = {}
        self.item: LockItem | None = None
        self.grants = 0
        self.log: list[str] = []
        self.most_permits = self.permits
        # Owners who wait no more: a late copy may put a row of theirs into the queue.
        self.served: set[str] = set()

    def add(
        self,
        name: str,
        script: Callable[["World", Machine, Driver], Actions[None]],
        *,
        rate: float | None = None,
        wall_is_off_ms: float | None = None,
    ) -> None:
        """Another machine, which does as the script says, with clocks of any kind unless told otherwise."""
        if rate is None:
            rate = 1 + (self.chance.pick(9) - 4) / 10_000
        if wall_is_off_ms is None:
            wall_is_off_ms = [0, 0, 0, 300, -300, 240_000, -240_000][self.chance.pick(7)]
        machine = Machine(self, name, rate, wall_is_off_ms)
        machine.actions = script(self, machine, Driver(TABLE, machine, 8_000, jitter=self._jitter))
        self.machines.append(machine)
        self._resume(machine, lambda actions: next(actions))

    def _jitter(self) -> float:
        return self.chance.pick(8) / 8 if self.faults != Faults() else 0.5

    # What happens.

    def step(self) -> bool:
        """Let one thing happen; False when nobody has anything left to do."""
        self.steps += 1
        if not any(not machine.is_over for machine in self.machines):
            return False
        if self._something_fails():
            return True
        ready = self.ready()
        # Time passes when nobody is ready, and now and then before somebody goes.
        if not ready or self.chance.pick(10) == 9:
            self._pass_time(ready)
            return True
        self._go_on(ready[self.chance.pick(len(ready))])
        return True

    def ready(self) -> list[Machine]:
        """Who may go on now."""
        return [machine for machine in self.machines if self._is_ready(machine)]

    def let_time_pass(self) -> bool:
        """Until somebody is ready; False when nobody will be."""
        if all(machine.is_over for machine in self.machines):
            return False
        self._pass_time([])
        return True

    def go_on_at_once(self, machine: Machine, fault: str | None) -> None:
        """Let a machine go on; its request is applied and answered at once, unless this befalls it."""
        pending = machine.pending
        if fault == "crash":
            machine.actions = None
            self._is_no_more(machine)
        elif pending is None:
            self._go_on(machine)
        else:
            if fault is None or not self._befalls(fault, machine, pending):
                self._apply(machine, pending)
            self._go_on(machine)

    def late_one_arrives(self, which: int) -> None:
        """A copy of a request arrives after everybody has forgotten it."""
        call, name = self.late.pop(which)
        self.log.append(f"{self.steps}: a late copy of {name}'s request arrives")
        self._perform(Pending(call), name, late=True)

    def _is_ready(self, machine: Machine) -> bool:
        if machine.is_over or machine.paused_until_ms > self.time.now_ms:
            return False
        return machine.pending is not None or machine.wakes_at_ms <= self.time.now_ms

    def _pass_time(self, ready: list[Machine]) -> None:
        if ready:
            self.time.now_ms += [1, 5, 20, 100, 700][self.chance.pick(5)]
        else:
            waits = [
                max(machine.paused_until_ms, machine.wakes_at_ms if machine.pending is None else 0)
                for machine in self.machines
                if not machine.is_over
            ]
            self.time.now_ms = max(self.time.now_ms + 1, min(waits))
        self.time.skew_ms = [0, 450, -450][self.chance.pick(3)]

    def _go_on(self, machine: Machine) -> None:
        pending = machine.pending
        if pending is None:
            self._resume(machine, lambda actions: actions.send(None))
            return
        if not pending.applied:
            if not self._meets_a_fault(machine, pending):
                self._apply(machine, pending)
            return
        machine.pending = None
        if pending.error is not None:
            error = pending.error
            self._resume(machine, lambda actions: actions.throw(error))
        else:
            self._resume(machine, lambda actions: actions.send(pending.answer))

    def _resume(self, machine: Machine, go: Callable[[Actions[None]], Call | Sleep]) -> None:
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
            machine.pending = Pending(action)

    def _apply(self, machine: Machine, pending: Pending) -> None:
        self._perform(pending, machine.name)
        pending.applied = True
        machine.looked = max(machine.looked, self.steps) if self._tells(pending) else machine.looked

    def _tells(self, pending: Pending) -> bool:
        """Whether the reply tells the state of the lock: the first page of a look, or a refusal."""
        is_look = pending.call.operation == "query" and "ExclusiveStartKey" not in pending.call.parameters
        return is_look or isinstance(pending.error, ClientError)

    # What fails.

    def _something_fails(self) -> bool:
        drawn = self.chance.pick(1_000)
        if self.late and drawn >= 980:
            self.late_one_arrives(self.chance.pick(len(self.late)))
            return True
        drawn -= 1
        for fault in ("crash", "pause", "freeze", "jump", "expire"):
            rate = getattr(self.faults, fault)
            if 0 <= drawn < rate:
                self._strikes(fault)
                return True
            drawn -= rate
        return False

    def _strikes(self, fault: str) -> None:
        """One fault strikes a machine, or the table."""
        if fault == "expire":
            self.memory.expire()
            return
        victim = self._anybody()
        if fault == "jump":
            victim.wall_is_off_ms = [0, 90_000, -90_000, 240_000][self.chance.pick(4)]
            self.log.append(f"{self.steps}: the wall clock of {victim.name} is off by {victim.wall_is_off_ms} ms")
        elif fault != "crash":
            ms = [500, 3_000, 30_000, 70_000][self.chance.pick(4)]
            self.log.append(f"{self.steps}: {victim.name}: {fault} for {ms} ms")
            if fault == "freeze":
                victim.freeze(ms)
            else:
                victim.paused_until_ms = self.time.now_ms + ms
        # An operator who has closed the lock opens it again.
        elif victim.name != OPERATOR:
            self.log.append(f"{self.steps}: {victim.name} crashes")
            victim.actions = None
            self._is_no_more(victim)

    def _anybody(self) -> Machine:
        alive = [machine for machine in self.machines if not machine.is_over]
        return alive[self.chance.pick(len(alive))]

    def _is_no_more(self, machine: Machine) -> None:
        for belief in self.beliefs:
            if belief.owner.startswith(machine.name + "/"):
                belief.over = True

    def _meets_a_fault(self, machine: Machine, pending: Pending) -> bool:
        drawn = self.chance.pick(1_000) - 1
        for fault in ("request_lost", "throttled", "conflict", "reply_lost", "late", "twice"):
            rate = getattr(self.faults, fault)
            if 0 <= drawn < rate:
                return self._befalls(fault, machine, pending)
            drawn -= rate
        return False

    def _befalls(self, fault: str, machine: Machine, pending: Pending) -> bool:
        """One fault befalls a request, if it can."""
        is_write = pending.call.operation not in ("query", "get_item")
        if fault == "request_lost":
            self._fails(pending, ConnectTimeoutError(endpoint_url="world"))
        elif fault == "throttled":
            self._fails(pending, _answered("ThrottlingException", pending.call.operation))
        elif fault == "reply_lost":
            self.log.append(f"{self.steps}: the reply to {machine.name} is lost")
            self._perform(pending, machine.name)
            self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        elif not is_write:
            return False
        elif fault == "conflict":
            self._fails(pending, _answered("TransactionConflictException", pending.call.operation))
        elif fault == "late":
            self.late.append((pending.call, machine.name))
            self._fails(pending, ReadTimeoutError(endpoint_url="world"))
        else:
            self.late.append((pending.call, machine.name))
            self._apply(machine, pending)
        return True

    def _fails(self, pending: Pending, error: BotoCoreError | ClientError) -> None:
        pending.applied, pending.answer, pending.error = True, None, error
        if isinstance(error, ReadTimeoutError):
            self.time.now_ms += 2_000

    # What the table does, and what has to hold.

    def _perform(self, pending: Pending, name: str, *, late: bool = False) -> None:
        client: Any = self.memory
        before = self.item
        try:
            pending.answer = getattr(client, pending.call.operation)(**pending.call.parameters)
        except ClientError as error:
            pending.error = error
        if pending.call.operation in ("query", "get_item"):
            return
        self._look_at_the_table(before, name, late=late)

    def _look_at_the_table(self, before: LockItem | None, name: str, *, late: bool) -> None:
        raw: Item | None = None
        rows: dict[int, Standing] = {}
        for item in self.memory.items(TABLE):
            if is_lock_item(item):
                raw = item
            else:
                row = Row.parse(item)
                known = self.rows.get(row.ticket)
                rows[row.ticket] = Standing(row, known.since if known is not None else self.steps)
        self.item = LockItem.parse(raw) if raw is not None else None
        counts(self.item, raw)
        fencing(before, self.item)
        if self.item is not None:
            limit(before, self.item)
        old = {holder.owner for holder in before.holders} if before is not None else set()
        for holder in self.item.holders if self.item is not None else ():
            if holder.owner not in old:
                self.grants += 1
                self.served.add(holder.owner)
                self.log.append(f"{self.steps}: {holder.owner} is granted {holder.fencing_token}")
                if not late:
                    self._granted(holder.owner, holder.shared, before, rows, name)
        self.rows = rows

    def _granted(self, owner: str, shared: bool, before: LockItem | None, rows: dict[int, Standing], name: str) -> None:
        machine = next(each for each in self.machines if each.name == name)
        gone = [each.row for ticket, each in self.rows.items() if ticket not in rows and each.row.owner == owner]
        no_overtaking(
            gone[0] if gone else None,
            before,
            [each for each in self.rows.values() if each.row.owner not in self.served],
            machine.looked,
            self.time.now_ms,
            shared=shared,
            permits=before.permits if before is not None else self.permits,
            owner=owner,
        )

    def believes(self, machine: Machine, claim: Claim, grant: Grant, belief: Belief | None = None) -> Belief:
        """A holder hears of its grant, or of its renewal."""
        left_ms = (grant.deadline_ms - machine.read().local_ms) / machine.rate
        until_ms = self.time.now_ms + left_ms
        if belief is None:
            belief = Belief(claim.owner, claim.shared, grant.fencing_token, until_ms)
            self.beliefs = [each for each in self.beliefs if not each.over and each.until_ms > self.time.now_ms]
            self.beliefs.append(belief)
        else:
            belief.until_ms = max(belief.until_ms, until_ms)
        exclusion(self.beliefs, self.time.now_ms, self.most_permits)
        return belief

    def owners(self, machine: Machine) -> Iterator[str]:
        """Identities of one machine's acquisitions."""
        number = 0
        while True:
            number += 1
            yield f"{machine.name}/{number}"


def _answered(code: str, operation: str) -> ClientError:
    # Without a Date: the driver has to do without one here.
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)
