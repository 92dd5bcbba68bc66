"""The handler of the deployed sweeper: how long it sweeps, what it emits, what it returns."""

import json
from typing import Any

import of_units.sweeper as function
import pytest
from kit.crashes import crashes
from kit.units import Books, Killed, Party, UnitsWorld, some_account

LEFT_S, LEASE_S, MARGIN_S = 300, 60, 5
EMITTED = {
    "ClosedUnits": "closed",
    "CommittedUnfinished": "unfinished",
    "FinishedItems": "finished",
    "OldestOpenUnitAge": "oldest_ms",
    "OpenUnits": "open",
    "RefusedItems": "refused",
    "RolledBackByOthers": "rolled_back",
}


def in_memory(test: Any) -> Any:
    """Threads only, on the fastest engine."""
    for name, value in (("units_engine", "memory"), ("units_kind", "threads")):
        test = pytest.mark.parametrize(name, [value], indirect=True)(test)
    return test


class Context:
    """The context that Lambda passes to a function."""

    def __init__(self, left_s: float) -> None:
        self._left_ms = int(1_000 * left_s)

    def get_remaining_time_in_millis(self) -> int:
        return self._left_ms


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "Transactions")
    monkeypatch.delenv("POWERTOOLS_METRICS_DISABLED", raising=False)


@pytest.fixture
def sweeper(ben: Party, monkeypatch: pytest.MonkeyPatch) -> Party:
    """The party that sweeps."""
    monkeypatch.setattr(function, "units", lambda: ben.units)
    return ben


def left(world: UnitsWorld, number: int) -> None:
    """Units that were killed before their decisions, and whose leases have ended."""
    for _ in range(number):
        ann = world.party()
        unit = ann.begin(engine="marked")
        unit.update(ann.accounts, world.books.account(), "SET balance = :n", {":n": 0})
        unit.put(ann.accounts, {**some_account(), "balance": 0})
        crashes(ann, 2, is_sent=False)
        with pytest.raises(Killed):
            unit.commit()
    world.books.clock.advance(LEASE_S + MARGIN_S)


@in_memory
def test_it_sweeps_the_table_to_its_end_and_leaves_nothing_of_its_own(
    books: Books, units_world: UnitsWorld, sweeper: Party
) -> None:
    left(units_world, 3)
    result = function.handler({}, Context(LEFT_S))
    assert (result["rolled_back"], result["is_whole"]) == (3, True)
    scanned = {sent.parameters["Segment"] for sent in sweeper.line.sent if sent.operation == "Scan"}
    assert scanned == set(range(function.PARTS))
    assert [row for row in books.everything()["units"] if row["unit"] == "sweep"] == []


@in_memory
@pytest.mark.parametrize(("passed_s", "is_whole"), [(LEFT_S - function.RESERVE_S - MARGIN_S, True), (LEFT_S, False)])
def test_it_stops_when_what_is_left_of_its_time_is_the_reserve(
    books: Books, units_world: UnitsWorld, sweeper: Party, passed_s: float, is_whole: bool
) -> None:
    # More than parts: of at least one part a unit is left. Each part sweeps one, however little time there is.
    units = function.PARTS + 1
    left(units_world, units)
    sweeper.line.between["DeleteItem"] = lambda: books.clock.advance(passed_s)
    result = function.handler({}, Context(LEFT_S))
    assert result["is_whole"] == is_whole
    assert result["rolled_back"] in ([units] if is_whole else range(1, units))


@in_memory
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.usefixtures("sweeper")
def test_it_emits_all_of_it_in_each_pass(
    units_world: UnitsWorld, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    left(units_world, number)
    result = function.handler({}, Context(LEFT_S))
    assert result["rolled_back"] >= number
    [line] = [each for each in map(json.loads, capsys.readouterr().out.splitlines()) if "_aws" in each]
    assert {name: line[name] for name in EMITTED} == {name: [float(result[field])] for name, field in EMITTED.items()}
    assert (line["StoppedSweeps"], line["service"]) == ([float(not result["is_whole"])], "Transactions")
    [emitted] = line["_aws"]["CloudWatchMetrics"]
    assert {metric["Name"] for metric in emitted["Metrics"]} == {*EMITTED, "StoppedSweeps"}
    assert (emitted["Namespace"], emitted["Dimensions"]) == ("ticketlock", [["service"]])


def test_its_client_is_one_that_units_take_and_has_a_connection_for_every_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TABLE_NAME", "units")
    monkeypatch.setenv("PREFIX", "_mine")
    made = function.units.__wrapped__()
    config: Any = made._performer.client.meta.config
    assert config.max_pool_connections == function.PARTS * function.REQUESTS_A_PART
    assert made._settings.marks.prefix == "_mine"
