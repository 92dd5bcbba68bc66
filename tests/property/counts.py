"""What a part of the search of ``make proof`` has found, in either world."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from property.chance import Chance, Seeded
from property.failures import FAILURES, again, story_of

World = TypeVar("World")


@dataclass
class Counts(ABC, Generic[World]):
    """How many schedules there were, and which promises they broke.

    Attributes:
        broken: each with the command that replays it.
    """

    schedules: int = 0
    steps: int = 0
    broken: list[str] = field(default_factory=list, kw_only=True)

    @property
    @abstractmethod
    def counted(self) -> Mapping[str, str]:
        """Further counts, by the headings of their columns."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nothing happened in any schedule: then it proves nothing."""

    @abstractmethod
    def saw(self, world: World) -> None:
        """Count a schedule that has ended."""

    def add(self, other: Self) -> None:
        """Add the counts of another part."""
        self.schedules += other.schedules
        self.steps += other.steps
        self.broken += other.broken

    def after_seeds(self, run: Callable[[Chance], World], seeds: Iterable[int], **named: bool) -> Self:
        """Run random schedules.

        Args:
            run: runs one schedule of these choices to its end.
            named: what names the world in the command that replays a schedule.
        """
        for seed in seeds:
            try:
                self.saw(run(Seeded(seed)))
            except FAILURES as failure:
                self.broken.append(f"{failure}\n{again(**named, seed=seed)}")
        return self

    def after_all(self, worlds: Iterable[World]) -> Self:
        """Run schedules up to the first that breaks a promise; its notes say how to replay it."""
        try:
            for world in worlds:
                self.saw(world)
        except FAILURES as failure:
            self.broken.append(story_of(failure))
        return self
