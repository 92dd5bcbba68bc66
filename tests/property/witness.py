"""Who sees everything: each item, each grant, what each holder believes, who waits; and accuses by a named promise."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from kit.invariants import (
    LEASE_MS,
    UNCERTAINTY_MS,
    Belief,
    Broken,
    Standing,
    count_of_tickets,
    counts,
    exclusion,
    fencing,
    leases_grow,
    limit,
    limit_as_set,
    liveness,
    no_eviction,
    no_holder_evicted,
    no_overtaking,
    none_declared_void,
    nothing_left,
    room,
    told,
    wait_not_too_long,
    wait_not_too_short,
)
from property.clocks import NO_LOOK, Look, Machine, TrueTime

from ticketlock import LockName
from ticketlock.locks._claim import Claim
from ticketlock.locks._items import Holder, LockItem, Row, is_lock_item
from ticketlock.locks._outcomes import Grant
from ticketlock.testing import MemoryDynamoDB
from ticketlock.wire._attributes import Item
from ticketlock.wire._table_time import Reading

TABLE = "locks"
LOCAL_CLOCK_IS_OFF_MS = 200
"""What a local clock gains in the longest record wait, rounded up."""


@dataclass
class Waiting:
    """An acquisition under way.

    Attributes:
        by_table_time: whether the record wait is counted by it, from the ticket on; else by the local clock, from the
            beginning on.
        met_somebody: whether somebody has held the lock, or stood in the queue, since it began.
    """

    since_ms: float
    record_wait_ms: int | None
    machine: Machine
    shared: bool
    by_table_time: bool
    met_somebody: bool = False

    @property
    def clock_is_off_ms(self) -> float:
        """By how much the clock of its record wait is off at most, in all of it."""
        return 2 * UNCERTAINTY_MS if self.by_table_time else LOCAL_CLOCK_IS_OFF_MS


@dataclass(slots=True)
class Hold(Belief):
    """A belief, and until when by the holder's own clocks: they may be set, and one may stand still.

    Attributes:
        since_ms: when its acquisition began.
    """

    machine: Machine
    since_ms: float
    deadline: Reading
    over: bool = False

    def is_believed(self) -> bool:
        """Whether it believes now, and may be taken at its word.

        Not if its machine was frozen with its local clock, and its wall clock set back: then nothing tells it.
        """
        told_by_none = min(self.machine.frozen_at_ms, self.machine.set_back_at_ms) >= self.since_ms
        return not self.over and not told_by_none and self.clocks_allow()

    def clocks_allow(self) -> bool:
        """Whether neither of its clocks has reached the deadline."""
        now, deadline = self.machine.read(), self.deadline
        return now.local_ms < deadline.local_ms and now.wall_ms < deadline.wall_ms


@dataclass
class Witness:
    """Sees one lock, from outside, with the true time.

    Attributes:
        permits: the limit of the lock's users.
        limits: the limit that was set last, and the one that is being set.
        grants: how many it has seen.
        highest_token: the greatest fencing token granted so far.
        granted: the limit at each grant, by its token.
        tokens: those that each owner was granted.
        served: up to which ticket each owner waits no more; a late copy may put a row of theirs into the queue.
        left: the step at which each owner ceased to hold the lock: until then its row was not waiting.
        slips: the tickets that were passed by a grant under way.
        tickets: those that were taken, and whose rows have not gone.
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
    limits: set[int] = field(default_factory=set)
    longest_idle_ms: float = 0
    item: LockItem | None = None
    rows: dict[int, Standing] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    granted: dict[int, int] = field(default_factory=dict)
    tokens: dict[str, set[int]] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    slips: set[int] = field(default_factory=set)
    tickets: set[int] = field(default_factory=set)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = {self.permits}
        self._used_at_ms, self._struck_at_ms = self.time.now_ms, -inf

    # What it is told.

    def struck(self, victim: Machine | None = None) -> None:
        """Something has gone wrong.

        Args:
            victim: the machine. What one that waits or holds delays is counted from then on; another delays nobody.
        """
        self._struck_at_ms = self.time.now_ms
        if victim is None or self._takes_part(victim):
            self._used_at_ms = max(self._used_at_ms, self.time.now_ms)

    def asks(
        self,
        machine: Machine,
        owner: str,
        record_wait_ms: int | None,
        *,
        shared: bool = False,
        by_table_time: bool = False,
    ) -> None:
        """An acquisition begins."""
        machine.looked = NO_LOOK
        self.waiting[owner] = Waiting(self.time.now_ms, record_wait_ms, machine, shared, by_table_time)
        self._meets_others()

    def refused(self, owner: str) -> None:
        """An acquisition has ended without the lock: its record wait is over."""
        asked = self.waiting[owner]
        wait_not_too_short(self.time.now_ms - asked.since_ms, asked.record_wait_ms, asked.clock_is_off_ms)
        self._asks_for_the_wait(asked)
        if self.is_fair and asked.record_wait_ms == 0 and not asked.met_somebody:
            raise Broken(f"liveness: nobody held the lock or waited for it, and yet {owner} was refused")
        self.gave_up(owner)

    def gave_up(self, owner: str) -> None:
        """An acquisition has ended without the lock."""
        self.served[owner] = inf
        del self.waiting[owner]

    def believes(self, machine: Machine, claim: Claim, grant: Grant, hold: Hold | None = None) -> Hold:
        """A holder hears of its grant, or of its renewal."""
        told(claim.owner, grant.fencing_token, self.tokens.get(claim.owner, ()))
        deadline = Reading(grant.deadline_ms, grant.deadline_wall_ms)
        return self.believes_until(machine, claim, grant.fencing_token, deadline, hold)

    def believes_until(
        self, machine: Machine, claim: Claim, fencing_token: int, deadline: Reading, hold: Hold | None = None
    ) -> Hold:
        """A holder believes that it holds the lock until then, by either of its clocks."""
        asked = self.waiting.pop(claim.owner, None)
        self.served[claim.owner] = inf
        if asked is not None:
            self._asks_for_the_wait(asked)
        if hold is None:
            permits = self.granted.get(fencing_token, self.permits)
            since_ms = asked.since_ms if asked is not None else self.time.now_ms
            hold = Hold(claim.owner, claim.shared, fencing_token, permits, machine, since_ms, deadline)
            self.holds = [each for each in self.holds if not each.over]
            self.holds.append(hold)
        elif deadline.local_ms >= hold.deadline.local_ms:
            hold.deadline = deadline
        self._asks_for_exclusion()
        return hold

    def met(self, error: Exception, hold: Hold | None = None) -> None:
        """An acquisition, or a hold, has ended with an error."""
        if self.is_fair and (hold is None or hold.is_believed()):
            raise Broken(f"liveness: nothing went wrong, and yet: {error!r}")
        # A hold that is over for its holder, and not yet for the others.
        self.has_lost = True

    def is_no_more(self, machine: Machine) -> None:
        """A machine has crashed: it believes nothing, and waits for nothing."""
        for hold in self.holds:
            hold.over |= hold.machine is machine
        self.waiting = {owner: asked for owner, asked in self.waiting.items() if asked.machine is not machine}

    # What it sees.

    def sees_time(self) -> None:
        """A step is over: does the first in line hold the lock, if it may?"""
        first = self._first_in_line()
        if first is None or self._room(shared=first.shared) <= 0:
            self._used_at_ms = max(self._used_at_ms, self.time.now_ms)
        else:
            # As long as it stands still, it is not to be expected.
            idle_ms = self.time.now_ms - max(self._used_at_ms, first.machine.paused_until_ms)
            self.longest_idle_ms = max(self.longest_idle_ms, idle_ms)
            liveness(idle_ms, self.time.now_ms - self._struck_at_ms)

    def sees_write(self, step: int, sender: Machine, look: Look) -> None:
        """A request was applied, or refused.

        Args:
            look: the one that it rests on.
        """
        if not self.reads_table:
            return
        self._asks_for_exclusion()
        before, rows, now_ms = self.item, self.rows, self.time.now_ms
        # Without a look it rests on what stands at the write itself.
        looked = look.step or step
        raw = self.sees_table(step)
        holding = {holder.owner for holder in before.holders} if before is not None else set()
        standing = [each for each in rows.values() if self._waits(each.row, holding, looked)]
        granted = [each for each in self.item.holders if each.owner not in holding] if self.item is not None else []
        for holder in granted:
            assert self.item is not None
            self._serves(holder.owner, self.item.issued)
        gone = [each.row for each in standing if each.row.ticket not in self.rows and not self._is_served(each.row)]
        if before is not None and self.item is not None and self.item.waiting < before.waiting:
            # They have withdrawn, and will hear of it.
            for row in gone:
                self._serves(row.owner, row.ticket)
        gone = [row for row in gone if not self._is_served(row)]
        self._meets_others()
        counts(self.item, raw, [each.row for each in self.rows.values() if not self._is_served(each.row)])
        leases_grow(before, self.item, [each.row for each in standing], {n: each.row for n, each in self.rows.items()})
        no_eviction(self.item, gone, now_ms, by=sender.name)
        no_holder_evicted(before, self.item, now_ms, by=sender.name)
        none_declared_void(before, self.item, standing, looked, now_ms, by=sender.name)
        self._follows_tickets(before, self.item, rows.keys() - self.rows.keys())
        if self.is_fair and gone:
            raise Broken(f"no eviction: nothing went wrong, and yet {sender.name} gave its place up")
        fencing(before, self.item, self.highest_token)
        if self.item is not None:
            limit(before, self.item)
            limit_as_set(self.item, self.limits)
        for holder in granted:
            self._sees_grant(step, holder, before, rows, standing, look)
        here = {holder.owner for holder in self.item.holders} if self.item is not None else set()
        self.left.update(dict.fromkeys(holding - here, step))

    def _sees_grant(
        self,
        step: int,
        holder: Holder,
        before: LockItem | None,
        rows: Mapping[int, Standing],
        standing: Collection[Standing],
        look: Look,
    ) -> None:
        permits = before.permits if before is not None else self.permits
        self.grants += 1
        self.highest_token = holder.fencing_token
        self.tokens.setdefault(holder.owner, set()).add(holder.fencing_token)
        self.granted[holder.fencing_token] = permits
        self._used_at_ms = max(self._used_at_ms, self.time.now_ms)
        self.log.append(f"{step}: {holder.owner} is granted {holder.fencing_token}")
        gone = (each.row for ticket, each in rows.items() if ticket not in self.rows)
        no_overtaking(
            next((row for row in gone if row.owner == holder.owner), None),
            before,
            standing,
            look.step or step,
            self.time.now_ms,
            shared=holder.shared,
            permits=permits,
            owner=holder.owner,
            slips=self.slips if look.is_snapshot else None,
        )

    def nothing_is_left(self) -> None:
        """Everybody has come to an end, and every lease as well, or everybody has given back what was theirs."""
        nothing_left(self.items(), self.time.now_ms)

    def one_write_is_enough(self) -> None:
        """Nobody waits, as the lock item says, and there is room, if need be beside the dead."""
        if self.item is None or self.item.waiting or self.item.held >= self.item.permits:
            raise Broken(f"nothing left: the counts in {self.item}")

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

    def _first_in_line(self) -> Waiting | None:
        """Of those who wait and do not stand still: the first in the queue; or, with none, one who is to join it."""
        now_ms = self.time.now_ms
        awake = {owner: asked for owner, asked in self.waiting.items() if asked.machine.paused_until_ms <= now_ms}
        for ticket in sorted(self.rows):
            row = self.rows[ticket].row
            if row.owner in awake and row.lease_until_ms >= now_ms:
                return awake[row.owner]
        return next(iter(awake.values()), None)

    def _room(self, *, shared: bool) -> int:
        """How many more may hold the lock, beside those whose clocks say that they do."""
        permits = self.item.permits if self.item is not None else self.permits
        return room([hold for hold in self.holds if not hold.over and hold.clocks_allow()], permits, shared=shared)

    def _meets_others(self) -> None:
        """Those who ask now are not alone, if somebody holds the lock or stands in the queue."""
        item = self.item
        for asked in self.waiting.values():
            is_full = item is not None and room(item.holders, item.permits, shared=asked.shared) <= 0
            asked.met_somebody |= is_full or bool(self.rows)

    def _follows_tickets(self, before: LockItem | None, after: LockItem | None, gone: Collection[int]) -> None:
        void_up_to = after.void_up_to if after is not None else 0
        if after is not None and after.waiting > (before.waiting if before is not None else 0):
            self.tickets.add(after.issued)
        self.tickets = {ticket for ticket in self.tickets if ticket > void_up_to and ticket not in gone}
        if self.is_fair:
            count_of_tickets(after, self.tickets)

    def _asks_for_the_wait(self, asked: Waiting) -> None:
        """It is not longer than it may be, if nothing went wrong where it should have ended."""
        wait_ms, machine = asked.record_wait_ms, asked.machine
        if wait_ms is None or machine.frozen_at_ms >= asked.since_ms:
            return
        may_go_wrong_ms = 0 if asked.by_table_time else max(0, wait_ms - LEASE_MS)
        if max(self._struck_at_ms, machine.paused_until_ms) < asked.since_ms + may_go_wrong_ms:
            wait_not_too_long(self.time.now_ms - asked.since_ms, wait_ms, asked.clock_is_off_ms)

    def _takes_part(self, machine: Machine) -> bool:
        """Whether a machine waits for the lock, or holds it."""
        waits = any(asked.machine is machine for asked in self.waiting.values())
        return waits or any(hold.machine is machine and not hold.over for hold in self.holds)

    def _asks_for_exclusion(self) -> None:
        exclusion([hold for hold in self.holds if hold.is_believed()])

    def _serves(self, owner: str, ticket: int) -> None:
        self.served[owner] = max(self.served.get(owner, 0), ticket)

    def _is_served(self, row: Row) -> bool:
        return row.ticket <= self.served.get(row.owner, -1)

    def _waits(self, row: Row, holding: set[str], looked: int) -> bool:
        """Whether the owner of a row still waits with it, and also did when somebody looked."""
        return not self._is_served(row) and row.owner not in holding and self.left.get(row.owner, -1) < looked

    def items(self) -> list[Item]:
        """The items of the lock as they stand."""
        return [item for item in self.memory.items(TABLE) if item["pk"]["S"] == self.lock.entity]
