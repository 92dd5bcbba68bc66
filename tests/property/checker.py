"""The invariant checker of one lock: it sees each item, each grant, each holder's view and each waiter."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from kit.invariants import (
    LEASE_MS,
    LONGEST_POLL_MS,
    UNCERTAINTY_MS,
    Broken,
    Standing,
    count_of_tickets,
    counts,
    exclusion,
    fencing,
    idle,
    is_of,
    leases_grow,
    limit,
    limit_as_set,
    liveness,
    most_idle_ms,
    no_eviction,
    no_holder_evicted,
    no_overtaking,
    none_declared_void,
    nothing_left,
    number_in_force,
    own_end,
    own_token,
    room,
    told_of_the_grant,
    told_that_it_has_left,
    wait_not_too_long,
    wait_not_too_short,
    was_closed,
)
from property.caps import REAL, Caps
from property.clocks import NO_POLL, Machine, Poll, TrueTime
from property.parties import Ending, Held, Hold, Seen, Waiting

if TYPE_CHECKING:
    from property.explore import Deployments

from ticketlock import LockName
from ticketlock.errors import LockLost
from ticketlock.locks._items import Holder, LockItem, Row
from ticketlock.locks._outcomes import Claim, Grant
from ticketlock.testing import MemoryDynamoDB


@dataclass
class Checker:
    """Checks one lock from outside, with the true time; a violation names the promise that was broken.

    Attributes:
        permits: the limit of the lock's users.
        limits: the limit that was set last, and the one that is being set.
        grants: how many it has seen.
        last_owner: the owner of the last one.
        highest_token: the greatest fencing token granted so far.
        granted: the limit at each grant, by its token.
        tokens: those that each owner was granted.
        served: the ticket up to which each owner no longer waits; a late copy may put such a row into the queue again.
        out: the owners whose callers were told that they have left.
        left: the step at which each owner ceased to hold the lock: until then its row was not waiting.
        slips: the tickets that were overtaken by a grant in progress.
        tickets: those that were taken, and whose rows have not gone.
        longest_idle_ms: how long at most the lock was unused although there was a waiter and no fault was injected.
        longest_asleep_ms: how long at most it was free in a world without faults, while every machine slept.
        caps: those of the protocol.
        ends: how each grant ended, by its token.
        copies: the steps at which a late copy of a request arrived.
        may_free: the machines that may end another owner's grant, by its token.
        allied: the machines of each owner that has several.
        kept: the tokens whose holders have left the lock held for its least time.
        deployments: whose numbers of permits the users ask with; None if all ask for ``permits``.
        row_lease_ms: the longest lease of a queue row.
        parks, tasks: the last callback task of each owner that stayed parked, and those that are open.
        reads_table: whether the items have our format.
        is_fair: whether no faults are injected in this world: then no machine meets an error or leaves anything.
    """

    time: TrueTime
    memory: MemoryDynamoDB
    lock: LockName
    permits: int
    deployments: "Deployments | None" = None
    row_lease_ms: int = LEASE_MS
    parks: dict[str, str] = field(default_factory=dict)
    tasks: Collection[str] = ()
    reads_table: bool = True
    is_fair: bool = False
    has_lost: bool = False
    grants: int = 0
    last_owner: str | None = None
    highest_token: int = 0
    limits: set[int] = field(default_factory=set)
    longest_idle_ms: float = 0
    longest_asleep_ms: float = 0
    caps: Caps = REAL
    holds: list[Hold] = field(default_factory=list)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    ends: dict[int, Ending] = field(default_factory=dict)
    copies: set[int] = field(default_factory=set)
    may_free: dict[int, set[str]] = field(default_factory=dict)
    allied: dict[str, set[str]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    granted: dict[int, int] = field(default_factory=dict)
    tokens: dict[str, set[int]] = field(default_factory=dict)
    served: dict[str, float] = field(default_factory=dict)
    out: set[str] = field(default_factory=set)
    left: dict[str, int] = field(default_factory=dict)
    slips: set[int] = field(default_factory=set)
    tickets: set[int] = field(default_factory=set)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = {self.permits}
        self.seen = Seen(self.time, self.memory, self.lock)
        self._used_at_ms, self._struck_at_ms, self._asleep_ms = self.time.now_ms, -inf, 0.0
        self._last_ticket_ms = -inf
        self._closed_at_ms = -inf

    @property
    def item(self) -> LockItem | None:
        """The lock item."""
        return self.seen.item

    @property
    def rows(self) -> Mapping[int, Standing]:
        """The queue, by ticket."""
        return self.seen.rows

    @property
    def _is_closed(self) -> bool:
        return self.item is not None and self.item.permits == 0

    # What the world reports.

    def struck(self, victim: Machine | None = None) -> None:
        """A fault was injected.

        Args:
            victim: the machine. If it waits or holds, delays count from now on; other machines delay no waiter.
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
        poll_ms: float = LONGEST_POLL_MS,
    ) -> None:
        """An acquisition begins."""
        machine.polled = NO_POLL
        self.waiting[machine.name] = Waiting(
            owner, self.time.now_ms, record_wait_ms, machine, shared, by_table_time, poll_ms, machine.unclear
        )
        self._meets_others()

    def refused(self, machine: Machine, *, is_closed: bool = False) -> None:
        """An acquisition has ended without the lock: its record wait is over, or an operator has closed the lock."""
        asked = self.waiting[machine.name]
        if is_closed and self.reads_table:
            was_closed(self.time.now_ms if self._is_closed else self._closed_at_ms, asked.since_ms)
        else:
            wait_not_too_short(self.time.now_ms - asked.since_ms, asked.record_wait_ms, asked.clock_is_off_ms)
        self._asks_for_the_wait(asked)
        if self.is_fair and asked.record_wait_ms == 0 and not asked.met_others:
            raise Broken(f"liveness: the lock had no holder and no waiter, and yet {asked.owner} was refused")
        self.gave_up(machine)
        self.note_left(asked)

    def gave_up(self, machine: Machine) -> Waiting:
        """An acquisition has ended without the lock; it is yet to leave."""
        asked = self.waiting.pop(machine.name)
        self.served[asked.owner] = inf
        return asked

    def note_left(self, asked: Waiting) -> None:
        """A caller is told that it has left. A copy of a request of its own may put it back."""
        if self.reads_table and asked.is_clear and asked.owner not in self.allied:
            self.out.add(asked.owner)
            told_that_it_has_left(asked.owner, self.item)

    def note_grant(self, machine: Machine, claim: Claim, grant: Grant, lease: Held) -> Hold:
        """A holder learns of its grant."""
        own_token(claim.owner, grant.fencing_token, self.tokens.get(claim.owner, ()))
        asked = self.waiting.get(machine.name)
        if self.reads_table and asked is not None and asked.is_clear and claim.owner not in self.allied:
            told_of_the_grant(claim.owner, [each.row for each in self.rows.values()])
        return self.believes(machine, claim, grant.fencing_token, lease)

    def believes(self, machine: Machine, claim: Claim, fencing_token: int, lease: Held) -> Hold:
        """A holder believes what its lease says."""
        asked = self.waiting.pop(machine.name, None)
        self.served[claim.owner] = inf
        if asked is not None:
            self._asks_for_the_wait(asked)
        permits = self.granted.get(fencing_token, self.permits)
        since_ms = asked.since_ms if asked is not None else self.time.now_ms
        hold = Hold(claim.owner, claim.shared, fencing_token, permits, machine, since_ms, lease)
        self.holds = [each for each in self.holds if not each.is_over]
        self.holds.append(hold)
        self._asks_for_exclusion()
        return hold

    def hears_of_its_renewal(self) -> None:
        """A holder learns of its renewal."""
        self._asks_for_exclusion()

    def hears_of_a_loss(self, hold: Hold) -> None:
        """A call has reported to a holder that its lock is lost: its lease must report it, too."""
        if not hold.is_over and hold.lease.is_held():
            raise Broken(f"outcomes: {hold.owner} heard that {hold.fencing_token} is lost, and its lease says held")

    def ended_well(self, hold: Hold, *, is_sure: bool, held_until_ms: float = 0) -> None:
        """The release of a holder reported only that its lock is free, or left held as asked, and its work is done.

        Args:
            is_sure: whether each of its requests was answered.
            held_until_ms: until when the lock is to be held at least, in table time.
        """
        end = self.ends.get(hold.fencing_token)
        if held_until_ms and self._is_kept(hold, held_until_ms):
            return
        if end is None:
            raise Broken(f"outcomes: {hold.owner} heard that {hold.fencing_token} is free, and it is still held")
        # If its own request got no answer, it takes another process's release of this owner for its own. Likewise if a
        # grant came after its work: no other holder has worked beside it.
        harmless = self._may_release(hold.owner, end.by) or (end.is_taken and hold.over_ms <= end.at_ms)
        is_its_own = end.by == hold.machine.name or (harmless and not is_sure)
        own_end(hold.owner, hold.fencing_token, is_its_own)

    def _is_kept(self, hold: Hold, until_ms: float) -> bool:
        """Whether the lock is held for its least time, or was."""
        end = self.ends.get(hold.fencing_token)
        if end is not None:
            if end.by == hold.machine.name and not end.is_taken and end.at_ms < until_ms - UNCERTAINTY_MS:
                raise Broken(f"held at least: {hold.owner} has freed {hold.fencing_token} before {until_ms}")
            # Whoever may end it may do so before its holder hears that it was left.
            return end.until_ms >= until_ms
        holders = self.item.holders if self.item is not None else ()
        if any(each.fencing_token == hold.fencing_token and each.lease_until_ms >= until_ms for each in holders):
            self.kept.add(hold.fencing_token)
        return hold.fencing_token in self.kept

    def freed(self, machine: Machine, fencing_token: int, *, is_reported: bool, is_sure: bool) -> None:
        """An operator, or another process of an owner, learns whether it has freed a grant.

        Args:
            is_sure: whether each of its requests was answered.
        """
        end = self.ends.get(fencing_token)
        did = end is not None and end.by == machine.name
        # Each of its requests was answered, and a late copy has freed the grant: the sender cannot know.
        cannot_know = is_sure and end is not None and end.step in self.copies
        if did and not is_reported and not cannot_know:
            raise Broken(f"outcomes: {machine.name} has freed {fencing_token}, and heard that it was not held")
        if is_reported and is_sure and not did:
            raise Broken(f"outcomes: {machine.name} heard that it has freed {fencing_token}, and has not")

    def met(self, error: Exception, hold: Hold | None = None) -> None:
        """An acquisition, or a hold, has ended with an error."""
        gave_up_early = self.caps.tries < REAL.tries and not isinstance(error, LockLost)
        # Writes of others conflicted with it in all of its tries.
        is_excused = gave_up_early or "TransactionConflict" in str(error)
        is_holding = hold is None or (hold.is_believed() and not self._is_freed(hold))
        if self.is_fair and is_holding and not is_excused:
            raise Broken(f"liveness: no fault was injected, and yet: {error!r}")
        if is_excused:
            # What it leaves is as a fault would leave it: a row, or a grant until the end of its lease.
            self.is_fair = False
            self.struck()
        # Its hold may be over for the holder while the table still has it.
        self.has_lost = True

    def note_end_of(self, machine: Machine) -> None:
        """A machine has crashed: it neither holds nor waits."""
        for hold in self.holds:
            if hold.machine is machine:
                hold.ends()
        self.waiting.pop(machine.name, None)

    # What it sees in the table.

    def sees_time(self) -> None:
        """A step is over: has the first waiter in line been passed over although it could hold the lock?"""
        first = self._first_in_line()
        if first is None or self._room(shared=first.shared) <= 0:
            self._used_at_ms = max(self._used_at_ms, self.time.now_ms)
        else:
            # A machine that is paused cannot take the lock, nor one that meets the transactions of many others.
            machine = first.machine
            self._used_at_ms = max(self._used_at_ms, machine.paused_until_ms, machine.conflict_at_ms)
            idle_ms = self.time.now_ms - self._used_at_ms
            self.longest_idle_ms = max(self.longest_idle_ms, idle_ms)
            # The pause of a holder, which may learn at its end that its lease is over, is a fault until then.
            struck_at_ms = max([self._struck_at_ms, *(hold.machine.paused_until_ms for hold in self.holds)])
            liveness(idle_ms, self.time.now_ms - struck_at_ms, self.row_lease_ms)

    def sees_sleep(self, ms: float, *, is_settled: bool) -> None:
        """All machines have slept for so long: was the lock free meanwhile, while there was a waiter?

        Args:
            ms: for how long.
            is_settled: whether no transaction is being applied: until then a poll may see the row of one that leaves.
        """
        # Whatever a fault has left is over by then; a pause is a fault until its end.
        ends_at_ms = [self._struck_at_ms, *(asked.machine.paused_until_ms for asked in self.waiting.values())]
        is_quiet = self.is_fair or self.time.now_ms - max(ends_at_ms) > most_idle_ms(self.row_lease_ms)
        first = self._first_in_line() if is_quiet and self.reads_table else None
        if first is None or not is_settled or not self._is_free_for(first) or self._stands_behind_a_row_left(first):
            self._asleep_ms = 0
            return
        if first.machine.backs_off:
            return
        self._asleep_ms += ms
        self.longest_asleep_ms = max(self.longest_asleep_ms, self._asleep_ms)
        idle(self._asleep_ms, first.poll_ms)

    def sees_mint(self, at_ms: int) -> None:
        """A ticket was minted by a request of this time; the lock item may keep an earlier one of the same second."""
        self._last_ticket_ms = max(self._last_ticket_ms, at_ms)

    def sees_write(self, step: int, sender: Machine, poll: Poll) -> None:
        """A request was applied, or refused.

        Args:
            poll: the read of the lock that the request depends on.
        """
        if not self.reads_table:
            return
        self._asks_for_exclusion()
        before, rows, now_ms = self.item, self.rows, self.time.now_ms
        # Without an earlier read it depends on the items at the write itself.
        polled = poll.step or step
        self.sees_table(step, sender.name)
        holding = {holder.owner for holder in before.holders} if before is not None else set()
        standing = [each for each in rows.values() if self._waits(each.row, holding, polled)]
        granted = [each for each in self.item.holders if each.owner not in holding] if self.item is not None else []
        for holder in granted:
            assert self.item is not None
            self._serves(holder.owner, self.item.issued)
        gone = [each.row for each in standing if each.row.ticket not in self.rows and not self._is_served(each.row)]
        if before is not None and self.item is not None and self.item.waiting < before.waiting:
            # They have withdrawn, and their next poll finds that.
            for row in gone:
                self._serves(row.owner, row.ticket)
        gone = [row for row in gone if not self._is_served(row)]
        self._meets_others()
        was, now = [each.row for each in standing], {ticket: each.row for ticket, each in self.rows.items()}
        counts(self.item, self.seen.raw, [row for row in now.values() if not self._is_served(row)])
        leases_grow(before, self.item, was, now, may_be_shortened=self._may_be_shortened(was))
        no_eviction(self.item, gone, now_ms, by=sender.name)
        meant = {token for token, end in self.ends.items() if end.is_freed}
        no_holder_evicted(before, self.item, now_ms, by=sender.name, meant=meant)
        self._last_ticket_ms = max(self._last_ticket_ms, before.ticket_at_ms) if before is not None else -inf
        last_ticket_ms = self._last_ticket_ms
        none_declared_void(before, self.item, standing, polled, now_ms, last_ticket_ms=last_ticket_ms, by=sender.name)
        self._follows_tickets(before, self.item, rows.keys() - self.rows.keys())
        if self.is_fair and gone:
            raise Broken(f"no eviction: no fault was injected, and yet {sender.name} gave its position up")
        fencing(before, self.item, self.highest_token)
        if self.item is not None:
            limit(before, self.item)
            if self.deployments is None or self.item.permits_are_set:
                limit_as_set(self.item, self.limits)
            if self.deployments is not None:
                number_in_force(
                    before,
                    self.item,
                    now.values(),
                    numbers=self.deployments.numbers,
                    started=self.deployments.started,
                )
        for owner in self.out.intersection(holder.owner for holder in granted):
            told_that_it_has_left(owner, self.item)
        for holder in granted:
            self._sees_grant(step, holder, before, rows, standing, poll)
        here = {holder.owner for holder in self.item.holders} if self.item is not None else set()
        self.left.update(dict.fromkeys(holding - here, step))

    def _sees_grant(
        self,
        step: int,
        holder: Holder,
        before: LockItem | None,
        rows: Mapping[int, Standing],
        standing: Collection[Standing],
        poll: Poll,
    ) -> None:
        permits = self.item.permits if self.item is not None else self.permits
        self.grants += 1
        self.last_owner = holder.owner
        self.highest_token = holder.fencing_token
        self.tokens.setdefault(holder.owner, set()).add(holder.fencing_token)
        self.granted[holder.fencing_token] = permits
        self._used_at_ms, self._asleep_ms = max(self._used_at_ms, self.time.now_ms), 0
        self.log.append(f"{step}: {holder.owner} is granted {holder.fencing_token}")
        gone = (each.row for ticket, each in rows.items() if ticket not in self.rows)
        no_overtaking(
            next((row for row in gone if row.owner == holder.owner), None),
            before,
            standing,
            poll.step or step,
            self.time.now_ms,
            shared=holder.shared,
            permits=permits,
            owner=holder.owner,
            slips=self.slips if poll.is_snapshot else None,
        )

    def _may_be_shortened(self, rows: Iterable[Row]) -> Collection[str]:
        """The owners of these rows that do not sleep in a task."""
        if self.row_lease_ms == LEASE_MS:
            return ()
        return [row.owner for row in rows if self.parks.get(row.owner) not in self.tasks]

    def nothing_is_left(self) -> None:
        """All machines have ended; every lease has ended, too, or every machine has released what it held."""
        nothing_left(self.seen.items(), self.time.now_ms)

    def one_write_is_enough(self) -> None:
        """By the lock item, no waiter is counted, and there is room, possibly beside expired holders."""
        if self.item is None or self.item.waiting or self.item.held >= self.item.permits:
            raise Broken(f"nothing left: the counts in {self.item}")

    def sees_table(self, step: int, by: str = "") -> None:
        """Read the items after a machine has changed them."""
        if self._is_closed:
            self._closed_at_ms = self.time.now_ms
        self.seen.refreshes(step)
        for holder in self.seen.ended:
            self._ends(holder, step, by, is_taken=self.seen.came > 0)

    def _ends(self, holder: Holder, step: int, by: str, *, is_taken: bool) -> None:
        token, is_own = holder.fencing_token, is_of(holder.owner, by)
        may = by in self.may_free.get(token, ()) or self._may_release(holder.owner, by)
        # Its own release may grant the lock to the next in line, too.
        is_taken = is_taken and (self.item is None or self.item.freed_by(token) is None)
        self.ends[token] = Ending(step, self.time.now_ms, by, holder.lease_until_ms, is_taken, may and not is_taken)
        if not is_own:
            self.log.append(f"{step}: {by or 'time to live'} {'frees' if may else 'removes'} {token} of {holder.owner}")

    def _may_release(self, owner: str, by: str) -> bool:
        """Whether a machine belongs to an owner."""
        return is_of(owner, by) or by in self.allied.get(owner, ())

    def _is_freed(self, hold: Hold) -> bool:
        """Whether another machine that may do so has freed it."""
        end = self.ends.get(hold.fencing_token)
        return end is not None and end.is_freed and end.by != hold.machine.name

    def _first_in_line(self) -> Waiting | None:
        """The first waiter that is not paused: in the queue, or, if none is, one that is about to join."""
        now_ms = self.time.now_ms
        awake = {asked.owner: asked for asked in self.waiting.values() if asked.machine.paused_until_ms <= now_ms}
        for ticket in sorted(self.rows):
            row = self.rows[ticket].row
            if row.owner in awake and row.lease_until_ms >= now_ms:
                return awake[row.owner]
        return next(iter(awake.values()), None)

    def _room(self, *, shared: bool) -> int:
        """How many more may hold the lock, beside holders whose clocks say that they hold it."""
        permits = self.item.permits if self.item is not None else self.permits
        holding = [
            hold for hold in self.holds if not hold.is_over and hold.lease.is_held() and not self._is_freed(hold)
        ]
        # Whoever was left held for its least time, or is suspended, though its execution has ended without a trace,
        # keeps the lock until its lease ends.
        known = {hold.fencing_token for hold in holding}
        left = [
            each
            for each in (self.item.holders if self.item is not None else ())
            if (each.suspended or each.fencing_token in self.kept)
            and each.fencing_token not in known
            and each.lease_until_ms >= self.time.now_ms
        ]
        return room([*holding, *left], permits, shared=shared)

    def _is_free_for(self, asked: Waiting) -> bool:
        """Whether the lock has room for it, by the lock item."""
        return self.item is None or room(self.item.holders, self.item.permits, shared=asked.shared) > 0

    def _stands_behind_a_row_left(self, first: Waiting) -> bool:
        """Whether a row stands before it whose owner could not leave, since it met the transactions of others."""
        for ticket in sorted(self.rows):
            row = self.rows[ticket].row
            if row.owner == first.owner:
                return False
            could_not_leave = self.served.get(row.owner) == inf and row.owner not in self.out
            if could_not_leave and row.lease_until_ms >= self.time.now_ms:
                return True
        return False

    def _meets_others(self) -> None:
        """Note which acquisitions have met a holder or a waiter."""
        item = self.item
        for asked in self.waiting.values():
            is_full = item is not None and room(item.holders, self._fewest_permits(item), shared=asked.shared) <= 0
            asked.met_others |= is_full or bool(self.rows)

    def _fewest_permits(self, item: LockItem) -> int:
        """The permits by which a newcomer is judged: its own deployment may have a lower number than the lock."""
        return item.permits if self.deployments is None else min(1, item.permits)

    def _follows_tickets(self, before: LockItem | None, after: LockItem | None, gone: Collection[int]) -> None:
        void_up_to = after.void_up_to if after is not None else 0
        if after is not None and after.waiting > (before.waiting if before is not None else 0):
            self.tickets.add(after.issued)
        self.tickets = {ticket for ticket in self.tickets if ticket > void_up_to and ticket not in gone}
        if self.is_fair:
            count_of_tickets(after, self.tickets)

    def _asks_for_the_wait(self, asked: Waiting) -> None:
        """Check that the wait was not too long, if no fault was injected when it should have ended."""
        wait_ms, machine = asked.record_wait_ms, asked.machine
        if wait_ms is None or machine.frozen_at_ms >= asked.since_ms:
            return
        may_go_wrong_ms = 0 if asked.by_table_time else max(0, wait_ms - LEASE_MS)
        if max(self._struck_at_ms, machine.paused_until_ms, machine.conflict_at_ms) < asked.since_ms + may_go_wrong_ms:
            wait_not_too_long(self.time.now_ms - asked.since_ms, wait_ms, asked.clock_is_off_ms)

    def _takes_part(self, machine: Machine) -> bool:
        """Whether a machine waits for the lock, or holds it."""
        waits = any(asked.machine is machine for asked in self.waiting.values())
        return waits or any(hold.machine is machine and not hold.is_over for hold in self.holds)

    def _asks_for_exclusion(self) -> None:
        exclusion([hold for hold in self.holds if hold.is_believed() and not self._is_freed(hold)])

    def _serves(self, owner: str, ticket: int) -> None:
        self.served[owner] = max(self.served.get(owner, 0), ticket)

    def _is_served(self, row: Row) -> bool:
        return row.ticket <= self.served.get(row.owner, -1)

    def _waits(self, row: Row, holding: set[str], polled: int) -> bool:
        """Whether the owner of a row is still waiting with it, and was when the request's read began."""
        return not self._is_served(row) and row.owner not in holding and self.left.get(row.owner, -1) < polled
