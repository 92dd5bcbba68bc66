"""Every list of choices that a schedule can be made of, one after the other: a tree, searched depth first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from property.chance import Chance
from property.failures import FAILURES

World = TypeVar("World")


@dataclass
class Enumerated:
    """Choices in their order: the first of each at first, then the next list, until none is left."""

    picked: list[int] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    at: int = 0

    def pick(self, choices: int) -> int:
        if choices == 1:
            return 0
        if self.at == len(self.picked):
            self.picked.append(0)
            self.choices.append(choices)
        self.at += 1
        return self.picked[self.at - 1]

    def next(self) -> bool:
        """Go on to the next list; False when that was the last."""
        self.at = 0
        while self.picked and self.picked[-1] + 1 == self.choices[-1]:
            self.picked.pop()
            self.choices.pop()
        if not self.picked:
            return False
        self.picked[-1] += 1
        return True


def all_schedules(run: Callable[[Chance], World], again: Callable[[Sequence[int]], str]) -> Iterator[World]:
    """All schedules of something.

    Args:
        run: one of them, of these choices, to its end.
        again: the command that shows one again, by its choices.

    Raises:
        Broken, Unexpected: a promise was broken, or something else was raised; its notes say by which choices.
    """
    chance = Enumerated()
    while True:
        try:
            yield run(chance)
        except FAILURES as failure:
            failure.add_note(again(chance.picked))
            raise
        if not chance.next():
            return


def told_in_short(picked: Sequence[int]) -> str:
    """Choices in one line; those at the end that are left out are 0."""
    last = max((at for at, choice in enumerate(picked) if choice), default=-1)
    return " ".join(map(str, picked[: last + 1]))
