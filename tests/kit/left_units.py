"""Units that crashed processes have left, minutes ago, and units as a list shows them."""

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from kit.crashes import crashes
from kit.units import VECTOR_INDEX, Books, Killed, Party

from ticketlock.errors import CommittedUnfinished
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import OpenUnit, Outcome

AGO_S = 300
"""Longer than a lease, and not so long that a unit is closed when it is settled."""
PENDING = OpenUnit(
    unit="01KAQBT0E4SA1M0SPPS3EJ8KYB",
    state=Outcome.PENDING,
    is_closed=False,
    age_s=10.0,
    lease_ends_in_s=50.0,
    ended_for_s=None,
    items=2,
    rolled_back_by=None,
    is_saved=False,
    owner=None,
)
EXPIRED = replace(PENDING, lease_ends_in_s=-1.0)
COMMITTED = replace(PENDING, state=Outcome.COMMITTED, lease_ends_in_s=None, ended_for_s=60.0)


def _then(books: Books, ago_s: int) -> Books:
    return Books(books.engine, books.plain_client, books.tables, ManualClock(int((time.time() - ago_s) * 1_000)))


def left(books: Books, names: Sequence[str], *, is_committed: bool = False, ago_s: int | None = None) -> str:
    """The id of a unit that sets balances to nought, whose process crashed before its decision or after it.

    Args:
        ago_s: how long ago; None for just now, if pending with a lease of minutes, since the machine may be busy.
    """
    if ago_s is None:
        ago_s = 0 if is_committed else -AGO_S
    ann = Party(_then(books, ago_s), None)
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
    ann = Party(_then(books, ago_s), None, guarded=True)
    unit = ann.begin()
    unit.put(ann.lines, {"pk": "an order", "sk": 1})
    crashes(ann, 1, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    return unit.id


def left_refused(memory: MemoryDynamoDB, books: Books, others: int = 0) -> str:
    """The id of a unit committed minutes ago: DynamoDB refuses what it writes to ann's account, after the others'."""
    books.write("accounts", {"id": "ann", "balance": 100})
    ann = Party(_then(books, AGO_S), None)
    memory.update_table(TableName="accounts", VectorIndexUpdates=[{"Create": VECTOR_INDEX}])
    unit = ann.begin(engine="marked")
    unit.put_all(ann.accounts, [{"id": f"other-{number}"} for number in range(others)])
    unit.update(ann.accounts, {"id": "ann"}, "SET vector = :v, photo = :p", {":v": [1], ":p": b"\x00\xff"})
    with pytest.raises(CommittedUnfinished):
        unit.commit()
    return unit.id
