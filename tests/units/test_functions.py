"""The handlers of the deployed functions: what they do at an event, emit and return."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from kit.units import Books, Party, UnitsWorld, some_account, some_name
from of_units import roll_back, sweeper
from units.conftest import LEASE_S, MARGIN_S, killed

from ticketlock.errors import InvalidUnitRequest, UnitRolledBack
from ticketlock.units import Outcome, unit_owner

pytestmark = pytest.mark.shows("ended owner")

LEFT_S = 300
"""What is left of a function's time when its handler is called."""
EMITTED = {
    "ClosedUnits": "closed",
    "CommittedUnfinished": "unfinished",
    "FinishedItems": "finished",
    "OldestOpenUnitAge": "oldest_ms",
    "OpenUnits": "open",
    "RefusedItems": "refused",
    "RolledBackByOthers": "rolled_back",
}
"""The metrics of a sweep, and the fields of its result that they show."""
# Threads only, on the fastest engine.
IN_MEMORY = pytest.mark.parametrize(
    ("units_engine", "units_kind"), [("memory", "threads")], indirect=["units_engine", "units_kind"]
)


class Context:
    """The context that Lambda passes to a function."""

    def get_remaining_time_in_millis(self) -> int:
        return 1_000 * LEFT_S


@pytest.fixture(autouse=True)
def settings_of_powertools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "Transactions")
    monkeypatch.delenv("POWERTOOLS_METRICS_DISABLED", raising=False)


def emitted_in(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The only line with metrics."""
    [emitted] = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if "_aws" in line]
    found: dict[str, Any] = emitted
    return found


@pytest.fixture
def sweeping(ben: Party, monkeypatch: pytest.MonkeyPatch) -> Party:
    """The process of the sweeper's handler."""
    monkeypatch.setattr(sweeper, "units", lambda: ben.units)
    return ben


def leave_units(world: UnitsWorld, number: int) -> None:
    """Units that were killed before their decisions, and whose leases have ended."""
    for _ in range(number):
        killed(world, [world.books.account(), world.books.account(), some_account()], is_committed=False)
    world.books.clock.advance(LEASE_S + MARGIN_S)


@IN_MEMORY
def test_the_sweeper_sweeps_the_table_to_its_end_and_leaves_nothing_of_its_own(
    books: Books, units_world: UnitsWorld, sweeping: Party
) -> None:
    leave_units(units_world, 3)
    result = sweeper.handler({}, Context())
    assert (result["rolled_back"], result["is_whole"]) == (3, True)
    scanned = {sent.parameters["Segment"] for sent in sweeping.line.sent if sent.operation == "Scan"}
    assert scanned == set(range(sweeper.PARTS))
    assert [row for row in books.everything()["units"] if row["unit"] == "sweep"] == []


@IN_MEMORY
@pytest.mark.parametrize(("passed_s", "is_whole"), [(LEFT_S - sweeper.RESERVE_S - MARGIN_S, True), (LEFT_S, False)])
def test_the_sweeper_stops_when_no_more_than_its_reserve_of_time_is_left(
    books: Books, units_world: UnitsWorld, sweeping: Party, passed_s: float, is_whole: bool
) -> None:
    # More than parts: of at least one part a unit is left. Each part sweeps one, however little time there is.
    units = sweeper.PARTS + 1
    leave_units(units_world, units)
    sweeping.line.between["DeleteItem"] = lambda: books.clock.advance(passed_s)
    result = sweeper.handler({}, Context())
    assert result["is_whole"] == is_whole
    assert result["rolled_back"] in ([units] if is_whole else range(1, units))


@IN_MEMORY
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.usefixtures("sweeping")
def test_the_sweeper_emits_its_whole_result_also_if_there_was_nothing_to_sweep(
    units_world: UnitsWorld, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_units(units_world, number)
    result = sweeper.handler({}, Context())
    assert result["rolled_back"] >= number
    line = emitted_in(capsys)
    assert {name: line[name] for name in EMITTED} == {name: [float(result[field])] for name, field in EMITTED.items()}
    assert (line["StoppedSweeps"], line["service"]) == ([float(not result["is_whole"])], "Transactions")
    [emitted] = line["_aws"]["CloudWatchMetrics"]
    assert {metric["Name"] for metric in emitted["Metrics"]} == {*EMITTED, "StoppedSweeps"}
    assert (emitted["Namespace"], emitted["Dimensions"]) == ("ticketlock", [["service"]])


@IN_MEMORY
@pytest.mark.usefixtures("sweeping")
@pytest.mark.parametrize("age_s", [59, 61])
def test_a_pass_names_a_unit_that_is_open_for_over_a_minute(
    books: Books, units_world: UnitsWorld, age_s: int, caplog: pytest.LogCaptureFixture
) -> None:
    unit = killed(units_world, [books.account(), books.account(), some_account()], is_committed=False)
    [head] = [row for row in books.everything()["units"] if row["row"] == "head" and row["unit"] == unit]
    books.clock.advance(age_s)
    # As a running process does.
    books.write("units", {**head, "leaseUntilMs": books.clock.wall_ms + 1_000 * LEASE_S})
    sweeper.handler({}, Context())
    told = [message for message in caplog.messages if "is still open" in message]
    assert told == ([f"the unit {unit}, pending, is still open, begun 61 s ago"] if age_s > 60 else [])


def test_the_units_of_the_functions_have_the_table_of_the_environment_and_the_sweeper_a_connection_for_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TABLE_NAME", "units")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    made = sweeper.units.__wrapped__()
    for each in (made, roll_back.units.__wrapped__()):
        assert each._settings.units_table == "units"
    config: Any = made._performer.client.meta.config
    assert config.max_pool_connections == sweeper.PARTS * sweeper.REQUESTS_A_PART


@pytest.fixture
def execution(ben: Party, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ARN of an execution whose end is to come."""
    monkeypatch.setattr(roll_back, "units", lambda: ben.units)
    return f"arn:aws:states:eu-west-1:123456789012:execution:Booking:{some_name()}"


ENDED = datetime(2026, 1, 1, tzinfo=UTC)


def event(execution: str, redrives: int | None = 0) -> dict[str, Any]:
    """What EventBridge brings; None: it does not say after how many redrives."""
    detail = {"executionArn": execution, "status": "ABORTED", "stopDate": int(1_000 * ENDED.timestamp())}
    if redrives is not None:
        detail["redriveCount"] = redrives
    return {"source": "aws.states", "detail-type": "Step Functions Execution Status Change", "detail": detail}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """Step Functions as the SDK's own stub, which answers nothing that it was not told to."""
    client = boto3.client("stepfunctions", region_name="eu-west-1")
    monkeypatch.setattr(roll_back, "step_functions", lambda: client)
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def saved(party: Party, execution: str, redrives: int) -> str:
    unit = party.begin()
    unit.update(party.accounts, party.books.account(), "SET balance = :n", {":n": 0})
    return unit.save(owner=unit_owner(execution, redrives))


@IN_MEMORY
@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("redrives", [0, 2])
def test_the_end_of_an_execution_rolls_back_the_units_of_its_last_redrive_once(
    books: Books, ann: Party, execution: str, redrives: int
) -> None:
    mine, another = saved(ann, execution, redrives), saved(ann, execution, redrives + 1)
    assert roll_back.handler(event(execution, redrives), None)["rolled_back"] == [mine]
    with pytest.raises(UnitRolledBack):
        ann.units.resume(mine)
    assert ann.units.outcome(unit=another).state is Outcome.PENDING
    before = books.everything()
    assert roll_back.handler(event(execution, redrives), None)["rolled_back"] == []
    assert books.everything() == before


@IN_MEMORY
@pytest.mark.parametrize(
    ("described", "ended"),
    [
        ({"status": "ABORTED", "redriveCount": 1, "stopDate": ENDED}, 1),
        ({"status": "RUNNING", "redriveCount": 1}, 0),
        (None, 0),
    ],
    ids=["ended", "redriven since", "forgotten"],
)
def test_an_event_without_a_redrive_count_ends_the_run_that_step_functions_says_has_ended(
    ann: Party, execution: str, service: Stubber, described: Any, ended: int
) -> None:
    units = [saved(ann, execution, redrives) for redrives in range(3)]
    asked = {"executionArn": execution, "includedData": "METADATA_ONLY"}
    if described is None:
        service.add_client_error("describe_execution", "ExecutionDoesNotExist", expected_params=asked)
    else:
        machine = execution.replace(":execution:", ":stateMachine:").rpartition(":")[0]
        known = {"executionArn": execution, "stateMachineArn": machine, "startDate": ENDED}
        service.add_response("describe_execution", {**known, **described}, asked)
    assert roll_back.handler(event(execution, None), None)["rolled_back"] == [units[ended]]


@IN_MEMORY
@pytest.mark.parametrize("number", [0, 2])
def test_the_handler_of_ended_executions_emits_how_many_units_it_has_rolled_back_and_returns_which(
    ann: Party, execution: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {saved(ann, execution, 0) for _ in range(number)}
    result = roll_back.handler(event(execution), None)
    told = (result["owner"], result["status"], set(result["rolled_back"]))
    assert told == (unit_owner(execution, 0), "ABORTED", names)
    emitted = emitted_in(capsys)
    assert (emitted["RolledBackWithExecutions"], emitted["service"]) == ([float(number)], "Transactions")


@IN_MEMORY
def test_an_event_of_no_execution_is_refused(execution: str) -> None:
    with pytest.raises(InvalidUnitRequest, match="execution"):
        roll_back.handler(event(execution.removeprefix("arn:")), None)
