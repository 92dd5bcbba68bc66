"""What ``make proof`` prints, as it comes."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, Self, TypeVar

from rich.console import Console
from rich.table import Table

# A command that shows something again is on one line, also in a log.
_LINE = 220
_TOLD = 10_000
_A_CHUNK = 250
HUNTED = 10_000
"""Schedules on which something broken is looked for."""


class Counts(Protocol):
    """What a part of the search has found.

    Attributes:
        broken: each with the command that shows it again.
    """

    schedules: int
    broken: list[str]

    @property
    def counted(self) -> Mapping[str, str]:
        """What else was counted, by the heading of its column."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing came of any schedule: then it proves nothing."""
        ...

    def add(self, other: Self) -> None:
        """What another part has found as well."""
        ...


C = TypeVar("C", bound=Counts)


class Prey(Protocol):
    """The first schedule on which something broken was caught."""

    @property
    def seed(self) -> int: ...

    @property
    def promise(self) -> str: ...


class Broken(Protocol):
    """Something that is broken on purpose."""

    @property
    def name(self) -> str: ...

    @property
    def caught_by(self) -> frozenset[str]: ...


P = TypeVar("P", bound=Prey)


def chunks(schedules: int) -> Iterator[range]:
    """All seeds, in parts."""
    for first in range(0, schedules, _A_CHUNK):
        yield range(first, min(first + _A_CHUNK, schedules))


class Report:
    """What is printed, and whether all is well."""

    def __init__(self) -> None:
        self.console = Console() if sys.stdout.isatty() else Console(width=_LINE)
        self.failures: list[str] = []

    def hunts(
        self,
        title: str,
        hunts: Sequence[tuple[Broken, str, Future[tuple[P | None, float]]]],
        again: Callable[[int, str], str],
    ) -> int:
        """Everything broken, where it was seen, and by what it was caught.

        Args:
            hunts: whether each is caught, and the seconds that it took.
            again: the command that shows one again, by its seed and its name.

        Returns:
            How many were caught.
        """
        has_seen, count = any(seen_in for _, seen_in, _ in hunts), 0
        table = Table("broken", *(["as in"] if has_seen else []), "caught by", "shown again by", title=title)
        for broken, seen_in, hunt in hunts:
            prey, took_s = hunt.result()
            if prey is None:
                sought = f"{', '.join(sorted(broken.caught_by))} in {HUNTED:,} schedules, {took_s:.0f} s"
                self.failures.append(f"not caught by {sought}: {broken.name}")
                caught = "NOT CAUGHT", "-"
            else:
                caught = prey.promise, again(prey.seed, broken.name)
                count += 1
            table.add_row(broken.name, *([seen_in] if has_seen else []), *caught)
        self.console.print(table)
        return count

    def counts(
        self, title: str, new: Callable[[], C], parts: Iterable[tuple[str, Future[C]]], *, asked: int | None = None
    ) -> C:
        """How many schedules, and what they found.

        Args:
            new: what has found nothing yet.
            asked: how many there have to be at least, told in one line; None for a line of each part.

        Returns:
            All that was found.
        """
        total = new()
        table = Table("", "schedules", *total.counted, "broken", title=title)
        for name, future in parts:
            found = future.result()
            total.add(found)
            if asked is None:
                table.add_row(*_row(name, found))
            elif total.schedules // _TOLD > (total.schedules - found.schedules) // _TOLD:
                self.console.print(f"{total.schedules:,} schedules, {len(total.broken)} broken", style="dim")
            if found.is_idle and not found.broken:
                self.failures.append(f"{title}: nothing came of {found.schedules:,} schedules {name}")
        table.add_row(*_row("all", total))
        self.console.print(table)
        self.failures += total.broken
        if asked is not None and total.schedules + len(total.broken) < asked:
            self.failures.append(f"{title}: {total.schedules:,} schedules were run, and {asked:,} asked for")
        return total


def _row(name: str, found: Counts) -> tuple[str, ...]:
    return name, f"{found.schedules:,}", *found.counted.values(), str(len(found.broken))
