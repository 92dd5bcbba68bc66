"""The promises of the simulated world, checked in a table at the end of a test.

A test that breaks one on purpose has the mark `@pytest.mark.leaves_a_promise_broken("why")`, and must leave it broken;
`error=` names the exception if the promises cannot even be checked.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kit.invariants import Broken, counts
from ticketlock_local.demo.promises import Acquisition, by_entity, fencing

from ticketlock.locks._items import LockItem, Row, is_lock_item
from ticketlock.wire._actions import Item

ON_PURPOSE = "leaves_a_promise_broken"


@contextmanager
def kept_by(test: pytest.FixtureRequest) -> Iterator[None]:
    """What is checked within the block holds; or does not, after a test with the mark."""
    on_purpose = test.node.get_closest_marker(ON_PURPOSE)
    if on_purpose is None:
        yield
        return
    with pytest.raises(on_purpose.kwargs.get("error", Broken)):
        yield


def stored(client: Any, table_name: str, entity: str) -> list[Item]:
    """All items of an entity: its locks, their queues, and everything else."""
    pages = client.get_paginator("query").paginate(
        TableName=table_name,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": entity}},
        ConsistentRead=True,
    )
    return [item for page in pages for item in page["Items"]]


def counts_are_kept(items: Iterable[Item], now_ms: int) -> None:
    """Every item of a lock can be read, and the counts are those of the holders and of the unexpired rows.

    Args:
        items: of whole locks; other items are ignored.
        now_ms: no earlier than the table's time.
    """
    items_of: dict[tuple[str, str], Item] = {}
    rows_of: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for item in items:
        sort_key = item["sk"]["S"]
        # Keys of sessions begin with the slash, those of other items have none.
        if sort_key.find("/") < 1:
            continue
        lock = (item["pk"]["S"], sort_key.rpartition("/")[0])
        if is_lock_item(item):
            items_of[lock] = item
        else:
            rows_of[lock].append(_row(item))
    for lock, item in items_of.items():
        counts(LockItem.parse(item), item, [row for row in rows_of[lock] if row.lease_until_ms >= now_ms])


def _row(item: Item) -> Row:
    try:
        return Row.parse(item)
    except KeyError as missing:
        raise Broken(f"counts: a row without {missing}: {item}") from missing


def tokens_grow(acquisitions: Iterable[Acquisition]) -> None:
    """Of two grants of a lock, one that was requested after the other was received has the greater token."""
    for of_one_lock in by_entity(acquisitions).values():
        for failure in fencing(of_one_lock):
            raise Broken(failure)
