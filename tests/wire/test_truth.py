"""What a request is reported to have done, and what it did: the table is read after every single one.

``RequestNotApplied`` is true if the table has not changed, and will not change by this request; *applied*, if it has;
``OutcomeUnknown`` always is.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.config import Config
from kit.certificates import Certificate
from kit.faults import (
    Fault,
    RandomFaults,
    delivered_twice,
    gateway_failed,
    reply_broken_off,
    reply_garbled,
    reply_lost,
    reply_withheld,
    request_lost,
    slow_by,
    unharmed,
)
from kit.in_a_loop import Loop
from kit.places import Kind, some_entity, until
from kit.proxy import Proxy
from kit.tunnel import Reception
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockTable, OutcomeUnknown, RequestNotApplied
from ticketlock.locks._for_tasks._lock_table import LockTable as AsyncLockTable
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire._actions import Reply
from ticketlock.wire._driver import Driver, SystemClocks
from ticketlock.wire._requests import Request, TransactWrite, Write
from ticketlock.wire._sdk import CLIENT_SETTINGS, make_client

pytestmark = pytest.mark.shows("lost requests", "known outcomes")

READ_TIMEOUT_S = 0.25
APPLIED = "applied"
Told = str | type[RequestNotApplied] | type[OutcomeUnknown]
PATIENCE_MS = 8_000
WAYS = ("HTTP", "HTTPS by CONNECT")
RECEPTIONS: tuple[Reception, ...] = ("refuses", "resets", "breaks off")


def alone(write: Write) -> Request:
    return write


def in_a_transaction(write: Write) -> Request:
    return TransactWrite((write,))


@pytest.fixture(params=[alone, in_a_transaction], ids=lambda form: form.__name__)
def form(request: pytest.FixtureRequest) -> Callable[[Write], Request]:
    form: Callable[[Write], Request] = request.param
    return form


@pytest.fixture(params=WAYS)
def way(ways: dict[str, Proxy], request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """The proxy before the table."""
    proxy = ways[request.param]
    yield proxy
    proxy.clear_up()


@pytest.fixture(scope="session")
def far_clients() -> dict[Any, Any]:
    return {}


@pytest.fixture(scope="session")
def near_client(emulator: Emulator) -> Any:
    return make_client(endpoint_url=emulator.endpoint)


def far_client(kind: Kind, loop: Loop, proxy: Proxy) -> Any:
    """A client of boto3 or aiobotocore, behind a proxy, configured to reach it."""
    settings: dict[str, Any] = {**CLIENT_SETTINGS, "read_timeout": READ_TIMEOUT_S}
    options: dict[str, Any] = {"endpoint_url": proxy.url}
    if proxy.certificate is not None and proxy.tunnel is not None:
        settings["proxies"] = {"https": proxy.tunnel.url}
        options["verify"] = proxy.certificate.path
    if kind == "tasks":
        return loop.dynamodb(config=settings, **options)
    return make_client(config=Config(**settings), **options)


@dataclass
class Scales:
    """Sends requests, and compares what is reported of each with the table.

    Attributes:
        proxy: the proxy before the table.
        client: the SDK's, behind it.
        near: another one, beside the table.
    """

    proxy: Proxy
    kind: Kind
    loop: Loop
    client: Any
    near: Any
    table_name: str

    def send(self, form: Callable[[Write], Request], patience_ms: int = 0) -> tuple[Told, int]:
        """Send a request that increments an item: the reported outcome, and how often it was incremented."""
        key = {"pk": {"S": f"counted by {some_entity()}"}, "sk": {"S": "-"}}
        count = "SET #seen = if_not_exists(#seen, :none) + :one"
        values = {":none": {"N": "0"}, ":one": {"N": "1"}}
        condition = "attribute_not_exists(#seen) OR #seen > :none"
        write = Write("Update", key, condition, update=count, names={"#seen": "seen"}, values=values)
        told: Told = APPLIED
        try:
            assert self._perform(form(write), patience_ms).applied
        except (RequestNotApplied, OutcomeUnknown) as error:
            told = type(error)
        until(lambda: self.proxy.under_way == 0, "the end of what is under way")
        found = self.near.get_item(TableName=self.table_name, Key=key, ConsistentRead=True)
        return told, int(found.get("Item", {}).get("seen", {"N": "0"})["N"])

    def _perform(self, request: Request, patience_ms: int) -> Reply:
        """Send a request until it is applied or refused; once, without patience."""
        driver = Driver(self.table_name, TIME_CHECK, SystemClocks(), patience_ms, jitter=lambda: 1)
        actions = driver.perform(request)
        if self.kind == "threads":
            return LockTable(self.table_name, client=self.client).drive(actions)

        async def perform() -> Reply:
            table = AsyncLockTable(self.table_name, None, SystemClocks())
            table.open(self.client)
            return await table.drive(actions)

        reply: Reply = self.loop.do(perform)
        return reply


@pytest.fixture
def scales(
    way: Proxy, kind: Kind, loop: Loop, near_client: Any, lock_table: str, far_clients: dict[Any, Any]
) -> Scales:
    if (kind, way.url) not in far_clients:
        far_clients[kind, way.url] = far_client(kind, loop, way)
    return Scales(way, kind, loop, far_clients[kind, way.url], near_client, lock_table)


def is_true(told: Told, counted: int) -> bool:
    return told is OutcomeUnknown or (counted > 0) == (told == APPLIED)


@pytest.mark.parametrize("fault", [reply_lost, reply_withheld, gateway_failed], ids=lambda fault: fault.__name__)
def test_an_applied_request_without_an_answer_is_unknown(
    scales: Scales, form: Callable[[Write], Request], fault: Fault
) -> None:
    scales.proxy.trouble(fault)
    assert scales.send(form) == (OutcomeUnknown, 1)


@pytest.mark.parametrize(
    "fault",
    [unharmed, request_lost, reply_broken_off, reply_garbled, delivered_twice],
    ids=lambda fault: fault.__name__,
)
def test_every_other_outcome_is_reported_truthfully(
    scales: Scales, form: Callable[[Write], Request], fault: Fault
) -> None:
    trouble = scales.proxy.trouble(fault)
    told, counted = scales.send(form)
    assert trouble.met.is_set()
    assert is_true(told, counted)


def test_a_request_that_arrives_after_its_sender_gave_up_is_unknown(
    scales: Scales, form: Callable[[Write], Request]
) -> None:
    scales.proxy.trouble(slow_by(2 * READ_TIMEOUT_S))
    assert scales.send(form) == (OutcomeUnknown, 1)


THROUGH_A_PROXY = pytest.mark.parametrize("way", WAYS[1:], indirect=True)


def received(scales: Scales, form: Callable[[Write], Request], reception: Reception) -> tuple[Told, int]:
    """Send one whose CONNECT is answered like this."""
    # It needs a connection of its own.
    scales.proxy.keeps_alive = False
    assert scales.send(form, PATIENCE_MS) == (APPLIED, 1)
    assert scales.proxy.tunnel is not None
    scales.proxy.tunnel.reception = reception
    return scales.send(form)


@THROUGH_A_PROXY
@pytest.mark.parametrize("reception", RECEPTIONS)
def test_a_request_that_a_proxy_does_not_let_through_is_not_reported_as_applied(
    scales: Scales, form: Callable[[Write], Request], reception: Reception
) -> None:
    told, counted = received(scales, form, reception)
    assert told != APPLIED
    assert counted == 0


@THROUGH_A_PROXY
@pytest.mark.parametrize("kind", ["tasks"])
def test_a_request_that_a_proxy_refuses_was_not_applied(scales: Scales, form: Callable[[Write], Request]) -> None:
    assert received(scales, form, "refuses") == (RequestNotApplied, 0)


@pytest.mark.parametrize("certified", [False, True], ids=WAYS)
def test_a_request_without_a_connection_was_not_applied(
    certified: bool,
    certificate: Certificate,
    kind: Kind,
    loop: Loop,
    emulator: Emulator,
    near_client: Any,
    lock_table: str,
    form: Callable[[Write], Request],
) -> None:
    with Proxy(emulator.endpoint, certificate if certified else None) as closed:
        scales = Scales(closed, kind, loop, far_client(kind, loop, closed), near_client, lock_table)
        assert scales.send(form) == (RequestNotApplied, 0)


ODDS = {
    unharmed: 3,
    reply_lost: 3,
    reply_withheld: 2,
    request_lost: 3,
    reply_broken_off: 2,
    reply_garbled: 1,
    gateway_failed: 1,
    delivered_twice: 1,
    slow_by(1.5 * READ_TIMEOUT_S): 1,
}


@pytest.mark.verify("a few hundred requests, each through another fault")
def test_the_outcome_of_a_request_with_retries_is_reported_truthfully(
    scales: Scales, form: Callable[[Write], Request], seed: str
) -> None:
    chance = random.Random(seed)
    scales.proxy.random_faults = RandomFaults(seed, ODDS)
    seen: Counter[Told] = Counter()
    for _ in range(60):
        scales.proxy.keeps_alive = chance.random() < 0.5
        if scales.proxy.tunnel is not None:
            scales.proxy.tunnel.reception = chance.choice(("lets in", "lets in", *RECEPTIONS))
        told, counted = scales.send(form, chance.choice((0, 0, 60)))
        assert is_true(told, counted)
        assert form is alone or counted <= 1, "a transaction is applied once"
        seen[told] += 1
    assert {APPLIED, OutcomeUnknown} <= set(seen)
