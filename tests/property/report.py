"""What ``make proof`` prints, as it comes."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from property.counts import Counts
from property.on_purpose import BrokenOnPurpose, Caught, first_broken
from rich.console import Console
from rich.table import Table

# A command that shows something again is on one line, also in a log.
_LINE = 220
_TOLD = 10_000
_A_CHUNK = 250
_HUNTED = 10_000


C = TypeVar("C", bound=Counts[Any])


Hunt = tuple[Caught | None, float]
"""Whether something broken is caught, and the seconds that it took."""


def hunted(broken: BrokenOnPurpose) -> Hunt:
    """Look for what is broken in as many schedules as ``make proof`` has for that."""
    began = time.perf_counter()
    return first_broken(broken, range(_HUNTED)), time.perf_counter() - began


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
        hunts: Sequence[tuple[BrokenOnPurpose, str, Future[Hunt]]],
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
            caught, took_s = hunt.result()
            if caught is None:
                sought = f"{', '.join(sorted(broken.caught_by))} in {_HUNTED:,} schedules, {took_s:.0f} s"
                self.failures.append(f"not caught by {sought}: {broken.name}")
                told = "NOT CAUGHT", "-"
            else:
                told = caught.promise, again(caught.seed, broken.name)
                count += 1
            table.add_row(broken.name, *([seen_in] if has_seen else []), *told)
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


def _row(name: str, found: Counts[Any]) -> tuple[str, ...]:
    return name, f"{found.schedules:,}", *found.counted.values(), str(len(found.broken))
