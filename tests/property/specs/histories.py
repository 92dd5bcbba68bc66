"""Histories of the simulated worlds, each step of which has to be one of the specifications."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from property.chance import Seeded
from property.explore import run
from property.report import chunks
from property.specs.of_locks import steps_of as steps_of_locks
from property.specs.of_units import steps_of as steps_of_units
from property.specs.recorded import Recorder
from property.specs.tla import Values
from property.specs.tlc import Model
from property.units.explore import run as run_units
from property.units.world import UnitsWorld
from property.world import World

_MOST_NAMES = 99
_SHARERS = "{" + ", ".join(f'"s{number}"' for number in range(1, _MOST_NAMES + 1)) + "}"

Step = Mapping[str, Any]


@dataclass
class Histories:
    """What schedules have sent.

    Attributes:
        schedules, requests: how many.
        steps: the steps that differ by more than names and times, in TLA+; by the model's constants.
        operators: that the steps use, with their definitions.
        conditions: those that a request states.
    """

    module: str
    schedules: int = 0
    requests: int = 0
    steps: dict[tuple[tuple[str, str], ...], set[str]] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)
    conditions: set[str] = field(default_factory=set)

    def add(self, other: "Histories") -> None:
        """Add those of other schedules."""
        self.schedules += other.schedules
        self.requests += other.requests
        self.operators |= other.operators
        self.conditions |= other.conditions
        for constants, steps in other.steps.items():
            self.steps.setdefault(constants, set()).update(steps)

    def note(self, steps: Iterable[Step], constants: Mapping[str, str]) -> None:
        """Add a schedule."""
        values = Values()
        found = []
        for step in steps:
            found.append(values.told(step))
            self.conditions |= step["requires"]
        self.schedules += 1
        self.requests += len(found)
        self.operators |= values.operators
        self.steps.setdefault(tuple(constants.items()), set()).update(found)

    @property
    def count(self) -> int:
        """How many steps differ."""
        return sum(map(len, self.steps.values()))

    def models(self) -> Iterable[Model]:
        """One model for each set of constants: its first states are the steps."""
        for constants, steps in self.steps.items():
            yield Model(
                name=f"{len(steps):,} different steps",
                module=self.module,
                constants=dict(constants),
                invariants=("StatesTheSame", "AllowsTheSame", "LeavesTheSame"),
                properties=(),
                definitions=(
                    *self.operators.values(),
                    "Recorded ==",
                    *(rf"  \/ step = {step}" for step in sorted(steps)),
                    "Histories == Recorded /\\ Found /\\ [][UNCHANGED vars]_vars",
                ),
                specification="Histories",
            )


@dataclass
class _RecordedLocks(World):
    """A world of locks that records what is written to its table."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recorder = Recorder(self.memory)
        self.memory: Any = self.recorder


def of_locks(seed: int) -> tuple[Iterable[Step], Mapping[str, str]]:
    """The steps of a schedule of locks, and the constants of the model that they are replayed in."""
    world = run(Seeded(seed), kind=_RecordedLocks)
    assert isinstance(world, _RecordedLocks)
    constants = {"Sharers": _SHARERS, "MostShared": str(world.caps.holders), "Permits": "0", "None": "None"}
    return steps_of_locks(world.recorder.history, world.lock), constants


@dataclass
class _RecordedUnits(UnitsWorld):
    """A world of units that records what is written to its tables."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.recorder = Recorder(self.service.memory)
        memory: Any = self.recorder
        self.service.memory = memory


def of_units(seed: int) -> tuple[Iterable[Step], Mapping[str, str]]:
    """The same of units."""
    world = run_units(Seeded(seed), kind=_RecordedUnits)
    assert isinstance(world, _RecordedUnits)
    themselves = ("Absent", "Unversioned", "Foreign", "None")
    constants = {"Units": f"1 .. {_MOST_NAMES}", "Keys": "{}", **{name: name for name in themselves}}
    return steps_of_units(world.recorder.history), constants


RARE = frozenset({"NO_USER_HAS_ASKED", "LIMIT_UNSET_AS_I_SAW"})
"""Conditions that hardly any schedule states."""

WORLDS: Mapping[str, tuple[str, Callable[[int], tuple[Iterable[Step], Mapping[str, str]]]]] = {
    "locks": ("LockHistories", of_locks),
    "units": ("UnitHistories", of_units),
}
"""By world, the specification of its steps, and how a seed's are recorded."""


def recorded(world: str, schedules: int, pool: Executor) -> Histories:
    """Run schedules of one of the worlds, in several processes, and record what they send."""
    first, *others = pool.map(partial(_of, world), chunks(schedules))
    for other in others:
        first.add(other)
    return first


def _of(world: str, seeds: Iterable[int]) -> Histories:
    module, of_seed = WORLDS[world]
    found = Histories(module)
    for seed in seeds:
        found.note(*of_seed(seed))
    return found
