"""Every schedule of two units on two items, as far as a bound: all orders of their requests, a fault at every place.

A step is a request that is performed and answered; where the kind says so, each step of a transaction inside the
service is one. A machine continues until it sleeps, unless it is preempted; the number of preemptions is bounded, and
so is the number of faults, as for locks (``property.every``). Time passes when all sleep. A late copy of a request
arrives at any later step, or never.

What is never varied: every clock is right, a pause is longer than a lease and begins when a request is in progress,
requests that one unit sends concurrently are performed in their order, a transaction changes its items in their order,
and TTL deletes nothing.
"""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial

from kit.invariants import Broken
from property.chance import Chance
from property.every import all_schedules, in_short, to_its_end
from property.failures import again, noted
from property.units.beside import read_beside
from property.units.calls import MARKS, WRITES
from property.units.casts import KEYS
from property.units.checker import Key
from property.units.explore import left_to_itself
from property.units.machines import NONE, Machine, Pending, Strand
from property.units.service import AtWork
from property.units.tries import Plan, one_try
from property.units.world import Script, UnitsWorld

from ticketlock.units._records._rows import row_key
from ticketlock.units._statements._reading import COMMITTED
from ticketlock.units._statements._settings import Engine
from ticketlock.wire._actions import Actions

X, Y = KEYS[:2]
L, M = (key for key in KEYS if key[0] == "lines")
"""Of one range."""
ON_A_WRITE = ("late", "twice")
ON_A_MACHINE = ("crash", "pause")
_PAUSE_MS = 70_000
_MOST_STEPS = 3_000
_NEVER_MS = float("inf")
# Which asks for the time of the table alone.
_TIME_KEY = row_key("0", "0")


class _Dull:
    """Chooses what is simplest."""

    def pick(self, _choices: int) -> int:
        return 0


@dataclass(frozen=True)
class Reads:
    """Reads outside of units, one after the other, each as last committed.

    Attributes:
        of: the items that are read together.
    """

    of: tuple[tuple[Key, ...], ...]


Part = Plan | Reads


def unit(engine: Engine | None, *statements: tuple[str, tuple[Key, ...]]) -> Plan:
    """A unit, which has three tries."""
    return Plan(statements, engine, None, False, 10_000, 3)


def appends(engine: Engine | None, *keys: Key) -> Plan:
    """A unit that appends to items in this order."""
    return unit(engine, *(("append", (key,)) for key in keys))


@dataclass(frozen=True)
class Kind:
    """One exhaustive search.

    Attributes:
        of: what each machine does.
        preemptions: how often at most a machine is interrupted that could continue.
        faults: how many at most: a write that is late, or is applied and arrives once more, both without an answer; a
            crash, a pause.
        in_steps: whether other machines continue between two steps of a transaction.
        exist: the items that exist before.
        before: what a third machine has left: nothing, or a unit with both items marked and its lease over (it crashed
            before the commit), or a committed unit (it crashed right after the commit).
        is_append_only: whether nothing is deleted.
        keys: the items.
        is_guarded: whether the table with ranges is guarded.
    """

    name: str
    of: tuple[Part, Part]
    preemptions: int
    faults: int = 0
    in_steps: bool = False
    exist: tuple[Key, ...] = (X, Y)
    before: str | None = None
    is_append_only: bool = True
    keys: tuple[Key, ...] = (X, Y)
    is_guarded: bool = False

    @property
    def writers(self) -> int:
        """How many of them write."""
        return sum(isinstance(part, Plan) and any(verb != "get all" for verb, _ in part.statements) for part in self.of)


def _with_faults(kind: Kind, preemptions: int = 0) -> Kind:
    return replace(kind, name=f"{kind.name}, one fault", preemptions=preemptions, faults=1, in_steps=False)


_XY, _YX, _X = (X, Y), (Y, X), (X,)
_DELETES = unit("marked", ("delete", (X,)), ("append", (Y,)))
_READS = unit("native", ("get all", (X, Y)))
_READS_ONE_BY_ONE = unit("native", ("get all", (X,)), ("get all", (Y,)))
_CUTS, _READS_X_Y_X = Reads(((X, Y), (X, Y))), Reads(((X,), (Y,), (X,)))


def _skewed(engine: Engine) -> tuple[Plan, Plan]:
    """Two units of which each writes what the other one reads."""
    return unit(engine, ("get all", (X,)), ("append", (Y,))), unit(engine, ("get all", (Y,)), ("append", (X,)))


_NATIVE = Kind("two native units", (appends("native", *_XY), appends("native", *_YX)), 4, in_steps=True)
_NATIVE_READER = Kind("a native unit and one that reads at once", (appends("native", *_XY), _READS), 4, in_steps=True)
_NATIVE_READS = Kind(
    "a native unit and one that reads one by one", (appends("native", *_XY), _READS_ONE_BY_ONE), 4, in_steps=True
)
_NATIVE_SKEW = Kind("two native units that read what the other writes", _skewed("native"), 3, in_steps=True)
_MARKED_SKEW = Kind("two marked units that read what the other writes", _skewed("marked"), 3)
_MARKED = Kind("two marked units", (appends("marked", *_XY), appends("marked", *_YX)), 3)
_MIXED = Kind("a marked unit and a native one", (appends("marked", *_XY), appends("native", *_YX)), 3, in_steps=True)
_CUT = Kind("a marked unit and cuts", (appends("marked", *_XY), _CUTS), 3, in_steps=True)
_COMMITTED = Kind("a marked unit and committed reads", (appends("marked", *_XY), _READS_X_Y_X), 4)
_INSERTS = Kind("two marked inserts", (appends("marked", *_X), appends("marked", *_X)), 4, exist=())
_MIXED_INSERTS = Kind(
    "a marked insert and a native one", (appends("marked", *_X), appends("native", *_X)), 4, in_steps=True, exist=()
)
_DELETE = Kind("a marked delete and an update", (_DELETES, appends("marked", *_X)), 3, is_append_only=False)
_INSERT_DELETE = Kind(
    "a marked insert and a delete", (appends("marked", X), _DELETES), 3, exist=(), is_append_only=False
)
_FINISH = Kind(
    "a committed unit that crashed, and two that finish it",
    (appends("marked", *_XY), appends("native", *_YX)),
    2,
    before="decided",
)
_ROLL_BACK = Kind(
    "a marked unit that crashed, and two that roll it back",
    (appends("marked", *_XY), appends("native", *_YX)),
    2,
    before="marked",
)
_QUERY = unit(None, ("query", (L,)), ("append", (X,)))
_PHANTOM = Kind(
    "a guarded query and an insert into its range",
    (_QUERY, appends(None, L)),
    3,
    in_steps=True,
    exist=(X, M),
    keys=(X, L, M),
    is_guarded=True,
)
_GUARDED_DELETE = Kind(
    "a guarded query and an insert beside a delete",
    (_QUERY, unit(None, ("delete", (M,)), ("append", (L,)))),
    3,
    exist=(X, M),
    is_append_only=False,
    keys=(X, L, M),
    is_guarded=True,
)
_PHANTOM_SKEW = Kind(
    "two guarded inserts, each after a query",
    (unit(None, ("query", (L,)), ("append", (L,))), unit(None, ("query", (L,)), ("append", (M,)))),
    2,
    keys=(L, M),
    exist=(),
    is_guarded=True,
)
_GUARDED_INSERTS = Kind(
    "two guarded inserts", (appends(None, L), appends(None, M)), 3, keys=(L, M), exist=(), is_guarded=True
)

KINDS = (
    _NATIVE,
    _with_faults(_NATIVE, 1),
    _NATIVE_READER,
    _with_faults(_NATIVE_READER, 2),
    _NATIVE_READS,
    _with_faults(_NATIVE_READS, 1),
    _NATIVE_SKEW,
    _with_faults(_NATIVE_SKEW, 1),
    _MARKED_SKEW,
    _with_faults(_MARKED_SKEW),
    _MARKED,
    _with_faults(_MARKED),
    _MIXED,
    _with_faults(_MIXED),
    _CUT,
    _with_faults(_CUT),
    _COMMITTED,
    _with_faults(_COMMITTED),
    _INSERTS,
    _with_faults(_INSERTS),
    _MIXED_INSERTS,
    _with_faults(_MIXED_INSERTS),
    _DELETE,
    _with_faults(_DELETE),
    _INSERT_DELETE,
    _with_faults(_INSERT_DELETE),
    _FINISH,
    _with_faults(_FINISH),
    _ROLL_BACK,
    _with_faults(_ROLL_BACK),
    _PHANTOM,
    _with_faults(_PHANTOM),
    _GUARDED_DELETE,
    _with_faults(_GUARDED_DELETE),
    _PHANTOM_SKEW,
    _with_faults(_PHANTOM_SKEW),
    _GUARDED_INSERTS,
    _with_faults(_GUARDED_INSERTS),
)


def _script(part: Part) -> Script:
    return partial(_reads, part) if isinstance(part, Reads) else partial(_runs, part)


def _runs(plan: Plan, world: UnitsWorld, machine: Machine) -> Actions[None]:
    born_ms = machine.read().wall_ms
    for _ in range(plan.tries):
        if (yield from one_try(world, machine, plan, born_ms)):
            return


def _reads(reads: Reads, world: UnitsWorld, machine: Machine) -> Actions[None]:
    for keys in reads.of:
        yield from read_beside(world, machine, keys, COMMITTED)


# One schedule.


def run(kind: Kind, chance: Chance) -> UnitsWorld:
    """One schedule of two machines.

    Raises:
        Broken, Unexpected: a promise was broken, or something else was raised; its notes say what happened before.
    """
    log: list[str] = []
    with noted(log):
        world = UnitsWorld(
            _Dull(), NONE, list(kind.keys), kind.is_append_only, in_steps=kind.in_steps, is_guarded=kind.is_guarded
        )
        world.checker.log = log
        _what_was_before(world, kind)
        before = len(world.checker.committed)
        machines = [world.add(name, _script(part), rate=1) for name, part in zip("ab", kind.of, strict=True)]
        if not kind.faults:
            world.calm()
        _to_their_end(world, kind, chance, machines)
        if not kind.faults and len(world.checker.committed) < before + kind.writers:
            raise Broken("liveness: nothing failed, and a unit was not committed in all of its tries")
        left_to_itself(world, with_unit=False)
    return world


def _what_was_before(world: UnitsWorld, kind: Kind) -> None:
    def are_marked() -> bool:
        return all(MARKS.mark in (world.service.stored(key) or {}) for key in world.keys)

    if kind.exist:
        world.add("first", _script(appends(None, *kind.exist)), rate=1)
        while world.go():
            pass
    if kind.before is not None:
        crashing = world.add("crashing", _script(appends("marked", *kind.keys)), rate=1)
        decided = len(world.checker.committed) + 1
        while not (are_marked() if kind.before == "marked" else len(world.checker.committed) == decided):
            world.go()
        world.crash(crashing)
        world.time.now_ms += _PAUSE_MS


def _to_their_end(world: UnitsWorld, kind: Kind, chance: Chance, machines: list[Machine]) -> None:
    # If the two are alike, the first begins: schedules that the other begins are the same.
    schedule, first = _Schedule(world, world.checker.step + _MOST_STEPS), machines[chance.pick(2)]
    to_its_end(schedule, chance, first, preemptions=kind.preemptions, faults=kind.faults)
    while world.network.late:
        if chance.pick(2):
            world.network.late.pop()
        else:
            world.network.late_one_arrives(0)
    while world.go():
        pass


@dataclass(frozen=True)
class _Schedule:
    """The machines of a world, and its transactions whose sender has given up.

    Attributes:
        last: the step at which everything should be over.
    """

    world: UnitsWorld
    last: int

    @property
    def late(self) -> Sized:
        return self.world.network.late

    def ready(self) -> Sequence[Machine | AtWork] | None:
        """Machines that send a request or have a transaction in progress, and transactions without a sender."""
        world = self.world
        _hear(world)
        ready: list[Machine | AtWork] = [each for each in world.machines if each.ready() or _works_of(world, each)]
        ready += [work for work in world.service.at_work if work.pending is None]
        if not ready and world.is_over:
            return None
        if world.checker.step > self.last:
            raise Broken(f"liveness: after {_MOST_STEPS} steps a machine or a transaction is still active")
        return ready

    def let_time_pass(self) -> None:
        self.world.let_time_pass()

    def go_on(self, who: Machine | AtWork) -> None:
        if isinstance(who, AtWork):
            self.world.go_on(who)
        elif strands := who.ready():
            self.world.go_on((who, strands[0]))
        else:
            self.world.go_on(_works_of(self.world, who)[0])

    def late_one_arrives(self, which: int) -> None:
        self.world.network.late_one_arrives(which)

    def possible(self, who: Machine | AtWork) -> Sequence[str]:
        if isinstance(who, AtWork):
            return ()
        sent = _sent(who)
        is_write = sent is not None and sent.call.operation in WRITES
        return (*(ON_A_WRITE if is_write else ()), *ON_A_MACHINE)

    def meets(self, who: Machine | AtWork, fault: str) -> None:
        assert isinstance(who, Machine)
        world = self.world
        world.calm_since_ms = world.time.now_ms
        if fault in ON_A_WRITE:
            sent = _sent(who)
            assert sent is not None
            world.network.befalls(fault, who, sent, _NEVER_MS)
        elif fault == "crash":
            world.crash(who)
        else:
            who.pause(_PAUSE_MS)
            world.calm_since_ms += _PAUSE_MS
        world.checker.notes(f"{who.name}: {fault}")


def _sent(machine: Machine) -> Pending | None:
    """What a machine is about to send."""
    strands = machine.ready()
    return strands[0].pending if strands else None


def _hear(world: UnitsWorld) -> None:
    """Let machines receive answers, wake and ask for the time, until each is about to send another request."""
    for machine in world.machines:
        while quiet := [strand for strand in machine.ready() if _is_quiet(strand)]:
            world.go_on((machine, quiet[0]))


def _is_quiet(strand: Strand) -> bool:
    pending = strand.pending
    return pending is None or pending.is_over or pending.call.parameters.get("Key") == _TIME_KEY


def _works_of(world: UnitsWorld, machine: Machine) -> list[AtWork]:
    return [
        work
        for work in world.service.at_work
        if work.pending is not None and any(strand.pending is work.pending for strand in machine.strands)
    ]


def every(kind: Kind) -> Iterator[UnitsWorld]:
    """All schedules of a kind.

    Raises:
        Broken, Unexpected: a promise was broken, or something else was raised; its notes say by which choices.
    """
    return all_schedules(partial(run, kind), lambda picked: again(units=True, kind=kind.name, choices=in_short(picked)))
