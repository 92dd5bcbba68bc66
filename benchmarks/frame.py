"""What all benchmarks share: flags, checks and the exit status, tables, engines, and sides that run in turn.

A benchmark is a function that takes a ``Run``, measures, prints tables, and collects checks. ``main`` parses the flags,
calls it, prints the checks, and returns the exit status: 1 if a check failed, or if the benchmark could not run.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from memory_server import memory_server
from moto_server import moto_server
from rich.console import Console
from rich.table import Table
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.dynoxide import dynoxide
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import CargoMissing, LocalCloudError

T = TypeVar("T")

_REASONS_SHOWN = 20


class Run:
    """One run of a benchmark.

    Attributes:
        flags: as parsed; ``flags.quick`` asks for a short run, which shows that the program still works.
        checks: each text, and whether the check was kept.
    """

    def __init__(self, flags: argparse.Namespace | None = None) -> None:
        self.flags = flags or argparse.Namespace(quick=True)
        self.quick: bool = self.flags.quick
        self.checks: list[tuple[str, bool]] = []
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

    def check(self, text: str, kept: bool, *, of_speed: bool = False) -> None:
        """Add a check.

        Args:
            text: what must be true.
            kept: whether it is.
            of_speed: it compares durations, rates or growth, which a short run on a busy machine may miss.
        """
        if kept or not (of_speed and self.quick):
            self.checks.append((text, kept))
        else:
            self.print(f"Missed in a short run, which judges neither speed nor growth: {text}")

    def fail(self, name: str, reasons: Sequence[str]) -> None:
        """Add a failed check for each reason, but not for all of very many."""
        for reason in reasons[:_REASONS_SHOWN]:
            self.check(f"{name}: {reason}", False)
        if len(reasons) > _REASONS_SHOWN:
            self.check(f"{name}: and {len(reasons) - _REASONS_SHOWN} more", False)

    @property
    def failed(self) -> list[str]:
        """The checks that failed."""
        return [text for text, kept in self.checks if not kept]


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
    for text, kept in run.checks:
        print(f"{'PASS  ' if kept else 'FAILED'} {text}")
    return 1 if run.failed else 0


@contextmanager
def engine(*names: str) -> Iterator[tuple[str, str]]:
    """Start the first of these engines that can run here, and point this process's AWS clients to it.

    Args:
        names: of ``dynoxide``, which cargo builds if necessary and which is left out without cargo; ``ministack``;
            ``moto``; ``memory``.

    Yields:
        The engine's name, and its URL.
    """
    servers: Mapping[str, Callable[[], AbstractContextManager[str]]] = {
        "dynoxide": dynoxide,
        "ministack": _ministack,
        "moto": moto_server,
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
