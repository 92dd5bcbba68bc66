"""Each request of each kind of work is lost, or its process is killed or interrupted there: all is applied, or nothing.

``SCENARIOS`` is what a process does, ``Scene.holds`` is what must hold afterwards.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import Any, ClassVar

import pytest
from kit.engines import engine_names_but_moto, first_on
from kit.units import Interrupt, Key, Killed, Lost, Party, UnitsKind, UnitsWorld, some_account, some_name
from units.conftest import COPIES_S, LEASE_S, MARGIN_S

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TicketLockError, UnitFinished, UnitForgotten
from ticketlock.units import READ_LOCK, Outcome, Unit

pytestmark = pytest.mark.shows("saved units")

OLD: list[Any] = [100, 50, 20, None]
NEW: list[Any] = [110, 60, 30, 10]
ADD, TEN = "SET balance = balance + :n", {":n": 10}


class Scene:
    """Four items: one of a unit, two that no unit has written, and one that is not there. The work adds 10 to each.

    Attributes:
        ann: does the work, and loses requests.
        ben: another process, which asks afterwards, and goes on.
        at_least: how many requests the work has.
        ends: what readers find afterwards, among all requests at which the work is killed.
    """

    at_least: ClassVar[int]
    ends: ClassVar[Sequence[list[Any]]] = [OLD, NEW]

    def __init__(self, world: UnitsWorld) -> None:
        self.world, self.books, self.ann, self.ben = world, world.books, world.party(), world.party()
        self.books.empty()
        plain = [self.books.plain_account(balance) for balance in (50, 20)]
        self.keys: list[Key] = [self.books.account(100), *plain, some_account()]
        self.prepare()
        self.ann.line.sent.clear()

    def prepare(self) -> None:
        """What happens before."""

    def work(self) -> None:
        """What Ann does."""
        raise NotImplementedError

    def go_on(self, *, is_done: bool) -> None:
        """What Ben does afterwards, if Ann has been killed, or has succeeded."""

    def adds(self, party: Party, unit: Unit) -> Unit:
        """All statements of the work."""
        unit.get_all([(party.accounts, key) for key in self.keys])
        for key in self.keys[:3]:
            unit.update(party.accounts, key, ADD, TEN)
        unit.put(party.accounts, {**self.keys[3], "balance": 10}, condition="attribute_not_exists(id)")
        return unit

    def found(self) -> list[Any]:
        """The balances, as a reader finds them together, and one by one."""
        together = self.ben.units.get_all([(self.ben.accounts, key) for key in self.keys])
        single = [self.ben.units.get(self.ben.accounts, key) for key in self.keys]
        assert together == single
        balances = [item and item["balance"] for item in together]
        assert balances in (OLD, NEW)
        return balances

    def holds(self, expected: list[Any] | None = None) -> list[Any]:
        """All of the work is there or nothing, at once and for good; the next unit commits, and sweeps leave nothing.

        Args:
            expected: what is there, if that is known.

        Returns:
            What is there.
        """
        found = self.found()
        assert expected in (None, found)
        self.books.clock.advance(LEASE_S + MARGIN_S)
        first, last = self.keys[0], self.keys[-1]
        with self.ben.begin() as unit:
            unit.update(self.ben.accounts, first, ADD, TEN)
        with self.ben.begin() as unit:
            unit.put(self.ben.accounts, {**last, "balance": 5})
        assert self.marks((first, last)) == 0
        for _ in range(2):
            self.books.clock.advance(LEASE_S + COPIES_S)
            self.ben.units.sweep()
        assert self.books.balances(self.keys) == [found[0] + 10, *found[1:3], 5]
        assert self.marks(self.keys) == 0
        rows = self.books.everything()["units"]
        assert all("expiresAt" in row for row in rows)
        return found

    def marks(self, keys: Sequence[Key]) -> int:
        return self.books.marks(keys)


class Native(Scene):
    at_least = 2
    terms: ClassVar[dict[str, Any]] = {"engine": "native"}

    def prepare(self) -> None:
        self.unit = self.ann.begin(**self.terms)

    def work(self) -> None:
        with self.unit:
            self.adds(self.ann, self.unit)


class Named(Native):
    """Another process runs the unit of this name again."""

    at_least = 3
    ends = (NEW,)

    def prepare(self) -> None:
        self.name = some_name()
        self.unit = self.ann.begin(name=self.name, engine="native")

    def go_on(self, *, is_done: bool) -> None:
        with self.ben.begin(name=self.name, engine="native") as again:
            assert again.repeated or not is_done
            if not again.repeated:
                self.adds(self.ben, again)


class Marked(Native):
    at_least = 9
    terms: ClassVar[dict[str, Any]] = {"engine": "marked"}


class MarkedWithRows(Marked):
    """What it writes does not fit into its record."""

    at_least = 11

    def adds(self, party: Party, unit: Unit) -> Unit:
        for key in self.keys[:3]:
            unit.update(party.accounts, key, "SET noise = :noise", {":noise": os.urandom(4_000)})
        return super().adds(party, unit)


class ReadLocks(Native):
    """It has also marked an item that it only reads."""

    at_least = 11
    terms: ClassVar[dict[str, Any]] = {"isolation": READ_LOCK}

    def adds(self, party: Party, unit: Unit) -> Unit:
        self.read = self.books.account(1)
        unit.get(party.accounts, self.read)
        return super().adds(party, unit)

    def marks(self, keys: Sequence[Key]) -> int:
        return super().marks([*keys, self.read] if len(keys) == len(self.keys) else keys)


class Saves(Scene):
    """It saves a unit; another process resumes and commits it."""

    at_least = 3
    how: ClassVar[dict[str, Any]] = {}

    def prepare(self) -> None:
        self.unit = self.ann.begin()

    def work(self) -> None:
        self.adds(self.ann, self.unit)
        self.unit.put(self.ann.accounts, {**self.keys[3], "balance": 10, "noise": os.urandom(4_000)})
        assert self.unit.save(**self.how) == self.unit.id

    def go_on(self, *, is_done: bool) -> None:
        try:
            self.ben.units.resume(self.unit.id).commit()
        except UnitForgotten:
            assert not is_done


class SavesUnderAnOwner(Saves):
    at_least = 4
    how: ClassVar[dict[str, Any]] = {"owner": "the owner of all"}


class Step(Scene):
    """It saves a unit in a step, which others try again."""

    at_least = 4
    ends = (NEW,)
    how: ClassVar[dict[str, Any]] = {}

    def prepare(self) -> None:
        self.unit = self.ben.begin().save()

    def work(self) -> None:
        self.takes_the_step(self.ann)

    def takes_the_step(self, party: Party) -> bool:
        unit = party.units.resume(self.unit, step="seat")
        if not unit.repeated:
            self.adds(party, unit)
        unit.save(**self.how)
        return unit.repeated

    def go_on(self, *, is_done: bool) -> None:
        assert self.takes_the_step(self.ben) or not is_done
        self.ben.units.resume(self.unit).commit()


class StepUnderAnOwner(Step):
    at_least = 5
    how: ClassVar[dict[str, Any]] = {"owner": "the owner of all"}


class Resumes(Scene):
    """It resumes a saved unit, and commits it; another process goes on at once."""

    at_least = 3
    ends: ClassVar[Sequence[list[Any]]] = (NEW,)
    terms: ClassVar[dict[str, Any]] = {"engine": "native"}

    def prepare(self) -> None:
        unit = self.adds(self.ben, self.ben.begin(**self.terms))
        unit.put(self.ben.accounts, {**self.keys[3], "balance": 10, "noise": os.urandom(4_000)})
        self.unit = unit.save()

    def work(self) -> None:
        self.ann.units.resume(self.unit).commit()

    def go_on(self, *, is_done: bool) -> None:
        before_ms = self.books.clock.wall_ms
        again = self.ben.units.resume(self.unit)
        assert again.repeated or not is_done
        again.commit()
        # It waits for no lease of the one before.
        assert self.books.clock.wall_ms - before_ms < 1_000 * MARGIN_S


class ResumesMarked(Resumes):
    at_least = 10
    terms: ClassVar[dict[str, Any]] = {"engine": "marked"}


class ResumesAndIsRolledBack(Resumes):
    """Another process rolls it back by its id, however far it came."""

    ends = (OLD, NEW)

    def go_on(self, *, is_done: bool) -> None:
        is_committed = self.ben.units.rollback(self.unit) is Outcome.COMMITTED
        assert is_committed or not is_done
        assert self.found() == (NEW if is_committed else OLD)


class ResumesMarkedAndIsRolledBack(ResumesAndIsRolledBack):
    at_least = 10
    terms: ClassVar[dict[str, Any]] = {"engine": "marked"}


class EndsAnOwner(Scene):
    """It ends the owner of a saved unit; the next event ends it too."""

    at_least = 3
    ends = (OLD,)

    def prepare(self) -> None:
        self.owner = some_name()
        self.unit = self.adds(self.ben, self.ben.begin()).save(owner=self.owner)

    def work(self) -> None:
        assert self.ann.units.end_owner(self.owner) == [self.unit]

    def go_on(self, *, is_done: bool) -> None:
        assert self.ben.units.end_owner(self.owner) in ([], [] if is_done else [self.unit])
        assert self.ben.units.outcome(unit=self.unit).state is Outcome.ROLLED_BACK


class Sweeps(Scene):
    """It sweeps what a process has left that was killed before its decision."""

    at_least = 6
    ends = (OLD,)
    is_committed = False

    def prepare(self) -> None:
        eve = self.world.party()
        unit = eve.begin(engine="marked")
        for key in self.keys[:3]:
            unit.update(eve.accounts, key, "SET noise = :noise", {":noise": os.urandom(4_000)})
        self.adds(eve, unit)
        # One update marks the item that has a version; one transaction marks the others.
        eve.loses(Lost.KILLED_AFTER if self.is_committed else Lost.KILLED_BEFORE, 2, operation="UpdateItem")
        with pytest.raises(Killed):
            unit.commit()
        assert self.marks(self.keys) == len(self.keys)
        self.books.clock.advance(LEASE_S + MARGIN_S)

    def work(self) -> None:
        self.ann.units.sweep()
        self.books.clock.advance(COPIES_S + MARGIN_S)
        self.ann.units.sweep()

    def go_on(self, *, is_done: bool) -> None:
        assert self.marks(self.keys) == 0 or not is_done


class SweepsACommittedOne(Sweeps):
    ends = (NEW,)
    is_committed = True


class Repairs(Sweeps):
    """It repairs the table of what was left; the next repair goes on."""

    at_least = 7

    def work(self) -> None:
        self.ann.units.repair(self.ann.accounts, write=True)

    def go_on(self, *, is_done: bool) -> None:
        assert self.marks(self.keys) == 0 or not is_done
        self.ben.units.repair(self.ben.accounts, write=True)
        assert self.marks(self.keys) == 0


class RepairsACommittedOne(Repairs):
    ends = (NEW,)
    is_committed = True


def below(kind: type[Scene]) -> Iterator[type[Scene]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


SCENARIOS = list(below(Scene))


def faults(*faults: Lost, kinds: Sequence[UnitsKind] = ("threads", "tasks")) -> pytest.MarkDecorator:
    """Every fault of threads in memory, in `make test` the last one; tasks, which drive the same steps, are asked that.

    Of the last the engine has performed the request. Where tasks are not asked, processes are killed: what each leaves
    is asked of other engines but moto, too. An engine sees no request that does not arrive; what it answers to one that
    is sent again test_outcomes.py asks of each.
    """
    milder = pytest.mark.verify("a request that was performed, and whose reply is lost, asks more of the same work")
    some = [pytest.param("memory", "threads", fault, marks=milder) for fault in faults[:-1]]
    some.append(pytest.param("memory", "threads", faults[-1]))
    if "tasks" in kinds:
        later = pytest.mark.verify("the same steps are asked for threads")
        some.append(pytest.param("memory", "tasks", faults[-1], marks=later))
    else:
        elsewhere = [each for each in first_on("memory", engine_names_but_moto()) if each.values != ("memory",)]
        some += [pytest.param(*each.values, "threads", faults[-1], marks=each.marks) for each in elsewhere]
    return pytest.mark.parametrize(
        ("units_engine", "units_kind", "fault"), some, indirect=["units_engine", "units_kind"], ids=_named
    )


def _named(value: object) -> str:
    return value.name.lower() if isinstance(value, Lost) else str(value)


def scenarios(kinds: Sequence[type[Scene]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scenario", kinds, ids=lambda kind: kind.__name__)


def numbered(scenario: type[Scene], world: UnitsWorld, *losses: tuple[Lost, int, float]) -> Iterator[tuple[int, Scene]]:
    """Scenes of which the first request is lost, then the second, and so on, until the work has fewer.

    Args:
        losses: what happens to which requests, counted from that one.
    """
    for number in count(1):
        scene = scenario(world)
        struck, *_ = [scene.ann.loses(what, number + first, number + last) for what, first, last in losses]
        yield number, scene
        scene.ann.line.losses.clear()
        if struck.seen < number:
            assert number > scenario.at_least, f"only {number - 1} requests were lost"
            return


@faults(Lost.NOT_SENT, Lost.REQUEST, Lost.CONFLICT, Lost.REPLY)
@scenarios([kind for kind in SCENARIOS if not issubclass(kind, ResumesAndIsRolledBack)])
def test_work_of_which_any_one_request_is_lost_is_done_once(
    units_world: UnitsWorld, scenario: type[Scene], fault: Lost
) -> None:
    for number, scene in numbered(scenario, units_world, (fault, 0, 0)):
        with at_request(number):
            scene.work()
            scene.ann.line.losses.clear()
            scene.go_on(is_done=True)
            scene.holds(OLD if scenario.ends == (OLD,) else NEW)


@faults(Lost.NOT_SENT, Lost.REQUEST, Lost.REPLY)
@scenarios([Native, Named])
def test_a_unit_that_loses_all_requests_from_some_one_on_is_reported_as_not_applied_or_unknown(
    units_world: UnitsWorld, scenario: type[Scene], fault: Lost
) -> None:
    """As not applied until the commit is sent, and as unknown from then on."""
    for number in range(1, scenario.at_least + 1):
        scene = scenario(units_world)
        scene.ann.loses(fault, number, inf)
        is_the_commit = number == scenario.at_least
        with pytest.raises(TicketLockError) as raised:
            scene.work()
        scene.ann.line.losses.clear()
        may_be_applied = is_the_commit and fault is not Lost.NOT_SENT
        expected = OutcomeUnknown if may_be_applied else RequestNotApplied
        assert type(raised.value) is expected, f"from request {number} on"
        scene.holds(NEW if is_the_commit and fault is Lost.REPLY else OLD)


@faults(Lost.KILLED_BEFORE, Lost.KILLED_AFTER, kinds=["threads"])
@scenarios(SCENARIOS)
def test_a_process_that_is_killed_at_any_request_leaves_all_of_it_or_nothing(
    units_world: UnitsWorld, scenario: type[Scene], fault: Lost
) -> None:
    ends = []
    for number, scene in numbered(scenario, units_world, (fault, 0, 0)):
        try:
            scene.work()
        except Killed:
            with at_request(number):
                scene.found()
                scene.go_on(is_done=False)
                ends.append(scene.holds())
    # The last request decides: before it nothing is done.
    is_never_done = fault is Lost.KILLED_BEFORE and scenario in (Native, Saves, SavesUnderAnOwner)
    assert [end for end in (OLD, NEW) if end in ends] == ([OLD] if is_never_done else list(scenario.ends))


@faults(Lost.INTERRUPTED_BEFORE, Lost.INTERRUPTED_AFTER)
@scenarios([Native, Marked, ReadLocks])
@pytest.mark.parametrize("then", ["all is well", "the table is out of reach", "it is interrupted again"])
def test_a_unit_that_is_interrupted_at_any_request_is_over_and_says_how_and_leaves_all_of_it_or_nothing(
    units_world: UnitsWorld, scenario: type[Native], fault: Lost, then: str
) -> None:
    more: dict[str, list[tuple[Lost, int, float]]] = {
        "the table is out of reach": [(Lost.NOT_SENT, 1, inf)],
        "it is interrupted again": [(fault, 1, 1)],
    }
    ends = []
    allowed = {"rolled back": [OLD], "unknown": [OLD, NEW], "committed": [NEW]}
    for number, scene in numbered(scenario, units_world, (fault, 0, 0), *more.get(then, [])):
        assert isinstance(scene, Native)
        try:
            scene.work()
        except Interrupt:
            scene.ann.line.losses.clear()
            with at_request(number):
                reported = says(scene)
                found = scene.found()
                assert found in allowed[reported]
                assert reported == "rolled back" or number > 1
                assert then in more or scene.marks(scene.keys) == 0
                scene.books.clock.advance(LEASE_S + COPIES_S if then in more else 0)
                ends.append(scene.holds(found))
    # The last request decides.
    is_never_done = (scenario, fault) == (Native, Lost.INTERRUPTED_BEFORE)
    assert [end for end in (OLD, NEW) if end in ends] == ([OLD] if is_never_done else [OLD, NEW])


def says(scene: Native) -> str:
    """The end that the unit reports to every call, without a request."""
    unit, ann = scene.unit, scene.ann

    def said_to(use: Callable[[], object]) -> str:
        with pytest.raises(UnitFinished) as finished:
            use()
        return next(each for each in ("rolled back", "unknown", "committed") if f"{each}:" in str(finished.value))

    before = len(ann.line.sent)
    said = said_to(lambda: unit.get(ann.accounts, scene.keys[0]))
    for end, use in (("committed", unit.commit), ("rolled back", unit.rollback)):
        if said == end:
            # The same end again does nothing.
            use()
        else:
            assert said_to(use) == said
    assert len(ann.line.sent) == before
    return said


@contextmanager
def at_request(number: int) -> Iterator[None]:
    """Add the number of a request to the error with which the block fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"at request {number}")
        raise
