"""Processes move money while they are killed and their replies are lost: no money is lost or created."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.bank import Bank, Staff
from kit.faults import Fault, delivered_twice, reply_lost, reply_withheld, request_lost, unharmed
from kit.proxy import Proxy
from kit.random_faults import RandomFaults
from ticketlock_local.engines.emulator import Emulator

from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.shows("atomicity", "exactly once", "killed coordinator")

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
def opened(proxy: Proxy, plain_client: Any) -> Iterator[Opened]:
    tables: list[str] = []

    def open_bank(processes: int, accounts: int, transfers: int) -> Bank:
        name = f"bank-{uuid.uuid4().hex[:8]}"
        bank = Bank(proxy.url, f"{name}-units", f"{name}-accounts", accounts, transfers, processes)
        bank.open(plain_client)
        tables.extend((bank.units, bank.accounts))
        return bank

    yield open_bank
    for table in tables:
        plain_client.delete_table(TableName=table)


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
