"""Units that crashed processes have left, minutes ago."""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from kit.crashes import crashes
from kit.engines import Engine
from kit.units import KEYS, Books, Killed, Party, make_table

from ticketlock.testing import ManualClock

AGO_S = 300
"""Longer than a lease, and not so long that a unit is closed when it is settled."""


def left(books: Books, names: Sequence[str], *, is_committed: bool = False, ago_s: int | None = None) -> str:
    """The id of a unit that sets balances to nought, whose process crashed before its decision or after it.

    Args:
        ago_s: how long ago; None for just now, if pending with a lease of minutes, since the machine may be busy.
    """
    if ago_s is None:
        ago_s = 0 if is_committed else -AGO_S
    then = ManualClock(int((time.time() - ago_s) * 1_000))
    ann = Party(Books(books.engine, books.plain_client, books.tables, then), None)
    with ann.begin() as made:
        for name in names:
            made.put(ann.accounts, {"id": name, "balance": 100, "secret": f"of {name}"})
    unit = ann.begin(engine="marked")
    for name in names:
        unit.update(ann.accounts, {"id": name}, "SET balance = :n REMOVE secret", {":n": 0})
    crashes(ann, len(names) + 1, is_sent=is_committed)
    with pytest.raises(Killed):
        unit.commit()
    return unit.id


def left_insert(books: Books, *, ago_s: int) -> str:
    """The id of a committed unit that inserts into a guarded table, whose process crashed after its decision."""
    then = ManualClock(int((time.time() - ago_s) * 1_000))
    ann = Party(Books(books.engine, books.plain_client, books.tables, then), None, guarded=True)
    unit = ann.begin()
    unit.put(ann.lines, {"pk": "an order", "sk": 1})
    crashes(ann, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    return unit.id


@contextmanager
def books_on(engine: Engine, client: Any, names: dict[str, str]) -> Iterator[Books]:
    """Tables for units, deleted afterwards."""
    for use, name in names.items():
        make_table(client, name, KEYS[use])
    yield Books(engine, client, names)
    for name in names.values():
        client.delete_table(TableName=name)


def some_names() -> dict[str, str]:
    suffix = uuid.uuid4().hex[:8]
    return {use: f"{use}-{suffix}" for use in KEYS}
