"""What the machines of the simulated world do: acquire, hold, renew, release, give up."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kit.invariants import LEASE_MS, MARGIN_MS, REQUESTS_MS, UNCERTAINTY_MS, Broken
from property.chance import Chance
from property.clocks import Machine
from property.faults import Faults
from property.operators import CLIENTS, EXTENDED_MS, Client, Script, Verb, contender, works
from property.parties import TABLE
from property.world import World

from ticketlock import Grant, Place, Position
from ticketlock.client._acquire import Wait, acquire, leave
from ticketlock.client._pace import Pace, PaceBounds
from ticketlock.client._waiters import WaitKey
from ticketlock.errors import LockLost, OutcomeUnknown, RecordWaitExceeded, RequestNotApplied, TableError
from ticketlock.locks._hand_over import await_wake_up
from ticketlock.locks._items import Session
from ticketlock.locks._outcomes import Claim
from ticketlock.locks._protocol import Contender
from ticketlock.locks._writes import mint_ticket
from ticketlock.wire._actions import Actions, Sleep
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import Steps
from ticketlock.wire._table_time import Moment
from ticketlock.workflow._pace import next_sleep

# One poll is enough: every holder has left by then.
ONCE = PaceBounds(3_000, 3_000)
FIVE_WEEKS_MS = 35 * 24 * 3_600_000
"""Until TTL may have deleted everything."""
TWO_DAYS_MS = 2 * 24 * 3_600_000
"""Until TTL may have deleted the rows."""
LATECOMER = "z"
_LAST_STEPS = 1_000
_LONGEST_BEHIND = 20
"""The longest sleep of a client behind others, as a multiple of that of the first in line."""
_POLL_MS = 5_000
"""How long a workflow waits between two polls."""
_VERBS = ("renew", "extend", "show", "work")
RECORD_WAITS_MS = (None, 0, 2_000, 30_000, 90_000)


class Closed(Exception):
    """The client is closed while it waits, or its task is cancelled."""


class _MayOutlastAClosing(Wait):
    """A wait that chooses whether it outlasts a closed lock when it first finds it closed."""

    chance: Chance
    _outlasts: bool | None = None

    @property
    def waits_if_closed(self) -> bool:
        if self._outlasts is None:
            self._outlasts = self.chance.pick(2) == 0
        return self._outlasts

    @waits_if_closed.setter
    def waits_if_closed(self, _: bool) -> None:
        pass


def client(rounds: int = 2) -> Script:
    """So many acquisitions, each shared or not, with or without a record wait, as a client's or as a workflow's."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        for owner in itertools.islice(machine.owners(), rounds):
            if world.chance.pick(16) == 15:
                yield Sleep([FIVE_WEEKS_MS, TWO_DAYS_MS][world.chance.pick(2)])
            shared = world.permits == 1 and world.chance.pick(4) == 3
            session = Session(machine.name, owner) if world.chance.pick(3) == 2 else None
            claim = world.claim(owner, shared=shared, session=session)
            if world.deployments is not None and world.chance.pick(4) == 3:
                # It has started, and asks much later.
                yield Sleep([3_000, 60_000][world.chance.pick(2)])
            wait_ms = RECORD_WAITS_MS[world.chance.pick(5)]
            if session is None:
                others_wait = world.chance.pick(4) == 3
                acquisition = at_once(world, machine, driver, claim, wait_ms, others_wait=others_wait)
            else:
                acquisition = step_by_step(world, machine, driver, claim, wait_ms)
            if world.in_steps and session is None and world.chance.pick(3) == 2:
                acquisition = _closed_in_a_sleep(acquisition, world.chance.pick(6))
            yield from hold(world, machine, driver, claim, wait_ms, acquisition, _verbs(world))

    return script


def _closed_in_a_sleep(acquisition: Actions[Grant], after: int) -> Actions[Grant]:
    """The same acquisition, which ends in the sleep after so many others."""
    action = next(acquisition)
    while True:
        if isinstance(action, Sleep):
            if after == 0:
                yield Sleep(action.ms / 2)
                acquisition.close()
                raise Closed
            after -= 1
        try:
            answer = yield action
        except Exception as error:
            go = partial(acquisition.throw, error)
        else:
            go = partial(acquisition.send, answer)
        try:
            action = go()
        except StopIteration as end:
            grant: Grant = end.value
            return grant


def at_once(
    world: World,
    machine: Machine,
    driver: Driver,
    claim: Claim,
    wait_ms: int | None,
    bounds: PaceBounds = CLIENTS,
    *,
    others_wait: bool = False,
) -> Actions[Grant]:
    """Acquire as the Python client does; if waiters are not woken, as one process with the other machines."""

    def remembers(seen: Position) -> None:
        if seen.is_next and seen.fencing_token is not None:
            world.next_polls.setdefault((seen.place.ticket, seen.fencing_token), machine.polled)

    line = WaitKey(TABLE, world.lock)
    wait = _MayOutlastAClosing(
        claim,
        wait_ms,
        Pace(bounds),
        jitter=lambda: 0.5,
        on_wait=remembers,
        expects_others=others_wait,
        will_be_woken=partial(world.lines.will_release, line),
    )
    wait.chance = world.chance
    wait.wake = partial(_wakes, machine, wait)
    machine.wait = wait

    def steps(now: Moment) -> Steps[Grant]:
        wait.contender = contender(world, claim, now)
        return acquire(wait.contender, wait)

    standing = None if world.wakes else world.lines.stands(line, wait)
    try:
        until_ms = None if wait_ms is None else machine.read().local_ms + wait_ms + driver.patience_ms
        grant = yield from driver.run(steps, until_ms=until_ms)
    finally:
        if standing is not None:
            world.lines.leaves(line, standing)
    if grant.next_may_enter:
        world.lines.tell_first_waiter(line, grant.fencing_token)
    return grant


def _has_left(world: World, machine: Machine) -> None:
    """Wake the next waiter of its process, as a client does."""
    if machine.wait is not None:
        world.lines.note_left(WaitKey(TABLE, world.lock), machine.wait)


def _tickets_of(machine: Machine) -> set[int]:
    """The tickets that its wait as a client knows of."""
    return machine.wait.tickets if machine.wait is not None else set()


def _wakes(machine: Machine, wait: Wait) -> None:
    if wait.sleeps and machine.pending is None:
        machine.woken()


def step_by_step(world: World, machine: Machine, driver: Driver, claim: Claim, wait_ms: int | None) -> Actions[Grant]:
    """Acquire as a workflow does, whose steps share only what they return."""
    found = yield from driver.run(lambda now: Contender(claim, now).take_ticket(wait_ms))
    until_ms = None if wait_ms is None else (yield from driver.now()).likely_ms + wait_ms
    for park in itertools.count():
        if isinstance(found, Grant):
            return found
        if world.wakes and claim.session is not None and wait_ms is None:
            yield from _parked(world, machine, driver, claim, found, park)
        else:
            yield Sleep(_POLL_MS)
        found = yield from _looked(world, driver, claim, found.place, until_ms)
    raise AssertionError("unreachable")


def hold(
    world: World,
    machine: Machine,
    driver: Driver,
    claim: Claim,
    wait_ms: int | None,
    acquisition: Actions[Grant],
    verbs: Iterable[Verb],
    bounds: PaceBounds = CLIENTS,
    hold_at_least_ms: int = 0,
) -> Actions[None]:
    """Acquire the lock, do these, and release it; or leave it held to the end of its least time."""
    checker = world.checker
    parked_ms = max(LEASE_MS, world.row_lease_ms) / 2 if world.wakes else _POLL_MS
    poll_ms = _LONGEST_BEHIND * bounds.longest_ms if claim.session is None else parked_ms
    checker.asks(
        machine,
        claim.owner,
        wait_ms,
        shared=claim.shared,
        by_table_time=claim.session is not None,
        poll_ms=poll_ms,
    )
    machine.wait = None
    try:
        grant = yield from acquisition
    except RecordWaitExceeded as error:
        checker.refused(machine, is_closed=error.is_closed)
        _has_left(world, machine)
        return
    except (TableError, Closed) as error:
        if not isinstance(error, Closed):
            checker.met(error)
        asked = checker.gave_up(machine)
        try:
            yield from driver.run(lambda now: leave(contender(world, claim, now), _tickets_of(machine)))
        except LockLost:
            return
        except TableError as failure:
            checker.met(failure)
            return
        checker.note_left(asked)
        _has_left(world, machine)
        return
    client = Client(world, machine, driver)
    lease = client.holdings.keep(client.lease(claim, grant, hold_at_least_ms=hold_at_least_ms), machine)
    if claim.owner == f"{machine.name}/2":
        # Another thread closes it, and waits for its blocks.
        client.holdings.close()
    yield from works(client, lease, checker.note_grant(machine, claim, grant, lease), verbs)


def holder(*, shared: bool) -> Script:
    """Acquires once, however long it takes, as a workflow if waiters are woken; renews once; releases."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        owner = f"{machine.name}/1"
        session = Session(machine.name, owner) if world.wakes else None
        claim = world.claim(owner, shared=shared, session=session)
        if session is None:
            acquisition = at_once(world, machine, driver, claim, None, ONCE)
        else:
            acquisition = step_by_step(world, machine, driver, claim, None)
        yield from hold(world, machine, driver, claim, None, acquisition, [(1, "renew")], ONCE)

    return script


def left_to_itself(world: World) -> None:
    """All machines have ended. Late copies arrive; the next machine must get the lock, and nothing may be left.

    Raises:
        Broken: it does not, or something is left.
    """
    checker = world.checker
    if not checker.reads_table:
        return
    if checker.is_fair and not checker.has_lost and not checker.kept:
        checker.nothing_is_left()
    while world.applying:
        world.applies_an_item(world.applying[0])
    world.in_steps = False
    while world.late:
        world.late_one_arrives(0)
    world.faults = Faults()
    if world.deployments is not None:
        # One write is enough if the number stays the same: a lower one may have no room beside expired holders.
        world.deployments.deploys(world.deployments.permits)
    world.add(LATECOMER, _latecomer, rate=1, wall_is_off_ms=0)
    last_step, grants = world.steps + _LAST_STEPS, checker.grants
    while not world.is_over:
        ready = world.ready()
        world.go_on(ready[0]) if ready else world.let_time_pass()
        if world.steps > last_step:
            raise Broken("liveness: all machines have left, and yet the next one does not come to an end")
    if checker.grants < grants + 3 or checker.last_owner != f"{LATECOMER}/{checker.grants - grants}":
        raise Broken("liveness: all machines have left, and yet the next one does not get the lock")
    checker.one_write_is_enough()
    checker.grants = grants


def _latecomer(world: World, machine: Machine, driver: Driver) -> Actions[None]:
    """Acquires at once, and again when every lease has ended, which corrects the count; then one write is enough."""
    claims = map(world.claim, machine.owners())
    first = next(claims)
    yield from hold(world, machine, driver, first, None, at_once(world, machine, driver, first, None, ONCE), [])
    yield Sleep(max(world.longest_lease_ms, world.row_lease_ms) + REQUESTS_MS)
    world.checker.nothing_is_left()
    yield Sleep(MARGIN_MS + 2 * UNCERTAINTY_MS)
    # Each sweeps so many expired rows; the one that finds no more than that corrects the count.
    for claim in itertools.islice(claims, 1 + len(world.checker.rows) // world.caps.swept):
        yield from hold(world, machine, driver, claim, None, at_once(world, machine, driver, claim, None, ONCE), [])
    world.checker.one_write_is_enough()
    last = next(claims)
    yield from hold(world, machine, driver, last, 0, _with_one_request(at_once(world, machine, driver, last, 0)), [])


def _with_one_request(acquisition: Actions[Grant]) -> Actions[Grant]:
    answer = yield next(acquisition)
    try:
        acquisition.send(answer)
    except StopIteration as end:
        grant: Grant = end.value
        return grant
    raise Broken("nothing left: the lock has no holder and no waiter, and yet one write was not enough")


def impatient(rounds: int = 4) -> Script:
    """Acquires repeatedly as a client does, never waiting for long."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        for owner in itertools.islice(machine.owners(), rounds):
            claim = world.claim(owner)
            wait_ms = [300, 1_000, 2_000][world.chance.pick(3)]
            acquisition = at_once(world, machine, driver, claim, wait_ms)
            least_ms = EXTENDED_MS if owner == f"{machine.name}/3" else 0
            yield from hold(
                world, machine, driver, claim, wait_ms, acquisition, [(1, "work")], hold_at_least_ms=least_ms
            )

    return script


def busy(rounds: int = 6) -> Script:
    """Acquires repeatedly as a client does, holds the lock for a moment, and often leaves early."""

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        for owner in itertools.islice(machine.owners(), rounds):
            shared = world.permits == 1 and world.chance.pick(6) == 5
            claim = world.claim(owner, shared=shared)
            wait_ms = [None, None, 100, 1_000][world.chance.pick(4)]
            acquisition = at_once(world, machine, driver, claim, wait_ms)
            if world.chance.pick(3) == 2:
                acquisition = _closed_in_a_sleep(acquisition, world.chance.pick(6))
            verbs = [([1, 5, 20, 100][world.chance.pick(4)], "work")]
            yield from hold(world, machine, driver, claim, wait_ms, acquisition, verbs)

    return script


def crashing(how: str) -> Script:
    """Crashes while it holds the lock (``reader``: shared), or waits for it (``parked``: far behind, as a workflow), or
    between ticket and row (``joiner``).
    """

    def script(world: World, machine: Machine, driver: Driver) -> Actions[None]:
        session = Session(machine.name, "1") if how == "parked" else None
        claim = world.claim(f"{machine.name}/1", shared=how == "reader", session=session)
        if how in ("holder", "reader"):
            yield from driver.run(lambda now: Contender(claim, now).take_ticket(0))
        elif session is not None:
            keeping = replace(claim, lease_ms=world.row_lease_ms)
            with suppress(TableError):
                found = yield from driver.run(lambda now: Contender(claim, now).take_ticket(None))
                if isinstance(found, Position):
                    yield from driver.run(
                        lambda now: await_wake_up(
                            Contender(keeping, now), found.place, session, "gone", 0, lambda _: True
                        )
                    )
        elif how == "waiter":
            yield from driver.run(lambda now: Contender(claim, now).join())
        else:
            yield from driver.run(lambda now: Contender(claim, now).send(mint_ticket(claim, now)))

    return script


def _is_far_behind(world: World, seen: Position) -> bool:
    """Whether a waiter parks as one that is far behind."""
    if world.row_lease_ms and world.misjudges and seen.turns > 0:
        return world.chance.pick(2) == 1
    sleep = next_sleep(seen, lease_ms=LEASE_MS, row_ms=world.row_lease_ms, poll_ms=_POLL_MS, rest_ms=None)
    return sleep.status == "parkedBehind"


def _parked(world: World, machine: Machine, driver: Driver, claim: Claim, found: Position, park: int) -> Actions[None]:
    """Park as a callback task, until it is woken, or half a lease is over; far behind, half a lease of its row."""
    session, task_token = claim.session, f"{claim.owner} parks {park}"
    assert session is not None
    is_far_behind = _is_far_behind(world, found)
    if is_far_behind:
        claim = replace(claim, lease_ms=world.row_lease_ms)
    with world.task(machine, task_token):
        ends_at_ms = world.time.now_ms + claim.lease_ms / 2
        # If the function fails, its task continues until its time-out.
        with suppress(OutcomeUnknown, RequestNotApplied):
            stays = yield from driver.run(
                lambda now: await_wake_up(
                    contender(world, claim, now),
                    found.place,
                    session,
                    task_token,
                    park,
                    lambda seen: not is_far_behind or _is_far_behind(world, seen),
                )
            )
            if stays is not None:
                world.checker.parks[claim.owner] = task_token
        if task_token not in machine.answered_tasks:
            machine.waits_for_task = task_token
            yield Sleep(ends_at_ms - world.time.now_ms)
            machine.waits_for_task = None


def _verbs(world: World) -> Iterator[Verb]:
    """How long it works between two renewals, and when it shows other data."""
    for _ in range(world.chance.pick(5)):
        yield [1, 50, 3_000, LEASE_MS // 2, LEASE_MS][world.chance.pick(5)], _VERBS[world.chance.pick(len(_VERBS))]


def _looked(
    world: World, driver: Driver, claim: Claim, place: Place, until_ms: int | None
) -> Actions[Grant | Position]:
    return (yield from driver.run(lambda now: contender(world, claim, now).check_turn(place, until_ms)))
