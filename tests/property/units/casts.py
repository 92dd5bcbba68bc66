"""The participants of a simulated world of units, and what they do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from property.chance import Chance
from property.units.checker import Key

from ticketlock.units._statements._settings import Engine

KEYS: tuple[Key, ...] = (("accounts", "a"), ("lines", "1"), ("accounts", "b"), ("lines", "2"), ("accounts", "c"))
APPENDING = (
    *("append", "append", "append", "get", "get all", "blind", "check", "query"),
    *("prefetch", "update all", "index"),
)
DELETING = (*APPENDING, "put", "delete", "delete", "put all", "delete all")
RESTS_MS = ((0, 10, 1_000, 40_000, 400_000), (0, 0, 0, 10, 100))
NO_REST = RESTS_MS[1]
ENGINES: tuple[Engine | None, ...] = ("marked", "native", None, "marked")


@dataclass(frozen=True, slots=True)
class Cast:
    """The participants of a world.

    Attributes:
        keys: how many items there are.
        clients, rounds: how many machines run units, and how many units each runs.
        verbs: of their statements; those that delete or replace items need a world that is not append-only.
        engines: of the units.
        names: the names that units use, so that each is committed once.
        rests_ms: how long they rest between two units.
        locking: whether some units mark what they read.
        saves: whether units are saved, and resumed by any coordinator.
        beside: the other clients, and how many rounds each has.
        is_guarded: whether the table with ranges is guarded.
        is_older: whether some items are there that no unit has written.
    """

    keys: int
    clients: int
    rounds: int
    verbs: Sequence[str] = APPENDING
    engines: Sequence[Engine | None] = ENGINES
    names: Sequence[str] = ()
    beside: Mapping[str, int] = field(default_factory=dict)
    rests_ms: Sequence[int] = RESTS_MS[0]
    saves: bool = False
    is_guarded: bool = False
    locking: bool = False
    is_older: bool = False

    @property
    def is_append_only(self) -> bool:
        """Whether no item is deleted or replaced."""
        return set(self.verbs) <= set(APPENDING)


# Small casts, each for what rarely happens in a large one.

CUTS = Cast(2, 2, 3, verbs=("append",), engines=("marked",), beside={"watcher": 20}, rests_ms=NO_REST)
"""A reader reads both items together, repeatedly, while units mark one after the other."""
INSERTS = Cast(1, 3, 4, verbs=("put", "delete"), engines=("marked",))
"""Items are created and deleted: a missing item has no version."""
CHECKS = Cast(2, 3, 4, verbs=("append", "get", "check"), engines=("marked", "native"), rests_ms=NO_REST)
"""Each item is written by one unit, and only read by another at the same time."""
ASSERTIONS = Cast(2, 3, 6, verbs=("check", "append"), engines=("native",), rests_ms=NO_REST)
"""Units that do nothing but check, while others write what they check."""
OLDER = Cast(2, 2, 4, verbs=("delete", "put", "append"), beside={"plain": 16}, rests_ms=NO_REST, is_older=True)
"""Items that no unit has written before, and that units and a plain writer change and delete."""
SLEEPERS = Cast(2, 1, 4, verbs=("append",), engines=("marked",), beside={"sweeper": 12})
"""For days, no process meets the marks except the sweeper."""
TOKENS = Cast(2, 2, 3, verbs=("blind", "blind", "append"), engines=("native",))
"""Blind appends have no version: only the client request token shows that they were applied."""
PREFETCHES = Cast(
    4,
    2,
    4,
    verbs=("prefetch", "query", "put all", "index", "delete"),
    engines=("marked", None),
    beside={"range reader": 6},
    rests_ms=NO_REST,
    is_guarded=True,
)
"""What was read and not shown is in a range that is queried later, while others insert into the range."""
RANGES = Cast(4, 3, 3, verbs=("query", "put", "delete"), engines=("marked", None), rests_ms=NO_REST, is_guarded=True)
"""Items are created and deleted in a range, and every unit queries it first."""
SAVES = Cast(
    2, 3, 5, verbs=("append", "append", "get", "blind"), beside={"asker": 3, "ender": 2}, rests_ms=NO_REST, saves=True
)
"""Units are saved, and resumed by one, two or three coordinators at once."""
NAMED = Cast(
    3,
    2,
    8,
    verbs=("append",),
    engines=("native",),
    names=("n1",),
    beside={"patient asker": 12},
    rests_ms=(1_000, 70_000),
    saves=True,
)
"""Units are saved under one name, for whose outcome another machine asks again and again."""
LOCKING = Cast(2, 3, 4, verbs=("append", "get", "get all", "check"), rests_ms=NO_REST, locking=True)
"""Some units mark what they read, and write some of it."""
SWEEPS = Cast(
    3,
    3,
    4,
    verbs=("append",),
    engines=("marked",),
    beside={"sweeper in parts": 12, "another in parts": 12},
    rests_ms=NO_REST,
)
"""Two sweep beside units, in parts and for a short time."""
CORRECTIONS = Cast(
    2,
    3,
    4,
    verbs=("append", "put", "get"),
    engines=("marked",),
    beside={"operator": 8, "another operator": 8, "reader": 6, "sweeper": 3},
    rests_ms=NO_REST,
)
"""The service refuses new values of committed units, and two operators correct them."""
SNAPSHOTS = Cast(4, 2, 4, verbs=("append",), engines=(None, "marked"), beside={"snapshots": 12}, rests_ms=NO_REST)
"""A reader reads more items at one instant than a transaction holds, while units write some of them."""
ABSENCES = Cast(2, 2, 12, verbs=("put", "delete"), engines=("native",), beside={"snapshots": 30}, rests_ms=(0, 0, 1))
"""The same, while items are created and deleted."""
SMALL = (
    SNAPSHOTS,
    CUTS,
    INSERTS,
    CHECKS,
    ASSERTIONS,
    OLDER,
    SLEEPERS,
    TOKENS,
    SAVES,
    NAMED,
    RANGES,
    PREFETCHES,
    LOCKING,
    SWEEPS,
    CORRECTIONS,
)


def drawn_cast(chance: Chance) -> Cast:
    """A large cast, or sometimes a small one."""
    pick = chance.pick
    if pick(6) == 5:
        return SMALL[pick(len(SMALL))]
    keys, verbs = [2, 3, 3, 4, 5][pick(5)], [APPENDING, DELETING][pick(2)]
    names, rounds = ("n1", "n2")[: [0, 1, 2][pick(3)]], [1, 1, 2, 3][pick(4)]
    clients = [2, 2, 3, 3, 4, 5][pick(6)]
    beside = {
        name: its_rounds
        for name, its_rounds, one_of in (
            ("reader", 2 * rounds, 3),
            ("range reader", 2 * rounds, 4),
            ("sweeper", 2, 4),
            ("sweeper in parts", 2, 4),
            ("asker", 3, 3),
            ("plain", 3, 4),
            ("grantor", 3, 4),
            ("operator", 4, 3),
        )
        if pick(one_of) == one_of - 1
    }
    rests_ms, saves, is_guarded, locking = RESTS_MS[pick(2)], pick(4) == 3, pick(2) == 1, pick(3) == 2
    is_older = pick(4) == 3
    beside |= {"ender": 2} if saves else {}
    return Cast(keys, clients, rounds, verbs, ENGINES, names, beside, rests_ms, saves, is_guarded, locking, is_older)
