"""The handler that rolls back what an ended execution has saved: what it makes of an event, emits and returns."""

import json
from typing import Any

import of_units.roll_back as function
import pytest
from kit.units import Books, Party, some_name

from ticketlock.errors import InvalidUnitRequest, UnitRolledBack
from ticketlock.units import Outcome, unit_owner

pytestmark = pytest.mark.shows("ended owner")

IN_MEMORY = pytest.mark.parametrize(
    ("units_engine", "units_kind"), [("memory", "threads")], indirect=["units_engine", "units_kind"]
)


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "Transactions")
    monkeypatch.delenv("POWERTOOLS_METRICS_DISABLED", raising=False)


@pytest.fixture
def execution(ben: Party, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose end is to come."""
    monkeypatch.setattr(function, "units", lambda: ben.units)
    return f"arn:aws:states:eu-west-1:123456789012:execution:Booking:{some_name()}"


def event(execution: str, **more: Any) -> dict[str, Any]:
    """What EventBridge brings."""
    detail = {"executionArn": execution, "status": "ABORTED", "stopDate": 1_551_225_151_881, **more}
    return {"source": "aws.states", "detail-type": "Step Functions Execution Status Change", "detail": detail}


def saved(party: Party, execution: str, redrives: int) -> str:
    unit = party.begin()
    unit.update(party.accounts, party.books.account(), "SET balance = :n", {":n": 0})
    return unit.save(owner=unit_owner(execution, redrives))


@IN_MEMORY
@pytest.mark.parametrize(("more", "redrives"), [({}, 0), ({"redriveCount": 0}, 0), ({"redriveCount": 2}, 2)], ids=str)
def test_it_rolls_back_the_units_of_the_life_that_has_ended(
    ann: Party, execution: str, more: dict[str, int], redrives: int
) -> None:
    mine, another = saved(ann, execution, redrives), saved(ann, execution, redrives + 1)
    assert function.handler(event(execution, **more), None)["rolled_back"] == [mine]
    with pytest.raises(UnitRolledBack):
        ann.units.resume(mine)
    assert ann.units.outcome(unit=another) is Outcome.PENDING


@IN_MEMORY
def test_an_event_that_comes_again_changes_nothing(books: Books, ann: Party, execution: str) -> None:
    saved(ann, execution, 0)
    function.handler(event(execution), None)
    before = books.everything()
    assert function.handler(event(execution), None)["rolled_back"] == []
    assert books.everything() == before


@IN_MEMORY
@pytest.mark.parametrize("number", [0, 2])
def test_it_emits_how_many_it_has_rolled_back_and_says_which(
    ann: Party, execution: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {saved(ann, execution, 0) for _ in range(number)}
    result = function.handler(event(execution), None)
    assert (result["owner"], result["status"], set(result["rolled_back"])) == (
        unit_owner(execution, 0),
        "ABORTED",
        names,
    )
    [emitted] = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if "_aws" in line]
    assert (emitted["RolledBackWithExecutions"], emitted["service"]) == ([float(number)], "Transactions")


@IN_MEMORY
def test_an_event_of_something_else_fails(execution: str) -> None:
    with pytest.raises(InvalidUnitRequest, match="execution"):
        function.handler(event(execution.removeprefix("arn:")), None)


def test_its_units_are_those_of_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE_NAME", "units")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert function.units.__wrapped__()._settings.units_table == "units"
