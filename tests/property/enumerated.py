"""Enumerates every list of choices of a schedule: a tree, searched depth first.

Also the choices of a bounded schedule: when a machine is preempted, and when a fault is injected.
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
    """Choices in order: first the first alternative of each, then the next list, until none is left."""

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
        """Continue with the next list; False if that was the last."""
        self.at = 0
        while self.picked and self.picked[-1] + 1 == self.choices[-1]:
            self.picked.pop()
            self.choices.pop()
        if not self.picked:
            return False
        self.picked[-1] += 1
        return True


def all_schedules(run: Callable[[Chance], World], again: Callable[[Sequence[int]], str]) -> Iterator[World]:
    """Run all schedules.

    Args:
        run: runs one schedule of these choices to its end.
        again: makes the command that replays a schedule from its choices.

    Raises:
        Broken, Unexpected: a promise was broken, or another error was raised; its notes list the choices.
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


def in_short(picked: Sequence[int]) -> str:
    """Choices in one line, without zeros at the end."""
    last = max((at for at, choice in enumerate(picked) if choice), default=-1)
    return " ".join(map(str, picked[: last + 1]))


class Bounded(Protocol[Who]):
    """A schedule with a bounded number of preemptions and faults."""

    @property
    def late(self) -> Sized:
        """Copies of requests that will arrive later."""

    def ready(self) -> Sequence[Who] | None:
        """Those that may continue; None if all is over."""

    def let_time_pass(self) -> None:
        """Let time pass until one may continue."""

    def go_on(self, who: Who) -> None:
        """Let one of them take one step."""

    def late_one_arrives(self, which: int) -> None:
        """Let one of the copies arrive."""

    def possible(self, who: Who) -> Sequence[str]:
        """The faults that may be injected into one of them now, if they make a difference."""

    def meets(self, who: Who, fault: str) -> None:
        """Inject one of them."""


def to_its_end(schedule: Bounded[Who], chance: Chance, first: Who, *, preemptions: int, faults: int) -> None:
    """Run to the end: each one continues until it sleeps, unless it is preempted.

    Args:
        first: which one begins.
        preemptions: how often at most one is interrupted that could continue.
        faults: how many faults at most.
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
