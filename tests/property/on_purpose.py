"""Deliberate breakages: each is one change of the real code."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from property.chance import Chance, Seeded
from property.failures import FAILURES, kind_of

from ticketlock.wire._requests import Write


class BrokenOnPurpose(ABC):
    """One change, which lasts for a block.

    Attributes:
        name: what is wrong.
        caught_by: the promises that it breaks; one of them must catch it.
        changes: what is replaced: module or class, attribute, value.
    """

    name: str
    caught_by: frozenset[str]
    changes: tuple[tuple[Any, str, Any], ...]

    def __post_init__(self) -> None:
        for module, attribute, _ in self.changes:
            if not hasattr(module, attribute):
                raise AttributeError(f"{self.name}: {module.__name__} has no {attribute} to be replaced")

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Within the block the change is made."""
        with ExitStack() as stack:
            for module, attribute, value in self.changes:
                stack.enter_context(patch.object(module, attribute, value))
            yield

    @abstractmethod
    def run(self, chance: Chance) -> object:
        """Run one random schedule that should reveal it, to its end; the change must be made.

        Raises:
            Broken, Unexpected: a promise was broken, or another error was raised.
        """


@dataclass(frozen=True, slots=True)
class Caught:
    """The first schedule on which the broken code breaks a promise that may catch it."""

    seed: int
    promise: str


def first_broken(broken: BrokenOnPurpose, seeds: Iterable[int]) -> Caught | None:
    """Search for the first schedule on which it breaks a promise that may catch it."""
    with broken.instead():
        for seed in seeds:
            try:
                broken.run(Seeded(seed))
            except FAILURES as failure:
                if kind_of(failure) in broken.caught_by:
                    return Caught(seed, kind_of(failure))
    return None


def asking_less(always: str, original: Callable[..., Write], *conditions: str) -> Callable[..., Write]:
    """A write in which a condition that always holds replaces these."""

    def write(*args: Any, **kwargs: Any) -> Write:
        made = original(*args, **kwargs)
        condition = made.condition
        for each in conditions:
            condition = condition.replace(each, always)
        return replace(made, condition=condition)

    return write
