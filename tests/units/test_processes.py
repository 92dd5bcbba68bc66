"""Real processes whose requests are lost and that are killed lose no money, and their histories are serialisable."""

import uuid
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from kit import charges
from kit.appends import Lists, Writers
from kit.bank import OPENING, Bank, Staff
from kit.faults import (
    Fault,
    RandomFaults,
    delivered_twice,
    reply_lost,
    reply_swallowed,
    reply_withheld,
    request_lost,
    unharmed,
)
from kit.histories import anomalies
from kit.places import until
from kit.programs import heard, start
from kit.proxy import Proxy
from ticketlock_local.engines.emulator import Emulator

from ticketlock.units import Units
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.shows("atomicity", "exactly once", "killed coordinator", "strict serialisability")

ODDS: dict[Fault, int] = {unharmed: 30, reply_lost: 2, reply_withheld: 1, request_lost: 1, delivered_twice: 1}

WHOLE = pytest.param(
    8, 10, 400, 2, id="whole", marks=pytest.mark.verify("a smaller bank, with fewer kills, shows the same")
)

SIZES = pytest.mark.parametrize(
    ("processes", "accounts", "transfers", "kills"), [pytest.param(3, 3, 36, 1, id="small"), WHOLE]
)

Opened = Callable[[int, int, int], Bank]


@pytest.fixture
def plain_client(emulator: Emulator) -> Any:
    return make_client(endpoint_url=emulator.endpoint)


@pytest.fixture
def proxy(emulator: Emulator) -> Iterator[Proxy]:
    with Proxy(emulator.endpoint) as proxy:
        yield proxy.listen()


@pytest.fixture
def tables(plain_client: Any) -> Iterator[list[str]]:
    """The names of those that are deleted at the end."""
    tables: list[str] = []
    yield tables
    for table in tables:
        plain_client.delete_table(TableName=table)


@pytest.fixture
def opened(proxy: Proxy, plain_client: Any, tables: list[str]) -> Opened:
    def open_bank(processes: int, accounts: int, transfers: int) -> Bank:
        name = f"bank-{uuid.uuid4().hex[:8]}"
        bank = Bank(proxy.url, f"{name}-units", f"{name}-accounts", accounts, transfers, processes)
        bank.open(plain_client)
        tables.extend((bank.units, bank.accounts))
        return bank

    return open_bank


@SIZES
def test_the_sum_is_kept_and_each_transfer_is_made_exactly_once(
    opened: Opened, proxy: Proxy, plain_client: Any, processes: int, accounts: int, transfers: int, kills: int
) -> None:
    bank = opened(processes, accounts, transfers)
    proxy.random_faults = RandomFaults(bank.seed, ODDS)
    with Staff(bank, "with units", kills) as staff:
        staff.work()
    assert bank.broken(plain_client) == []
    assert bank.receipts(plain_client) == transfers
    assert staff.killed == processes * kills
    assert proxy.injected[reply_lost] > 0


@SIZES
def test_without_units_money_is_lost_or_made(
    opened: Opened, plain_client: Any, processes: int, accounts: int, transfers: int, kills: int
) -> None:
    """The opposite, without lost replies, and in the small bank without a kill: the same check detects it."""
    bank = opened(processes, accounts, transfers)
    with Staff(bank, "without units", kills - 1) as staff:
        staff.work()
    assert bank.broken(plain_client) == ["the sum", "exactly once"]


def is_told(*arguments: Any) -> Any:
    """What a process says whose requests are answered."""
    with start(charges.__file__, *arguments) as process:
        return heard(process)


@pytest.mark.parametrize("engine", [None, "marked"])
def test_after_a_process_is_killed_between_its_commit_and_the_answer_every_other_one_is_told_its_result(
    opened: Opened, proxy: Proxy, plain_client: Any, emulator: Emulator, engine: str | None
) -> None:
    bank = opened(1, 2, 0)
    shared = bank.units, bank.accounts, "account-0", engine
    receipt: Any = {"unit": {"S": "name#charge-account-0"}, "row": {"S": "receipt"}}
    # All attempts of the one transaction that writes it.
    proxy.trouble(reply_swallowed, lambda sent: receipt["unit"]["S"] in str(sent.parameters.get("TransactItems")), inf)
    with start(charges.__file__, proxy.url, *shared) as process:
        try:
            until(lambda: plain_client.get_item(TableName=bank.units, Key=receipt).get("Item"), "the first commit")
        finally:
            process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == ""
    first, second = (is_told(emulator.endpoint, *shared) for _ in range(2))
    assert (first, first["process"], first["left"]) == (second, process.pid, OPENING - 10)


LISTS = 4
"""So few that the processes meet in each of them."""

FEWER_FAULTS: dict[Fault, int] = {unharmed: 40, reply_lost: 1, request_lost: 1, delivered_twice: 1}

HISTORIES = pytest.mark.parametrize(
    ("processes", "units_each"),
    [
        pytest.param(3, 15, id="small"),
        pytest.param(6, 60, id="whole", marks=pytest.mark.verify("fewer processes and units show the same")),
    ],
)

Run = Callable[[str, int, int], Writers]


@pytest.fixture
def run(proxy: Proxy, plain_client: Any, tables: list[str]) -> Run:
    def run(way: str, processes: int, units_each: int) -> Writers:
        name = f"lists-{uuid.uuid4().hex[:8]}"
        lists = Lists(proxy.url, f"{name}-units", f"{name}-lists", LISTS, units_each)
        lists.open(plain_client)
        tables.extend((lists.units, lists.lists))
        proxy.random_faults = RandomFaults(lists.seed, FEWER_FAULTS) if way == "with units" else None
        writers = Writers(lists, way, processes, Units(lists.units, client=plain_client))
        writers.run()
        return writers

    return run


@HISTORIES
def test_what_processes_see_is_strictly_serialisable(run: Run, processes: int, units_each: int) -> None:
    writers = run("with units", processes, units_each)
    assert [str(found) for found in anomalies(writers.history)] == []
    assert writers.killed == processes - 1
    # Otherwise the history would show little.
    assert writers.outcomes["committed"] > processes * units_each / 3


def test_without_units_the_same_checker_finds_what_is_wrong(run: Run) -> None:
    kinds = {found.kind for found in anomalies(run("without units", 3, 40).history)}
    assert kinds & {"incompatible orders", "lost update"}
