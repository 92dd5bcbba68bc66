"""What ends a schedule early, and how to replay it: a broken promise, or another error; what a search has found."""

import shlex
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from kit.invariants import Broken
from property.chance import Chance, Seeded


class Unexpected(Exception):
    """An error that no machine's script expects. It breaks no named promise, and so does not catch a broken lock."""


FAILURES = (Broken, Unexpected)


@contextmanager
def noted(log: Sequence[str] = ()) -> Iterator[None]:
    """Within the block a failure is reported with what happened before.

    Args:
        log: what has happened so far; it grows.

    Raises:
        Broken: a promise was broken.
        Unexpected: another error was raised.
    """
    try:
        yield
    except FAILURES as failure:
        _note(failure, log)
        raise
    except Exception as error:
        unexpected = Unexpected(f"unexpected {type(error).__name__}: {error}")
        unexpected.add_note("".join(traceback.format_exception(error)))
        _note(unexpected, log)
        raise unexpected from error


def _note(failure: Exception, log: Sequence[str]) -> None:
    if log:
        failure.add_note("\n".join(log))


def kind_of(failure: Exception) -> str:
    """The promise that was broken, or the unexpected error."""
    return str(failure).partition(":")[0]


def story_of(failure: Exception) -> str:
    """The failure, and what happened before."""
    return "\n".join([str(failure), *getattr(failure, "__notes__", ())])


def again(**arguments: bool | int | str | None) -> str:
    """The command that replays a failure and shortens its schedule."""
    given = {name: value for name, value in arguments.items() if value is not None and value is not False}
    words = []
    for name, value in given.items():
        if value is True:
            words.append(f"--{name}")
        else:
            words.append(f'--{name} "{value}"' if isinstance(value, str) else f"--{name} {value}")
    # An apostrophe would end the shell's quotation.
    return f"make replay ARGS={shlex.quote(' '.join(words))}"


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

    def told(self) -> dict[str, Any]:
        """The counts, as JSON has them."""
        return dict(vars(self))

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """The same of what was told."""
        made: dict[str, Any] = {
            name: Counter(each) if isinstance(each, Mapping) else each for name, each in told.items()
        }
        return cls(**made)

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
