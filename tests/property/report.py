"""Deliberate breakages, each one change of the real code; and the results of ``make proof``, printed as they come."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from unittest.mock import patch

from property.chance import Chance, Seeded
from property.failures import FAILURES, Counts, kind_of
from rich.console import Console
from rich.table import Table

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


def all_from(first: int, schedules: int) -> Iterator[int]:
    """All seeds, of which those before the first come last."""
    yield from range(first, schedules)
    yield from range(first)


def asking_less(always: str, original: Callable[..., Write], *conditions: str) -> Callable[..., Write]:
    """A write in which a condition that always holds replaces these."""

    def write(*args: Any, **kwargs: Any) -> Write:
        made = original(*args, **kwargs)
        condition = made.condition
        for each in conditions:
            condition = condition.replace(each, always)
        return replace(made, condition=condition)

    return write


# A command that replays a schedule stays on one line, also in a log.
_LINE = 220
_TOLD = 10_000
_A_CHUNK = 250
_HUNTED = 10_000

C = TypeVar("C", bound=Counts[Any])

Hunt = tuple[Caught | None, float]
"""Whether broken code is caught, and the seconds that it took."""


def hunted(broken: BrokenOnPurpose) -> Hunt:
    """Search for broken code in as many schedules as ``make proof`` has for that."""
    began = time.perf_counter()
    return first_broken(broken, range(_HUNTED)), time.perf_counter() - began


def chunks(schedules: int, first: int = 0) -> Iterator[range]:
    """So many seeds, in ranges."""
    for begin in range(first, first + schedules, _A_CHUNK):
        yield range(begin, min(begin + _A_CHUNK, first + schedules))


class Report:
    """What is printed, and whether everything succeeded.

    Attributes:
        figures: those of each part as they are printed, by the part's title.
    """

    def __init__(self) -> None:
        self.console = Console() if sys.stdout.isatty() else Console(width=_LINE)
        self.failures: list[str] = []
        self.figures: dict[str, dict[str, str]] = {}

    def hunts(
        self,
        title: str,
        hunts: Sequence[tuple[BrokenOnPurpose, str, Future[Hunt]]],
        again: Callable[[int, str], str],
    ) -> None:
        """Print each piece of broken code, where it was seen, and what caught it.

        Args:
            hunts: whether each was caught, and the seconds that it took.
            again: makes the command that replays one from its seed and its name.
        """
        has_seen, seeds = any(seen_in for _, seen_in, _ in hunts), []
        table = Table("broken", *(["as in"] if has_seen else []), "caught by", "shown again by", title=title)
        for broken, seen_in, hunt in hunts:
            caught, took_s = hunt.result()
            if caught is None:
                sought = f"{', '.join(sorted(broken.caught_by))} in {_HUNTED:,} schedules, {took_s:.0f} s"
                self.failures.append(f"not caught by {sought}: {broken.name}")
                cells = "NOT CAUGHT", "-"
            else:
                cells = caught.promise, again(caught.seed, broken.name)
                seeds.append(caught.seed)
            table.add_row(broken.name, *([seen_in] if has_seen else []), *cells)
        self.console.print(table)
        self.console.print(f"{len(hunts)} broken on purpose, {len(seeds)} caught")
        self.figures[title] = {
            "broken on purpose": f"{len(hunts)}",
            "caught": f"{len(seeds)}",
            "highest seed needed": f"{max(seeds, default=0):,}",
        }

    def counts(
        self, title: str, new: Callable[[], C], parts: Iterable[tuple[str, Future[C]]], *, asked: int | None = None
    ) -> C:
        """Print how many schedules were run, and what they found.

        Args:
            new: an empty result.
            asked: the least number of schedules, reported in one line; None for a line for each part.

        Returns:
            The sum of the results.
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
                self.failures.append(f"{title}: nothing happened in {found.schedules:,} schedules {name}")
        table.add_row(*_row("all", total))
        self.console.print(table)
        self.figures[title] = {"schedules": f"{total.schedules:,}", **total.counted}
        self.failures += total.broken
        if asked is not None and total.schedules + len(total.broken) < asked:
            self.failures.append(f"{title}: {total.schedules:,} schedules were run, and {asked:,} asked for")
        return total


def _row(name: str, found: Counts[Any]) -> tuple[str, ...]:
    return name, f"{found.schedules:,}", *found.counted.values(), str(len(found.broken))
