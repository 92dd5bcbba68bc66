"""What all benchmarks share: flags, checks and the exit status, tables, engines, and sides that run in turn.

A benchmark is a function that takes a ``Run``, measures, prints tables, and collects checks. ``main`` parses the flags,
calls it, prints the checks, and returns the exit status: 1 if a check failed, or if the benchmark could not run.

A check of speed compares two figures of one run, never a duration with a constant. A short run may be on a busy
machine: it gives the bound the room that its check states, and measures a part that misses it again, up to twice.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from memory_server import memory_server
from rich.console import Console
from rich.table import Table
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.dynoxide import dynoxide
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import CargoMissing, LocalCloudError

T = TypeVar("T")

TRIES = 3
"""How often a short run measures a part, until its comparisons are kept."""
ROOM = 1.25
"""The room of a comparison in a short run, if it says no other: as measured beside busy processes."""

_REASONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Check:
    """What must be true, whether it is, and whether it depends on the pace of the machine."""

    text: str
    kept: bool
    compares: bool = False
    figure: str = ""


class Run:
    """One run of a benchmark.

    Attributes:
        flags: as parsed; ``flags.quick`` asks for a short run, which shows that the program still works.
        checks: those added until now.
    """

    def __init__(self, flags: argparse.Namespace | None = None) -> None:
        self.flags = flags or argparse.Namespace(quick=True)
        self.quick: bool = self.flags.quick
        self.checks: list[Check] = []
        self._console = Console(width=120)

    def print(self, text: str) -> None:
        """Print a sentence."""
        self._console.print(text, highlight=False, markup=False)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, texts: int = 1) -> None:
        """Print a table.

        Args:
            title: above it.
            columns: their names.
            rows: their values; None is an empty cell, and an empty row draws a line.
            texts: how many of the first columns are texts, and so left-aligned.
        """
        table = Table(title=title or None, title_justify="left")
        for number, column in enumerate(columns):
            is_text = number < texts
            table.add_column(column, justify="left" if is_text else "right", no_wrap=is_text)
        for row in rows:
            if row:
                table.add_row(*(shown(value) for value in row))
            else:
                table.add_section()
        self._console.print(table)

    def check(self, text: str, kept: bool) -> None:
        """Add a check: what must be true, and whether it is."""
        self.checks.append(Check(text, kept))

    def compare(self, text: str, figure: float, *, most: float = inf, least: float = -inf, room: float = ROOM) -> None:
        """Add a check of a figure that compares two sides of this run.

        Args:
            text: what the figure is.
            figure: usually one side's result divided by the other's.
            most: its bound in a whole run; or
            least: its bound in a whole run.
            room: a short run's bound is ``most`` times this, or ``least`` divided by this.
        """
        given = room if self.quick else 1
        bound = f"at most {most * given:.4g}" if most < inf else f"at least {least / given:.4g}"
        why = (
            f" ({most if most < inf else least:g} with a short run's room, a factor of {room:g})" if given != 1 else ""
        )
        kept = least / given <= figure <= most * given
        self.checks.append(Check(f"{text}: {bound}{why}", kept, compares=True, figure=f"{figure:.4g}"))

    def part(self, measure: Callable[[], object]) -> None:
        """Measure a part. A short run that misses comparisons measures it again: each must be kept once.

        All other checks must be kept each time.
        """
        began, made = len(self.checks), dict[str, Check]()
        for tries_left in reversed(range(TRIES if self.quick else 1)):
            measure()
            for each in self.checks[began:]:
                before = made.get(each.text)
                if before is None or before.kept is not each.compares:
                    made[each.text] = each
            del self.checks[began:]
            missed = [f"{each.text}; it is {each.figure}" for each in made.values() if each.compares and not each.kept]
            if not missed:
                break
            if tries_left:
                self.print(f"Missed, and measured again: {'; '.join(missed)}")
        self.checks += made.values()

    def fail(self, name: str, reasons: Sequence[str]) -> None:
        """Add a failed check for each reason, but not for all of very many."""
        for reason in reasons[:_REASONS_SHOWN]:
            self.check(f"{name}: {reason}", False)
        if len(reasons) > _REASONS_SHOWN:
            self.check(f"{name}: and {len(reasons) - _REASONS_SHOWN} more", False)

    @property
    def failed(self) -> list[str]:
        """The checks that failed."""
        return [each.text for each in self.checks if not each.kept]


def shown(value: object) -> str:
    """A value in a table."""
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


Flag = tuple[str, Mapping[str, Any]]


def main(measure: Callable[[Run], None], doc: str | None, quick: str, *flags: Flag) -> int:
    """Run a benchmark.

    Args:
        measure: the benchmark.
        doc: of its program.
        quick: what ``--quick`` leaves out.
        flags: further arguments of the program: the name, and the options of ``add_argument``.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    for name, options in flags:
        parser.add_argument(name, **options)
    run = Run(parser.parse_args())
    try:
        measure(run)
    except (LocalCloudError, BotoCoreError, ClientError) as error:
        print(error, file=sys.stderr)
        return 1
    for each in run.checks:
        print(f"{'PASS  ' if each.kept else 'FAILED'} {each.text}{each.figure and f'; it is {each.figure}'}")
    return 1 if run.failed else 0


@contextmanager
def engine(*names: str) -> Iterator[tuple[str, str]]:
    """Start the first of these engines that can run here, and point this process's AWS clients to it.

    Args:
        names: of ``dynoxide``, which cargo builds if necessary and which is left out without cargo; ``ministack``;
            ``memory``.

    Yields:
        The engine's name, and its URL.
    """
    servers: Mapping[str, Callable[[], AbstractContextManager[str]]] = {
        "dynoxide": dynoxide,
        "ministack": _ministack,
        "memory": memory_server,
    }
    with ExitStack() as stack:
        for name in names:
            try:
                url = stack.enter_context(servers[name]())
                break
            except CargoMissing as error:
                if name == names[-1]:
                    raise
                print(error, file=sys.stderr)
        os.environ |= client_environment(url)
        yield name, url


@contextmanager
def _ministack() -> Iterator[str]:
    with Emulator() as running:
        yield running.endpoint


def make_table(client: Any, name: str, *keys: str) -> None:
    """Create a table whose key attributes are texts."""
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)],
    )
    client.get_waiter("table_exists").wait(TableName=name)


def in_turn(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each side returns: all of them one after the other, again and again."""
    returned: dict[str, list[T]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, do in sides.items():
            returned[name].append(do())
    return returned


def timed(do: Callable[[], object]) -> float:
    """How many seconds it takes."""
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def ratio(one: float, other: float) -> str:
    """One figure divided by another, to print."""
    return f"{one / other:.2f}" if other else "-"
