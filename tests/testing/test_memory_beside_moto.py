"""The DynamoDB in memory and moto answer all requests of random processes alike, also late copies."""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.engines import Engine, engine_named

from ticketlock import Claim, Grant, LockName, LockTable, Position, TicketLockError
from ticketlock.testing import ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.verify("thousands of requests, each to two engines")

LEASE_MS = 60_000
STEPS = 100
REFUSALS = ("ConditionalCheckFailedException", "TransactionCanceledException")


class Both:
    """A client whose requests go to the memory and to moto, and must be answered alike.

    Attributes:
        codes: the errors that were answered.
        sent: the requests so far.
    """

    def __init__(self, memory: MemoryDynamoDB, moto: Any) -> None:
        self._clients = (memory, moto)
        self.meta = memory.meta
        self.codes: set[str] = set()
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Any:
        return lambda **parameters: self._sent(operation, parameters)

    def deliver_a_late_copy(self, choose: random.Random) -> None:
        operation, parameters = choose.choice(self.sent[-20:])
        with contextlib.suppress(ClientError):
            self._sent(operation, parameters)

    def _sent(self, operation: str, parameters: dict[str, Any]) -> Any:
        # moto does not know the token, and would apply a copy again.
        parameters.pop("ClientRequestToken", None)
        self.sent.append((operation, parameters))
        (reply, error), (other_reply, other_error) = (answer(client, operation, parameters) for client in self._clients)
        assert plain(reply) == plain(other_reply), (operation, parameters)
        if error is not None and other_error is not None:
            self.codes.add(reply["Error"]["Code"])
            raise error
        return reply


def answer(client: Any, operation: str, parameters: dict[str, Any]) -> tuple[Any, ClientError | None]:
    try:
        return getattr(client, operation)(**parameters), None
    except ClientError as error:
        return error.response, error


def plain(value: Any) -> Any:
    """Without what a service says of itself, and numbers as numbers: engines write them in several ways."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        if value.keys() == {"N"} and isinstance(value["N"], str):
            return Decimal(value["N"])
        return {name: plain(each) for name, each in value.items() if name not in OF_THE_SERVICE and each}
    return value


# A page that ends at its limit tells where to go on, in DynamoDB and in memory, also when nothing follows.
OF_THE_SERVICE = {"ResponseMetadata", "ConsumedCapacity", "Message", "message", "LastEvaluatedKey"}


@pytest.fixture
def moto() -> Iterator[Engine]:
    with engine_named("moto", str) as engine:
        yield engine


@dataclass
class Owner:
    """An owner that sends any request at any time, with positions and grants from earlier replies."""

    table: LockTable
    claim: Claim
    places: list[Position] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)

    def does_something(self, choose: random.Random) -> None:
        doing = choose.choice(["take", "poll", "poll", "leave", "renew", "release"])
        try:
            if doing == "take":
                self._told(self.table.take_ticket(self.claim, None))
            elif doing == "poll" and self.places:
                self._told(self.table.check_turn(self.claim, choose.choice(self.places[-2:]).place, None))
            elif doing == "leave" and self.places:
                self.table.withdraw(self.claim, choose.choice(self.places[-2:]).place.ticket)
            elif doing == "renew" and self.grants:
                self.table.renew(self.claim, choose.choice(self.grants[-2:]).fencing_token)
            elif doing == "release" and self.grants:
                self.table.release(self.claim, choose.choice(self.grants[-2:]))
        except TicketLockError:
            pass

    def _told(self, found: Grant | Position) -> None:
        if isinstance(found, Grant):
            self.grants.append(found)
        else:
            self.places.append(found)


@pytest.mark.parametrize("seed", range(3))
def test_every_request_has_one_answer(moto: Engine, clock: ManualClock, seed: int) -> None:
    choose, clients = random.Random(seed), (MemoryDynamoDB(lock_table=moto.table_name, clock=clock), moto.client())
    both: Any = Both(*clients)
    table = LockTable(moto.table_name, client=both, clocks=clock, sleep=clock.sleep)
    claims = [Claim(LockName("order-42"), name, LEASE_MS, permits=2, data=name) for name in "abcdef"]
    owners = [Owner(table, claim) for claim in claims]
    table.now()
    for _ in range(STEPS):
        choose.choice(owners).does_something(choose)
        both.deliver_a_late_copy(choose)
        clock.advance(choose.choice([0.1, 1, 10, 40]))
    assert {"ConditionalCheckFailedException"} <= both.codes <= {*REFUSALS}
    assert {"Query", "TransactWriteItems", "DeleteItem"} <= {sent.operation for sent in clients[0].sent}
    left = [plain(each.scan(TableName=moto.table_name)["Items"]) for each in clients]
    assert sorted(left[0], key=str) == sorted(left[1], key=str)
