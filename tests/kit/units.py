"""Units of work on an engine: tables, processes whose requests are counted and lost, and what is stored."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum
from typing import Any, Literal, cast

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from kit.awaited import Awaited
from kit.engines import Engine
from kit.in_a_loop import InALoop, Loop

from ticketlock import Lease, LockClient, LockTable, aio
from ticketlock.testing import ManualClock, MemoryDynamoDB, Sent
from ticketlock.units import Unit, Units, UnitTable, create_units_table
from ticketlock.units._records._record import new_id
from ticketlock.units._records._rows import OPEN, OPEN_INDEX

UnitsKind = Literal["threads", "tasks"]
Key = Mapping[str, Any]

VERSION, MARK = "_tluVersion", "_tluMark"
KEYS: Mapping[str, Mapping[str, str]] = {
    "units": {"unit": "S", "row": "S"},
    "accounts": {"id": "S"},
    "lines": {"pk": "S", "sk": "N"},
}
"""The tables, and their key attributes: the units table, and two of a user."""
VECTOR_INDEX: Any = {
    "IndexName": "by-meaning",
    "VectorAttribute": {"AttributeName": "vector"},
    "Projection": {"ProjectionType": "ALL"},
    "Dimensions": 2,
    "DistanceFunction": "COSINE",
}
"""An index that refuses an item whose attribute ``vector`` does not have two numbers."""
_LOST_FOR_S = 2
_ENDPOINT = "http://the.engine"


class Lost(Enum):
    """What happens to a request."""

    NOT_SENT = "not sent"
    REQUEST = "request lost"
    REPLY = "reply lost"
    CONFLICT = "refused beside another transaction"
    INTERRUPTED_BEFORE = "interrupted before it is sent"
    INTERRUPTED_AFTER = "interrupted before its reply is read"
    KILLED_BEFORE = "killed before it is sent"
    KILLED_AFTER = "killed before its reply is read"


class Killed(BaseException):
    """The process was killed."""


class Interrupt(BaseException):
    """An exception of a signal handler."""


@dataclass
class Loss:
    """Requests of one process that are lost.

    Attributes:
        first: the number of the first one, from 1 on.
        last: the number of the last one.
        operation: only requests of this operation are counted; None for all.
        error: what a signal handler raises, if one interrupts the process.
    """

    what: Lost
    first: int
    last: float
    operation: str | None = None
    error: BaseException | type[BaseException] = Interrupt
    seen: int = 0

    def strikes(self, operation: str) -> bool:
        """Whether this request is one of them."""
        if self.operation not in (None, operation):
            return False
        self.seen += 1
        return self.first <= self.seen <= self.last


THREADS_ONLY = pytest.mark.parametrize("units_kind", ["threads"], indirect=True)
"""For processes that are killed, or if a test acts between two requests: the tests' loop would wait for itself."""


class Line:
    """Between a client and the engine: records requests, loses some, and puts the world's time into each reply.

    Attributes:
        sent: each attempt.
        between: called once, before the next request of that operation is sent.
    """

    def __init__(self, client: Any, clock: ManualClock) -> None:
        self.sent: list[Sent] = []
        self.losses: list[Loss] = []
        self.between: dict[str, Callable[[], object]] = {}
        self._clock = clock
        self._loses_the_reply = self._is_killed = False
        self._then: BaseException | type[BaseException] | None = None
        events = client.meta.events
        events.register("provide-client-params.dynamodb", self._note)
        events.register_first("before-call.dynamodb", self._before)
        events.register("after-call.dynamodb", self._after)

    @property
    def operations(self) -> list[str]:
        """The names of the operations that were sent."""
        return [sent.operation for sent in self.sent]

    def _note(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        self.sent.append(Sent(model.name, dict(params)))

    def _before(self, model: Any, **_: Any) -> None:
        meanwhile = self.between.pop(model.name, None)
        if meanwhile is not None:
            meanwhile()
        if self._is_killed:
            raise Killed
        struck = {loss.what: loss.error for loss in self.losses if loss.strikes(model.name)}
        self._loses_the_reply = Lost.REPLY in struck
        self._is_killed = Lost.KILLED_BEFORE in struck or Lost.KILLED_AFTER in struck
        self._then = Killed if Lost.KILLED_AFTER in struck else struck.get(Lost.INTERRUPTED_AFTER)
        if Lost.KILLED_BEFORE in struck:
            raise Killed
        if Lost.INTERRUPTED_BEFORE in struck:
            raise struck[Lost.INTERRUPTED_BEFORE]
        if Lost.NOT_SENT in struck:
            self._clock.advance(_LOST_FOR_S)
            raise ConnectTimeoutError(endpoint_url=_ENDPOINT)
        if Lost.CONFLICT in struck:
            self._clock.advance(_LOST_FOR_S)
            raise _conflict(model.name)
        if Lost.REQUEST in struck:
            self._wait_in_vain()

    def _after(self, parsed: dict[str, Any], **_: Any) -> None:
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = formatdate(self._clock.wall_ms // 1_000, usegmt=True)
        if self._then is not None:
            raise self._then
        if self._loses_the_reply:
            self._wait_in_vain()

    def _wait_in_vain(self) -> None:
        self._clock.advance(_LOST_FOR_S)
        raise ReadTimeoutError(endpoint_url=_ENDPOINT)


@dataclass
class Books:
    """The tables of a module's tests, read and written by a plain client without faults.

    Attributes:
        tables: their names, by use.
        clock: of the world: time passes when a request is lost, and when a test says so.
    """

    engine: Engine
    plain_client: Any
    tables: Mapping[str, str]
    clock: ManualClock = field(default_factory=lambda: ManualClock(int(time.time() * 1_000)))

    def client(self) -> Any:
        """Another client, in the time of the world."""
        client = self.engine.client()
        Line(client, self.clock)
        return client

    def units(self, **options: Any) -> Units:
        """The units of another process, in the time of this machine."""
        return Units(self.tables["units"], client=self.engine.client(), **options)

    # Plain reads and writes.

    def account(self, balance: int = 100, **more: Any) -> dict[str, Any]:
        """A new account that a unit has written last. Returns its key."""
        key = some_account()
        self.write("accounts", {**key, "balance": balance, VERSION: new_version(), **more})
        return key

    def plain_account(self, balance: int = 100) -> dict[str, Any]:
        """One that no unit has written."""
        key = some_account()
        self.write("accounts", {**key, "balance": balance})
        return key

    def write(self, use: str, item: Mapping[str, Any]) -> None:
        """Put an item without a unit."""
        self.plain_client.put_item(TableName=self.tables[use], Item=dumped(item))

    def raw(self, use: str, key: Key) -> dict[str, Any] | None:
        """An item as stored, in Python values; None if there is none."""
        found = self.plain_client.get_item(TableName=self.tables[use], Key=dumped(key), ConsistentRead=True)
        return loaded(found["Item"]) if "Item" in found else None

    def item(self, use: str, key: Key) -> dict[str, Any] | None:
        """The same without the attributes of units."""
        found = self.raw(use, key)
        return found and {name: value for name, value in found.items() if not name.startswith("_tlu")}

    def balance(self, key: Key) -> int:
        found = self.raw("accounts", key)
        assert found is not None
        return int(found["balance"])

    def version(self, key: Key) -> str | None:
        """The unit that wrote an account last."""
        return (self.raw("accounts", key) or {}).get(VERSION)

    def receipt(self, name: str) -> dict[str, Any] | None:
        return self.raw("units", {"unit": f"name#{name}", "row": "receipt"})

    def everything(self) -> dict[str, list[Any]]:
        """All items of all tables, sorted: an engine may return their attributes in any order."""
        return {
            use: sorted(self._scanned(name), key=lambda item: [repr(item[each]) for each in KEYS[use]])
            for use, name in self.tables.items()
        }

    def empty(self) -> None:
        """Delete what other tests have left."""
        for use, items in self.everything().items():
            for item in items:
                key = dumped({name: item[name] for name in KEYS[use]})
                self.plain_client.delete_item(TableName=self.tables[use], Key=key)

    def balances(self, keys: Sequence[Key]) -> list[Any]:
        """The balances of accounts as stored; None for one that is not there, or is only about to be made."""
        return [(self.raw("accounts", key) or {}).get("balance") for key in keys]

    def marks(self, keys: Sequence[Key]) -> int:
        """How many of these accounts have a mark."""
        return sum(MARK in (self.raw("accounts", key) or {}) for key in keys)

    def rows(self, unit: str) -> dict[str, dict[str, Any]]:
        """The rows of a unit in the units table, by their sort keys."""
        return {row["row"]: row for row in self._scanned(self.tables["units"]) if row["unit"] == unit}

    def _scanned(self, name: str) -> list[Any]:
        pages = self.plain_client.get_paginator("scan").paginate(TableName=name, ConsistentRead=True)
        return [loaded(item) for page in pages for item in page["Items"]]


class Party:
    """One process: a client of its own, and units over it.

    Args:
        guarded: whether the table of lines is guarded.

    Attributes:
        units: its units.
        accounts, lines: the users' tables, as it knows them.
        line: between its client and the engine.
    """

    def __init__(self, books: Books, loop: Loop | None, *, guarded: bool = False, **options: Any) -> None:
        self.books = books
        self.client = books.engine.client()
        # One request at a time: they are counted and lost by their numbers, and moto has one thread.
        self.client.meta.config.max_pool_connections = 1
        self.line = Line(self.client, books.clock)
        self.units = self._made(loop, options)
        self.accounts: UnitTable = self.units.table(books.tables["accounts"])
        self.lines: UnitTable = self.units.table(books.tables["lines"], guarded=guarded)
        self.line.sent.clear()

    def _made(self, loop: Loop | None, options: Any) -> Units:
        name, clock = self.books.tables["units"], self.books.clock
        if loop is None:
            return Units(name, client=self.client, **{"clocks": clock, "sleep": clock.sleep, **options})

        def make() -> aio.Units:
            return aio.Units(name, client=Awaited(self.client), **{"clocks": clock, **options})

        made = InALoop(loop, loop.do(make))
        made.__enter__()
        return cast("Units", made)

    def begin(self, **terms: Any) -> Unit:
        return self.units.begin(**terms)

    def may_not_read_accounts(self) -> None:
        """From now on each BatchGetItem of accounts is denied."""

        def deny(params: Any, **_: Any) -> None:
            if self.books.tables["accounts"] in params["RequestItems"]:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not these"}}, "BatchGetItem")

        self.client.meta.events.register("provide-client-params.dynamodb.BatchGetItem", deny)

    def sends(self, do: Callable[[], object]) -> list[str]:
        """The operations that a call sends."""
        before = len(self.line.sent)
        do()
        return self.line.operations[before:]

    def loses(self, what: Lost, first: int, last: float | None = None, operation: str | None = None) -> Loss:
        """Lose its n-th request from now on, or all up to another one."""
        loss = Loss(what, first, last if last is not None else first, operation)
        self.line.losses.append(loss)
        return loss

    def changes(self, key: Key, balance: int) -> None:
        """Commit an account's new balance, in another unit."""
        with self.begin() as unit:
            unit.update(self.accounts, key, "SET balance = :balance", {":balance": balance})

    def saves(self, key: Key, owner: str | None = None, **terms: Any) -> str:
        """A unit that takes ten from an account, and is saved. Returns its id."""
        unit = self.begin(**terms)
        unit.update(self.accounts, key, "SET balance = balance - :n", {":n": 10})
        return str(unit.save(owner=owner))


@dataclass
class UnitsWorld:
    """The parties of one test."""

    books: Books
    loop: Loop | None
    open: ExitStack

    def party(self, **options: Any) -> Party:
        return Party(self.books, self.loop, **options)

    def killed(self, keys: Sequence[Key], *, is_committed: bool, noise: object = 0) -> str:
        """The id of a unit that sets accounts to 0; its process is killed before or after the decision: all are marked.

        Args:
            noise: a value that each account gets.
        """
        party = self.party()
        unit = party.begin(engine="marked")
        for key in keys:
            unit.update(party.accounts, key, "SET balance = :n, noise = :noise", {":n": 0, ":noise": noise})
        how = Lost.KILLED_AFTER if is_committed else Lost.KILLED_BEFORE
        party.loses(how, len(keys) + 1, operation="UpdateItem")
        with pytest.raises(Killed):
            unit.commit()
        return str(unit.id)

    def locks(self) -> LockClient:
        """A client for locks, on a table of the same engine."""
        made = LockClient(self.books.engine.table_name, client=self.books.client(), clocks=self.books.clock)
        return self.open.enter_context(made)

    def take_away(self, lease: Lease) -> None:
        """Take a lock from its holder, without notice."""
        table = LockTable(self.books.engine.table_name, client=self.books.engine.client())
        table.force_release(lease.lock, lease.fencing_token)


def _conflict(operation: str) -> ClientError:
    """DynamoDB's refusal of a transaction, or a write, that conflicts with another one; nothing was written."""
    response: Any = {"Error": {"Code": "TransactionConflictException", "Message": "Transaction is ongoing"}}
    if operation.startswith("Transact"):
        response["Error"]["Code"] = "TransactionCanceledException"
        response["CancellationReasons"] = [{"Code": "TransactionConflict"}]
    return ClientError(response, operation)


def some_account() -> dict[str, Any]:
    """The key of an account that does not exist."""
    return {"id": f"account-{uuid.uuid4().hex}"}


def some_line(number: int = 1) -> dict[str, Any]:
    """The key of a line that does not exist."""
    return {"pk": f"order-{uuid.uuid4().hex}", "sk": number}


def some_name() -> str:
    return f"name-{uuid.uuid4().hex}"


def new_version() -> str:
    """A new version as a plain writer writes it beside units."""
    return new_id(int(time.time() * 1_000))


def dumped(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: TypeSerializer().serialize(value) for name, value in item.items()}


def loaded(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: TypeDeserializer().deserialize(value) for name, value in item.items()}


def make_table(
    client: Any, name: str, keys: Mapping[str, str], also: Mapping[str, str] | None = None, **more: Any
) -> None:
    """Create a table with these attributes as its key.

    Args:
        also: further attributes, which are keys of indexes.
        more: of CreateTable, such as lists of indexes, made with ``index``.
    """
    kinds = {**keys, **(also or {})}
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in kinds.items()],
        KeySchema=_schema(dict(zip(keys, ("HASH", "RANGE"), strict=False))),
        **{"BillingMode": "PAY_PER_REQUEST", **more},
    )
    client.get_waiter("table_exists").wait(TableName=name)


def make_units_table(client: Any, name: str) -> None:
    """Create a units table whose rows no engine deletes: tests have another time than it."""
    make_table(client, name, KEYS["units"], {OPEN: "S"}, GlobalSecondaryIndexes=[OPEN_INDEX])


def make_tables(client: Any, names: Mapping[str, str]) -> None:
    """Create all tables, by their uses."""
    for use, name in names.items():
        make_units_table(client, name) if use == "units" else make_table(client, name, KEYS[use])


def in_memory(clock: ManualClock | None = None) -> MemoryDynamoDB:
    """DynamoDB in memory, with a units table ``units``, and an empty table ``accounts``."""
    memory = MemoryDynamoDB(clock=clock)
    create_units_table("units", client=memory.client)
    make_table(memory.client, "accounts", KEYS["accounts"])
    return memory


def index(name: str, roles: Mapping[str, str], **projection: Any) -> dict[str, Any]:
    """A secondary index with the roles of its keys, by their names; of whole items without a projection."""
    return {
        "IndexName": name,
        "KeySchema": _schema(roles),
        "Projection": {"ProjectionType": "ALL", **projection},
    }


def _schema(roles: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": role} for name, role in roles.items()]
