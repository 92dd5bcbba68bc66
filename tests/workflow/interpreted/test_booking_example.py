"""The states of examples/booking, executed: where they go on by the names of errors, and that they write once."""

import importlib
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from booking_stack import STATES, booking
from kit.interpreter.harness import Machine, StepFunctions
from kit.interpreter.lambda_server import Function, Twice, function_arn
from kit.units import KEYS, dumped, loaded, make_table
from ticketlock_local.engines.emulator import Emulator

from ticketlock.units import Units, create_units_table, unit_owner
from ticketlock.wire._sdk import make_client

pytestmark = [
    pytest.mark.shows("steps of a saved unit", "unit over several states"),
    pytest.mark.verify("moto's interpreter waits in real time between two tries"),
]

FUNCTIONS = Path(__file__).parents[3] / "examples" / "booking" / "function"
# The interpreter tells an execution nothing of redrives.
REDRIVES, NONE = '"redrives.$":"$$.Execution.RedriveCount"', '"redrives":0'
PRICE = 200


@dataclass
class Agency:
    """The functions of the states over tables of their own, and what they sell."""

    client: Any
    units: Units
    functions: dict[str, Function]
    tables: dict[str, str]
    machine: Machine

    def put(self, table: str, id: str, **more: int) -> None:
        self.client.put_item(TableName=self.tables[table], Item=dumped({"id": id, **more}))

    def number(self, table: str, id: str, attribute: str) -> int:
        found = self.client.get_item(TableName=self.tables[table], Key={"id": {"S": id}}, ConsistentRead=True)
        return int(loaded(found["Item"])[attribute])

    @property
    def written(self) -> tuple[int, int, int]:
        """Free seats, free rooms, and what the traveller has left."""
        free = [self.number("offers", id, "places") for id in ("flight", "hotel")]
        return (free[0], free[1], self.number("travellers", "ann", "balance"))

    def run(self) -> tuple[str, str | None, dict[str, int]]:
        """Book a trip: the status, the error, and how often each state was entered."""
        trip = {"flight": "flight", "hotel": "hotel", "traveller": "ann", "price": PRICE}
        arn = self.machine.start(f"e-{uuid.uuid4().hex}", {"trip": trip})
        outcome = self.machine.wait(arn, 60)
        return outcome.status, outcome.error, dict(self.machine.entered(arn))


def definition() -> str:
    stack = Stack(App(), "Booking")
    functions = {name: lambda_.Function.from_function_arn(stack, name, function_arn(name)) for name in STATES}
    sfn.StateMachine(stack, "Workflow", definition_body=sfn.DefinitionBody.from_chainable(booking(stack, functions)))
    [found] = Template.from_stack(stack).find_resources("AWS::StepFunctions::StateMachine").values()
    text: Any = found["Properties"]["DefinitionString"]
    if not isinstance(text, str):
        text = "".join(part if isinstance(part, str) else "aws" for part in text["Fn::Join"][1])
    assert REDRIVES in text
    return str(text.replace(REDRIVES, NONE))


@pytest.fixture
def agency(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agency]:
    client, suffix = make_client(endpoint_url=emulator.endpoint, region_name="us-east-1"), uuid.uuid4().hex
    tables = {name: f"{name}-{suffix}" for name in ("units", "offers", "travellers", "bookings")}
    create_units_table(tables["units"], client=client)
    for name, table in tables.items():
        monkeypatch.setenv(f"{name.upper()}_TABLE", table)
        if name != "units":
            make_table(client, table, KEYS["accounts"])
    for name, value in {
        "AWS_ENDPOINT_URL_DYNAMODB": emulator.endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(FUNCTIONS))
    monkeypatch.delitem(sys.modules, "booking", raising=False)
    handlers = importlib.import_module("booking")
    functions = {name: Function(getattr(handlers, name)) for name in STATES}
    with ExitStack() as stack:
        engine = stack.enter_context(StepFunctions(functions, dynamodb_endpoint=emulator.endpoint))
        agency = Agency(client, handlers.units, engine.functions, tables, engine.machine("booking", definition()))
        for offer in ("flight", "hotel"):
            agency.put("offers", offer, places=3)
        agency.put("travellers", "ann", balance=500)
        yield agency
    sys.modules.pop("booking", None)
    for name in tables.values():
        client.delete_table(TableName=name)


def once(what: Callable[[Any], object]) -> Callable[[Any], None]:
    """Do something before the first event only."""
    left = [what]

    def hook(event: Any) -> None:
        if left:
            left.pop()(event)

    return hook


def test_each_state_adds_to_the_unit_and_the_last_one_writes_it(agency: Agency) -> None:
    seen: list[Any] = []
    agency.functions["pay"].before = lambda _event: seen.append(agency.written)
    assert agency.run() == ("SUCCEEDED", None, {"TakeSeat": 1, "TakeRoom": 1, "Pay": 1})
    assert (seen, agency.written) == ([(3, 3, 500)], (2, 2, 300))


@pytest.mark.parametrize("state", ["take_seat", "take_room", "pay"])
def test_a_state_whose_reply_is_lost_is_retried_and_written_once(agency: Agency, state: str) -> None:
    def breaks(_event: Any) -> None:
        raise RuntimeError("the connection broke")

    agency.functions[state].after = once(breaks)
    assert agency.run()[0] == "SUCCEEDED"
    assert agency.written == (2, 2, 300)


def test_a_state_in_between_that_is_tried_again_and_again_after_its_save_takes_one_room(agency: Agency) -> None:
    tries: list[str] = []

    def breaks_twice(event: Any) -> None:
        tries.append(event["unit"])
        if len(tries) < 3:
            raise RuntimeError("the connection broke")

    agency.functions["take_room"].after = breaks_twice
    assert agency.run() == ("SUCCEEDED", None, {"TakeSeat": 1, "TakeRoom": 1, "Pay": 1})
    assert (len(tries), len(set(tries)), agency.written) == (3, 1, (2, 2, 300))


@pytest.mark.parametrize("twice", ["second reply", "first reply"])
def test_functions_that_run_twice_for_each_event_book_one_trip(agency: Agency, twice: Twice) -> None:
    for function in agency.functions.values():
        function.twice = twice
    assert agency.run() == ("SUCCEEDED", None, {"TakeSeat": 1, "TakeRoom": 1, "Pay": 1})
    assert agency.written == (2, 2, 300)


def test_a_unit_that_was_rolled_back_when_the_execution_had_ended_is_begun_again_by_its_redrive(
    agency: Agency,
) -> None:
    # As the event of its end does. This interpreter goes on in the same life, of which a new save would be refused.
    agency.functions["take_room"].before = once(lambda event: agency.units.rollback(event["unit"]))
    assert agency.run() == ("SUCCEEDED", None, {"TakeSeat": 2, "TakeRoom": 2, "BeginAgain": 1, "Pay": 1})
    assert agency.written == (2, 2, 300)


def test_a_seat_that_somebody_else_takes_meanwhile_is_no_failure(agency: Agency) -> None:
    def another_takes_one(_event: Any) -> None:
        offers = agency.units.table(agency.tables["offers"])
        with agency.units.begin() as unit:
            unit.update(offers, {"id": "flight"}, "SET places = places - :one", {":one": 1})

    agency.functions["pay"].before = once(another_takes_one)
    assert agency.run() == ("SUCCEEDED", None, {"TakeSeat": 2, "TakeRoom": 2, "BeginAgain": 1, "Pay": 2})
    assert agency.written == (1, 2, 300)


def test_a_price_that_nobody_can_pay_gives_all_of_it_up(agency: Agency) -> None:
    agency.put("travellers", "ann", balance=PRICE - 1)
    units: list[str] = []
    agency.functions["let_go"].before = lambda event: units.append(event["unit"])
    states = {"TakeSeat": 1, "TakeRoom": 1, "Pay": 1, "GiveUp": 1, "NotBooked": 1}
    assert agency.run() == ("FAILED", "ConditionFailed", states)
    assert agency.written == (3, 3, PRICE - 1)
    assert [agency.units.outcome(unit=unit).value for unit in units] == ["rolled back"]


def test_an_execution_whose_end_was_told_saves_nothing_more(agency: Agency) -> None:
    agency.functions["take_seat"].before = once(
        lambda event: agency.units.end_owner(unit_owner(event["execution"], event["redrives"]))
    )
    assert agency.run() == ("FAILED", "UnitRolledBack", {"TakeSeat": 1})
    assert agency.written == (3, 3, 500)
