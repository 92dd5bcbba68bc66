"""Durable executions in the simulated world: they wait parked, hold the lock over suspensions, and are invoked again.

An invocation may end without a suspension, the next may begin late, and an earlier one may still send requests. An
execution may end while it is suspended; then a clean-up frees its lock.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

from kit.invariants import LEASE_MS, Broken
from property.clocks import Machine
from property.operators import Script, contender
from property.scripts import RECORD_WAITS_MS, step_by_step
from property.world import World

from ticketlock import Grant
from ticketlock.errors import LockLost, RecordWaitExceeded, TableError
from ticketlock.locks._items import Session
from ticketlock.locks._outcomes import Claim, Invocation, Releasing
from ticketlock.locks._protocol import Contender
from ticketlock.locks._suspended import note_suspension
from ticketlock.wire._actions import Actions, Sleep, T
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import Steps
from ticketlock.wire._table_time import Moment, Reading
from ticketlock.workflow._clean_up import CleanedUp
from ticketlock.workflow._durable import clean_up_durable

_LASTS_MS = 900_000
"""How long the service lets an invocation run at most."""
MARGIN_MS = 2 * LEASE_MS
"""How late an execution may go on without losing its lock."""
_WAITS_MS = (0, 3_000, LEASE_MS, 5 * LEASE_MS, 20 * LEASE_MS)
_LATE_MS = (0, 0, 3_000, MARGIN_MS // 2)
_TOO_LATE_MS = 3 * MARGIN_MS
LONGEST_MS = _WAITS_MS[-1] + MARGIN_MS
"""The longest lease."""


class Invoked:
    """The view of an execution: what its present invocation has confirmed, or how long its suspension may last."""

    def __init__(self, machine: Machine, grant: Grant) -> None:
        self._machine = machine
        self.takes(grant)

    def takes(self, grant: Grant) -> None:
        """A grant, or a renewal, was confirmed."""
        self._until = Reading(grant.deadline_ms, grant.deadline_wall_ms)

    def is_suspended(self, local_ms: int) -> None:
        """Nothing of it runs; it may go on until this moment of the local clock."""
        reading = self._machine.read()
        self._until = Reading(local_ms, reading.wall_ms + local_ms - reading.local_ms)

    def is_unsure(self) -> None:
        """It relies on nothing: the lock is lost, or an invocation has begun that has confirmed nothing yet, and whose
        first request makes the lease short.
        """
        self._until = Reading(0, 0)

    def is_held(self) -> bool:
        """Whether it may rely on the lock."""
        reading = self._machine.read()
        return reading.local_ms < self._until.local_ms and reading.wall_ms < self._until.wall_ms


class Execution:
    """One execution that holds the lock, in one invocation after the other."""

    def __init__(self, world: World, machine: Machine, driver: Driver, claim: Claim, session: Session) -> None:
        self._world, self._machine, self._driver = world, machine, driver
        self._session, self._ends_ms = session, 0
        self._claim = claim
        self._numbers = itertools.count(1)
        self.is_invoked()

    def is_invoked(self) -> None:
        """The service begins an invocation, later than all before it."""
        self._ends_ms = max(self._ends_ms + 1, int(self._world.time.now_ms) + _LASTS_MS)
        invocation = Invocation(f"{self._claim.owner} {next(self._numbers)}", self._ends_ms)
        self._claim = replace(self._claim, invocation=invocation)

    def goes(self, wait_ms: int | None) -> Actions[None]:
        """Wait for the lock, hold it, free it."""
        world, machine, checker, claim = self._world, self._machine, self._world.checker, self._claim
        checker.asks(machine, claim.owner, wait_ms, shared=claim.shared, by_table_time=True, poll_ms=LEASE_MS / 2)
        machine.wait = None
        try:
            grant = yield from step_by_step(world, machine, self._driver, claim, wait_ms)
        except RecordWaitExceeded as error:
            checker.refused(machine, is_closed=error.is_closed)
            return
        except TableError as error:
            checker.met(error)
            checker.gave_up(machine)
            return
        lease = Invoked(machine, grant)
        held = checker.note_grant(machine, claim, grant, lease)
        try:
            for _ in range(world.chance.pick(4)):
                yield Sleep([1, 3_000, LEASE_MS // 2][world.chance.pick(3)])
                if world.chance.pick(2) == 0:
                    grant = yield from self._run(lambda me: me.renew(held.fencing_token))
                    lease.takes(grant)
                    checker.hears_of_its_renewal()
                if (yield from self._is_away(lease, held.fencing_token)) and world.chance.pick(6) == 5:
                    lease.is_unsure()
                    held.ends()
                    yield from self._is_cleaned_up(held.fencing_token)
                    return
                earlier = self._claim
                self.is_invoked()
                lease.is_unsure()
                grant = yield from self._run(lambda me: me.resume(held.fencing_token))
                lease.takes(grant)
                checker.hears_of_its_renewal()
                if world.chance.pick(3) == 2:
                    yield from self._earlier_one_goes_on(earlier, held.fencing_token)
        except (LockLost, TableError) as error:
            if isinstance(error, LockLost):
                lease.is_unsure()
                checker.hears_of_a_loss(held)
            checker.met(error, held)
            held.ends()
            return
        held.ends()
        unheard = machine.unheard
        try:
            yield from self._run(lambda me: me.release(grant, releasing=Releasing(tried_before=False)))
            checker.ended_well(held, is_sure=machine.unheard == unheard)
        except (LockLost, TableError) as error:
            checker.met(error, held)

    def _is_cleaned_up(self, fencing_token: int) -> Actions[None]:
        """The execution has ended while it was suspended."""
        world, machine, claim = self._world, self._machine, replace(self._claim, invocation=None)
        unheard, ended_ms = machine.unheard, int(world.time.now_ms)

        def clean(now: Moment) -> Steps[CleanedUp]:
            return clean_up_durable(contender(world, claim, now), self._session, ended_ms)

        try:
            done = yield from self._driver.run(clean)
        except TableError as error:
            world.checker.met(error)
            return
        is_sure = machine.unheard == unheard
        world.checker.freed(machine, fencing_token, is_reported=done.freed, is_sure=is_sure)

    def _is_away(self, lease: Invoked, fencing_token: int) -> Actions[bool]:
        """Between two invocations: suspended, or after one that has died; whether it is suspended."""
        chance = self._world.chance
        if chance.pick(4) == 3:
            yield Sleep([1, 3_000, LEASE_MS // 2][chance.pick(3)])
            return False
        wait_ms = _WAITS_MS[chance.pick(len(_WAITS_MS))]

        def keep(me: Contender) -> Steps[int]:
            until_ms = me.now.latest_ms + max(LEASE_MS, wait_ms + MARGIN_MS)
            yield from note_suspension(me, self._session, until_ms)
            yield from me.suspend(fencing_token, until_ms)
            return me.now.local_of(until_ms)

        is_suspended = True
        try:
            lease.is_suspended((yield from self._run(keep)))
        except TableError as error:
            # The lease decides.
            self._world.checker.met(error)
            is_suspended = False
        is_too_late = not self._world.checker.is_fair and chance.pick(8) == 7
        yield Sleep(wait_ms + (_TOO_LATE_MS if is_too_late else _LATE_MS[chance.pick(len(_LATE_MS))]))
        return is_suspended

    def _earlier_one_goes_on(self, earlier: Claim, fencing_token: int) -> Actions[None]:
        """The service has given an invocation up that still runs: it may neither renew nor free the lock."""
        verbs: list[Callable[[Contender], Steps[object]]] = [
            lambda me: me.renew(fencing_token),
            lambda me: me.resume(fencing_token),
            lambda me: me.suspend(fencing_token, me.now.latest_ms + 50 * LEASE_MS),
        ]
        verb = verbs[self._world.chance.pick(len(verbs))]
        try:
            yield from self._driver.run(lambda now: verb(contender(self._world, earlier, now)))
        except (LockLost, TableError):
            return
        raise Broken(f"invocations: an earlier one of {earlier.owner} went on with {fencing_token}")

    def _run(self, steps: Callable[[Contender], Steps[T]]) -> Actions[T]:
        claim = self._claim
        return self._driver.run(lambda now: steps(contender(self._world, claim, now)))


def execution(rounds: int = 2) -> Script:
    """So many executions, one after the other."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        for owner in itertools.islice(machine.owners(), rounds):
            session = Session(machine.name, owner)
            claim = world.claim(owner, session=session)
            wait_ms = RECORD_WAITS_MS[world.chance.pick(5)]
            yield from Execution(world, machine, driver, claim, session).goes(wait_ms)

    return script
