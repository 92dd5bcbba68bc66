"""How many calls of Python functions the library makes, and beside it the engine in memory: counts that a busy machine
does not change.

The clock stands still; one thread, no heartbeat, warm caches. The resumption of a generator is a call, too. From Python
3.12 on a comprehension is none, and the counts are up to a tenth lower.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ticketlock import LockClient
from ticketlock.locks._items import LockName
from ticketlock.locks._outcomes import Claim, Position
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import Units, create_units_table

MOST: Mapping[str, tuple[int, int]] = {
    "lock: an uncontended cycle": (510, 403),
    "lock: a waiter's poll": (199, 206),
    "unit: 1 read and updated": (542, 215),
    "unit: 3 read and updated": (1226, 525),
    "unit: 10 read and updated": (3621, 1610),
    "unit: a statement": (141, 0),
    "engine: GetItem": (0, 57),
    "engine: PutItem": (0, 108),
    "engine: UpdateItem": (0, 103),
    "engine: TransactWriteItems": (0, 272),
}
"""The most calls of the library, and of the engine: a tenth more than Python 3.11 made when this was last renewed.

``PYTHONPATH=tests python benchmarks/calls.py --renew`` prints it anew.
"""

_WARM = 20
_SIZES = (1, 3, 10)
_ADD, _ONE = "SET balance = balance + :one", {":one": 1}
_KEY = {"id": {"S": "a"}}
_WRITE = {
    "TableName": "accounts",
    "Key": _KEY,
    "UpdateExpression": "SET #balance = #balance + :one, #my = :one REMOVE gone",
    "ConditionExpression": "attribute_exists(id) AND #balance >= :one",
    "ExpressionAttributeNames": {"#balance": "balance", "#my": "my"},
    "ExpressionAttributeValues": {":one": {"N": "1"}},
}


@dataclass
class Calls:
    """The calls of the library and of the engine, as far as ``count`` has come."""

    by_library: int = 0
    by_engine: int = 0
    is_inside: bool = False

    def count(self, do: Callable[[], object]) -> tuple[int, int]:
        """Both counts of one more run, behind some that fill the caches."""
        for _ in range(_WARM):
            do()
        self.by_library = self.by_engine = 0
        # A collection in between would run finalisers of others.
        gc.collect()
        gc.disable()
        sys.setprofile(self._note)
        try:
            do()
        finally:
            sys.setprofile(None)
            gc.enable()
        return self.by_library, self.by_engine

    def _note(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self.by_engine += self.is_inside
            self.by_library += not self.is_inside


class _Engine:
    """The engine as a client: its calls are counted apart."""

    def __init__(self, engine: MemoryDynamoDB, calls: Calls) -> None:
        self.meta = engine.meta
        self._engine, self._calls = engine, calls

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        method = getattr(self._engine, operation)

        def send(**parameters: Any) -> Any:
            self._calls.is_inside = True
            try:
                return method(**parameters)
            finally:
                self._calls.is_inside = False

        return send


def counted() -> Iterator[tuple[str, tuple[int, int]]]:
    """What is counted, with both counts."""
    calls, clock = Calls(), ManualClock()
    engine = MemoryDynamoDB(clock=clock)
    client: Any = _Engine(engine, calls)

    locks = LockClient("locks", client=client, clocks=clock, sleep=clock.sleep, heartbeat=False)
    yield "lock: an uncontended cycle", calls.count(lambda: locks.acquire("free").release())
    with locks.acquire("held"):
        claim = Claim(LockName("held"), "waiter", 60_000)
        position = locks.table.take_ticket(claim, None)
        assert isinstance(position, Position)
        yield "lock: a waiter's poll", calls.count(lambda: locks.table.check_turn(claim, position.place, None))

    create_units_table("units", client=engine.client)
    engine.create_table(
        TableName="accounts",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    units = Units("units", client=client, clocks=clock, sleep=clock.sleep)
    accounts = units.table("accounts")
    keys = [{"id": f"account-{number}"} for number in range(max(_SIZES))]

    def update(count: int) -> None:
        with units.begin() as unit:
            for key in keys[:count]:
                unit.get(accounts, key)
            for key in keys[:count]:
                unit.update(accounts, key, _ADD, _ONE)

    with units.begin() as unit:
        for key in keys:
            unit.put(accounts, {**key, "balance": 0})
    for count in _SIZES:
        yield f"unit: {count} read and updated", calls.count(lambda: update(count))  # noqa: B023 called at once
    with units.begin() as unit:
        yield "unit: a statement", calls.count(lambda: unit.update(accounts, keys[0], _ADD, _ONE))

    client.put_item(TableName="accounts", Item={**_KEY, "balance": {"N": "1"}})
    write = {name: each for name, each in _WRITE.items() if name not in ("Key", "UpdateExpression")}
    write["ExpressionAttributeNames"] = {"#balance": "balance"}
    item = {**_KEY, "balance": {"N": "5"}, "notes": {"L": [{"S": "a"}, {"M": {"b": {"N": "1"}}}]}}
    other = {**_WRITE, "Key": {"id": {"S": "account-0"}}}
    token = iter(range(10**6))
    requests: dict[str, Callable[[], object]] = {
        "GetItem": lambda: client.get_item(TableName="accounts", Key=_KEY),
        "PutItem": lambda: client.put_item(Item=item, **write),
        "UpdateItem": lambda: client.update_item(**_WRITE),
        "TransactWriteItems": lambda: client.transact_write_items(
            TransactItems=[{"Update": _WRITE}, {"Update": other}], ClientRequestToken=str(next(token))
        ),
    }
    for name, send in requests.items():
        yield f"engine: {name}", (0, calls.count(send)[1])
