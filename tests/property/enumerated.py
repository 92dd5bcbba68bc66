"""Every list of choices that a schedule can be made of, one after the other: a tree, searched depth first.

And what is chosen in a schedule that is bounded: where somebody is preempted, and where a fault is met.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from property.chance import Chance
from property.failures import FAILURES

World = TypeVar("World")
Who = TypeVar("Who")


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


class Bounded(Protocol[Who]):
    """A schedule in which preemptions and faults are counted."""

    @property
    def late(self) -> Sized:
        """Copies of requests that are still to arrive."""

    def ready(self) -> Sequence[Who] | None:
        """Who may go on; None when all is over."""

    def let_time_pass(self) -> None:
        """Until somebody may go on."""

    def go_on(self, who: Who) -> None:
        """One step of one of them."""

    def late_one_arrives(self, which: int) -> None:
        """One of the copies does."""

    def possible(self, who: Who) -> Sequence[str]:
        """The faults that may meet somebody now, each where it makes a difference."""

    def meets(self, who: Who, fault: str) -> None:
        """One of them does."""


def to_its_end(schedule: Bounded[Who], chance: Chance, first: Who, *, preemptions: int, faults: int) -> None:
    """Whoever goes on goes on until it sleeps, unless it is preempted.

    Args:
        first: who begins.
        preemptions: how often at most somebody is interrupted that could go on.
        faults: how many at most.
    """
    current = first
    while (ready := schedule.ready()) is not None:
        if not ready:
            schedule.let_time_pass()
            continue
        others = [each for each in ready if each is not current]
        if current not in ready:
            current = others[chance.pick(len(others))]
            continue
        possible = schedule.possible(current) if faults else ()
        late = len(schedule.late)
        picked = chance.pick(1 + late + len(possible) + (len(others) if preemptions else 0))
        if picked == 0:
            schedule.go_on(current)
        elif picked <= late:
            schedule.late_one_arrives(picked - 1)
        elif picked <= late + len(possible):
            faults -= 1
            schedule.meets(current, possible[picked - late - 1])
        else:
            preemptions -= 1
            current = others[picked - late - len(possible) - 1]
