"""What a part of the search of ``make proof`` has found, in either of the worlds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from property.chance import Chance, Seeded
from property.failures import FAILURES, again, story_of

World = TypeVar("World")


@dataclass
class Counts(ABC, Generic[World]):
    """How many schedules there were, and what they broke.

    Attributes:
        broken: each with the command that shows it again.
    """

    schedules: int = 0
    steps: int = 0
    broken: list[str] = field(default_factory=list, kw_only=True)

    @property
    @abstractmethod
    def counted(self) -> Mapping[str, str]:
        """What else was counted, by the heading of its column."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether nothing came of any schedule: then it proves nothing."""

    @abstractmethod
    def saw(self, world: World) -> None:
        """A schedule that came to its end."""

    def add(self, other: Self) -> None:
        """What another part has found as well."""
        self.schedules += other.schedules
        self.steps += other.steps
        self.broken += other.broken

    def after_seeds(self, run: Callable[[Chance], World], seeds: Iterable[int], **named: bool) -> Self:
        """After random schedules.

        Args:
            run: one of them, of these choices, to its end.
            named: what names the world in the command that shows a schedule again.
        """
        for seed in seeds:
            try:
                self.saw(run(Seeded(seed)))
            except FAILURES as failure:
                self.broken.append(f"{failure}\n{again(**named, seed=seed)}")
        return self

    def after_all(self, worlds: Iterable[World]) -> Self:
        """After schedules up to the first that breaks something, whose notes tell how it is shown again."""
        try:
            for world in worlds:
                self.saw(world)
        except FAILURES as failure:
            self.broken.append(story_of(failure))
        return self
