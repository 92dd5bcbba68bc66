"""Who sees everything: each item, each grant, what each holder believes, who waits; and accuses by a named promise."""

from dataclasses import dataclass, field

from property.clocks import Machine, TrueTime
from property.invariants import (
    LEASE_MS,
    REQUESTS_MS,
    Belief,
    Broken,
    Standing,
    counts,
    exclusion,
    fencing,
    leases_grow,
    limit,
    liveness,
    no_eviction,
    no_overtaking,
    nothing_left,
    record_wait,
)

from ticketlock import LockName
from ticketlock._items import Item, LockItem, Row, is_lock_item
from ticketlock._outcomes import Grant
from ticketlock._writes import Claim
from ticketlock.testing import MemoryDynamoDB

TABLE = "locks"


@dataclass
class Waiting:
    """An acquisition under way."""

    since_ms: float
    record_wait_ms: int | None
    machine: Machine


@dataclass
class Witness:
    """Sees one lock, from outside, with the true time.

    Attributes:
        permits: the limit of the lock's users.
        most_permits: the highest limit that it has had.
        grants: how many it has seen.
        highest_token: the greatest fencing token granted so far.
        served: owners who wait no more; a late copy may put a row of theirs into the queue.
        longest_idle_ms: for how long the lock was left unused at most though somebody waited and nothing went wrong.
        reads_table: whether the items are ours.
        is_fair: whether nothing goes wrong in this world: then nobody meets an error, and everybody leaves nothing.
    """

    time: TrueTime
    memory: MemoryDynamoDB
    lock: LockName
    permits: int
    reads_table: bool = True
    is_fair: bool = False
    has_lost: bool = False
    grants: int = 0
    highest_token: int = 0
    most_permits: int = 0
    longest_idle_ms: float = 0
    item: LockItem | None = None
    rows: dict[int, Standing] = field(default_factory=dict)
    beliefs: list[Belief] = field(default_factory=list)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.most_permits = self.permits
        self._used_at_ms = self._struck_at_ms = self.time.now_ms

    # What it is told.

    def struck(self, until_ms: float = 0) -> None:
        """Something has gone wrong, perhaps for a while: what it delays is counted from then on."""
        self._struck_at_ms = max(self._struck_at_ms, self.time.now_ms, until_ms)
        self._used_at_ms = max(self._used_at_ms, self._struck_at_ms)

    def asks(self, machine: Machine, owner: str, record_wait_ms: int | None) -> None:
        """An acquisition begins."""
        machine.looked = 0
        self.waiting[owner] = Waiting(self.time.now_ms, record_wait_ms, machine)

    def gave_up(self, owner: str) -> None:
        """An acquisition has ended without the lock."""
        self.served.add(owner)
        asked = self.waiting.pop(owner)
        if asked.record_wait_ms is not None and self._struck_at_ms < asked.since_ms:
            record_wait(self.time.now_ms - asked.since_ms, asked.record_wait_ms)

    def believes(self, machine: Machine, claim: Claim, grant: Grant, belief: Belief | None = None) -> Belief:
        """A holder hears of its grant, or of its renewal."""
        reading = machine.read()
        left_ms = min((grant.deadline_ms - reading.local_ms) / machine.rate, grant.deadline_wall_ms - reading.wall_ms)
        return self.believes_until(claim, grant.fencing_token, self.time.now_ms + left_ms, belief)

    def believes_until(self, claim: Claim, fencing_token: int, until_ms: float, belief: Belief | None = None) -> Belief:
        """A holder believes that it holds the lock until then."""
        self.waiting.pop(claim.owner, None)
        if belief is None:
            belief = Belief(claim.owner, claim.shared, fencing_token, until_ms)
            self.beliefs = [each for each in self.beliefs if not each.over and each.until_ms > self.time.now_ms]
            self.beliefs.append(belief)
        else:
            belief.until_ms = max(belief.until_ms, until_ms)
        exclusion(self.beliefs, self.time.now_ms, self.most_permits)
        return belief

    def met(self, error: Exception, belief: Belief | None = None) -> None:
        """An acquisition, or a hold, has ended with an error."""
        if self.is_fair and (belief is None or belief.until_ms > self.time.now_ms):
            raise Broken(f"liveness: nothing went wrong, and yet: {error!r}")
        # A hold that is over for its holder, and not yet for the others.
        self.has_lost = True

    def is_no_more(self, machine: Machine) -> None:
        """A machine has crashed: it believes nothing, and waits for nothing."""
        for belief in self.beliefs:
            if belief.owner.startswith(machine.name + "/"):
                belief.over = True
        self.waiting = {owner: asked for owner, asked in self.waiting.items() if asked.machine is not machine}

    # What it sees.

    def sees_time(self) -> None:
        """A step is over: is the lock used, if anybody wants it?"""
        if self._is_used():
            self._used_at_ms = max(self._used_at_ms, self.time.now_ms)
        else:
            idle_ms = self.time.now_ms - self._used_at_ms
            self.longest_idle_ms = max(self.longest_idle_ms, idle_ms)
            liveness(idle_ms)

    def sees_write(self, step: int, sender: Machine, *, late: bool) -> None:
        """A request was applied, or refused."""
        if not self.reads_table:
            return
        before, rows = self.item, self.rows
        raw = self.sees_table(step)
        old = {holder.owner for holder in before.holders} if before is not None else set()
        granted = [each for each in self.item.holders if each.owner not in old] if self.item is not None else []
        self.served |= {holder.owner for holder in granted}
        waiting = [each.row for each in rows.values() if each.row.owner not in self.served]
        gone = [row for row in waiting if row.ticket not in self.rows]
        if before is not None and self.item is not None and self.item.waiting < before.waiting:
            # They have withdrawn, and will hear of it.
            self.served |= {row.owner for row in gone}
        counts(self.item, raw, [row for row in self._rows() if row.owner not in self.served])
        leases_grow(before, self.item, waiting, {row.ticket: row for row in self._rows()})
        no_eviction(self.item, gone, self.time.now_ms, by=sender.name)
        if self.is_fair and any(row.owner not in self.served for row in gone):
            raise Broken(f"no eviction: nothing went wrong, and yet {sender.name} gave its place up")
        fencing(before, self.item, self.highest_token)
        if self.item is not None:
            limit(before, self.item)
        for holder in granted:
            self.grants += 1
            self.highest_token = holder.fencing_token
            self._used_at_ms = max(self._used_at_ms, self.time.now_ms)
            self.log.append(f"{step}: {holder.owner} is granted {holder.fencing_token}")
            if not late:
                self._passes(step, holder.owner, holder.shared, before, rows, sender)

    def is_left_to_itself(self) -> None:
        """Everybody has come to an end, and every lease as well."""
        if not self.reads_table:
            return
        if self.is_fair and not self.has_lost:
            nothing_left(self.items(), self.time.now_ms)
        self.time.now_ms += LEASE_MS + REQUESTS_MS
        nothing_left(self.items(), self.time.now_ms)

    def sees_table(self, step: int) -> Item | None:
        """The items stand as they do; returns the lock item."""
        raw, rows = None, {}
        for item in self.items():
            if is_lock_item(item):
                raw = item
            else:
                row = Row.parse(item)
                known = self.rows.get(row.ticket)
                rows[row.ticket] = Standing(row, known.since if known is not None else step)
        self.item, self.rows = LockItem.parse(raw) if raw is not None else None, rows
        return raw

    def _is_used(self) -> bool:
        """Whether somebody holds it; or nobody can be expected to."""
        now_ms = self.time.now_ms
        if not self.waiting or any(not belief.over and belief.until_ms > now_ms for belief in self.beliefs):
            return True
        return self.item is not None and self.item.permits == 0

    def _passes(
        self, step: int, owner: str, shared: bool, before: LockItem | None, rows: dict[int, Standing], sender: Machine
    ) -> None:
        gone = [each.row for ticket, each in rows.items() if ticket not in self.rows and each.row.owner == owner]
        no_overtaking(
            gone[0] if gone else None,
            before,
            [each for each in rows.values() if each.row.owner not in self.served],
            # Without a look it rests on what stands at the write itself.
            sender.looked or step,
            self.time.now_ms,
            shared=shared,
            permits=before.permits if before is not None else self.permits,
            owner=owner,
        )

    def _rows(self) -> list[Row]:
        return [each.row for each in self.rows.values()]

    def items(self) -> list[Item]:
        """The items of the lock as they stand."""
        return [item for item in self.memory.items(TABLE) if item["pk"]["S"] == self.lock.entity]
