"""Real processes append to lists in units, while they are killed and replies are lost; a checker judges the histories.

The checker knows nothing of units: could strictly serialisable transactions have shown the same? (`kit.histories`;
`tests/tools` tests it.)
"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.appends import Lists, Writers
from kit.faults import Fault, delivered_twice, reply_lost, request_lost, unharmed
from kit.histories import anomalies
from kit.proxy import Proxy
from kit.random_faults import RandomFaults
from ticketlock_local.engines.emulator import Emulator

from ticketlock.units import Units
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.shows("strict serialisability")

ODDS: dict[Fault, int] = {unharmed: 40, reply_lost: 1, request_lost: 1, delivered_twice: 1}
SIZES = pytest.mark.parametrize(
    ("processes", "each"),
    [
        pytest.param(3, 15, id="small"),
        pytest.param(6, 60, id="whole", marks=pytest.mark.verify("fewer processes and units show the same")),
    ],
)
Run = Callable[[str, int, int], Writers]


@pytest.fixture
def run(emulator: Emulator) -> Iterator[Run]:
    plain_client: Any = make_client(endpoint_url=emulator.endpoint)
    tables: list[str] = []

    with Proxy(emulator.endpoint) as proxy:
        proxy.listen()

        def run(way: str, processes: int, each: int) -> Writers:
            name = f"lists-{uuid.uuid4().hex[:8]}"
            lists = Lists(proxy.url, f"{name}-units", f"{name}-lists", 4, each)
            lists.open(plain_client)
            tables.extend((lists.units, lists.lists))
            proxy.random_faults = RandomFaults(lists.seed, ODDS) if way == "with units" else None
            writers = Writers(lists, way, processes, Units(lists.units, client=plain_client))
            writers.run()
            return writers

        yield run
    for table in tables:
        plain_client.delete_table(TableName=table)


@SIZES
def test_what_processes_see_is_strictly_serialisable(run: Run, processes: int, each: int) -> None:
    writers = run("with units", processes, each)
    assert [str(found) for found in anomalies(writers.history)] == []
    assert writers.killed == processes - 1
    assert writers.outcomes["committed"] > processes * each / 3


def test_without_units_the_same_checker_finds_what_is_wrong(run: Run) -> None:
    kinds = {found.kind for found in anomalies(run("without units", 3, 40).history)}
    assert "incompatible orders" in kinds or "lost update" in kinds
