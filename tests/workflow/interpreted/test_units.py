"""Units of work in states, executed: each is written once however often a state is retried, and none after a lost lock.

First one unit in a protected state; then one over the states of examples/booking, which go on by the names of errors.
"""

import importlib
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from booking_stack import STATES, booking
from kit.interpreter.harness import Machine, StepFunctions
from kit.interpreter.lambda_server import Function, ServiceError, Twice, function_arn
from kit.units import KEYS, dumped, loaded, make_table
from ticketlock_local.engines.emulator import Emulator
from workflow.interpreted.conftest import ENTITY, Open, OpenUser
from workflow.interpreted.user_machine import RETRIES

from ticketlock import Fence
from ticketlock.units import Units, create_units_table, unit_name, unit_owner
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("moto's interpreter waits in real time between two tries")

FUNCTIONS = Path(__file__).parents[3] / "examples" / "booking" / "function"
# The interpreter tells an execution nothing of redrives.
REDRIVES, NONE = '"redrives.$":"$$.Execution.RedriveCount"', '"redrives":0'
PRICE = 200
BOOKED_AT_ONCE = ("SUCCEEDED", None, {"TakeSeat": 1, "TakeRoom": 1, "Pay": 1})


@dataclass
class Tables:
    """The units' table and tables of the user's, by their use."""

    client: Any
    names: dict[str, str]

    def put(self, table: str, id: str, **more: int) -> None:
        self.client.put_item(TableName=self.names[table], Item=dumped({"id": id, **more}))

    def number(self, table: str, id: str, attribute: str) -> int:
        found = self.client.get_item(TableName=self.names[table], Key={"id": {"S": id}}, ConsistentRead=True)
        return int(loaded(found["Item"])[attribute])


@contextmanager
def made(emulator: Emulator, *uses: str) -> Iterator[Tables]:
    client, suffix = make_client(endpoint_url=emulator.endpoint, region_name="us-east-1"), uuid.uuid4().hex
    tables = Tables(client, {use: f"{use}-{suffix}" for use in ("units", *uses)})
    create_units_table(tables.names["units"], client=client)
    for use in uses:
        make_table(client, tables.names[use], KEYS["accounts"])
    yield tables
    for name in tables.names.values():
        client.delete_table(TableName=name)


# A unit in a protected state.


@dataclass
class Bank:
    """Accounts, the units' table, and the function of a task, which takes ten from an account.

    Attributes:
        locks_table: set once the workflow is open.
        repeated: for each run that was committed, whether it had been committed before.
    """

    tables: Tables
    locks_table: str = ""
    repeated: list[bool] = field(default_factory=list)
    _alone: threading.Lock = field(default_factory=threading.Lock)

    def new_account(self) -> str:
        """An account with 100."""
        account = f"account-{uuid.uuid4().hex}"
        self.tables.put("accounts", account, balance=100)
        return account

    def balance(self, account: str) -> int:
        return self.tables.number("accounts", account, "balance")

    def commit(self, event: Mapping[str, Any], _context: Any = None) -> Any:
        """The function: a client for each run, as in a new container. It returns the unit's result."""
        names, endpoint = self.tables.names, self.tables.client.meta.endpoint_url
        units = Units(names["units"], client=make_client(endpoint_url=endpoint))
        fence = Fence(event["lock"], self.locks_table)
        item = (event["item"],) if "item" in event else ()
        # In the serialised workflow the owner is the execution.
        name = unit_name(event.get("execution", fence.owner), event.get("state", "InvokeFunction"), *item)
        with units.begin(under=fence, name=name) as unit:
            accounts, take = units.table(names["accounts"]), "SET balance = balance - :n"
            after = unit.update(accounts, {"id": event["account"]}, take, {":n": 10})
            # A repeated unit has the first one's, and its update returns nothing.
            unit.result = {"left": int(after.get("balance", -1))}
        with self._alone:
            self.repeated.append(unit.repeated)
        return unit.result


@pytest.fixture
def bank(emulator: Emulator) -> Iterator[Bank]:
    with made(emulator, "accounts") as tables:
        yield Bank(tables)


class FailsAtFirst:
    """Fails this many calls, each in another way."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, _event: Any) -> None:
        if self.left > 0:
            self.left -= 1
            # Its own error, and an error of the service in between.
            raise RuntimeError("the connection broke") if self.left % 2 else ServiceError("ServiceException")


@pytest.mark.shows("state that writes once")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_state_that_fails_before_or_after_its_commit_is_retried_and_written_once(
    open_user: OpenUser, bank: Bank, when: str
) -> None:
    function = Function(bank.commit)
    setattr(function, when, FailsAtFirst(RETRIES))
    user = open_user("unit", {"commit": function})
    bank.locks_table, account = user.stage.table_name, bank.new_account()
    outcome = user.run({"account": account})
    assert (outcome.status, outcome.output) == ("SUCCEEDED", {"left": 90})
    assert bank.repeated == [False] + [True] * (RETRIES if when == "after" else 0)
    assert bank.balance(account) == 90
    assert user.stage.is_free(ENTITY)


@pytest.mark.shows("state that writes once")
def test_two_executions_are_two_units(open_user: OpenUser, bank: Bank) -> None:
    user = open_user("unit", {"commit": bank.commit})
    bank.locks_table, account = user.stage.table_name, bank.new_account()
    arns = [user.start({"account": account}) for _ in range(2)]
    assert [user.machine.wait(arn).status for arn in arns] == ["SUCCEEDED"] * 2
    assert bank.balance(account) == 80


@pytest.mark.shows("state that writes once")
def test_a_state_that_has_lost_its_lock_fails_with_LockLost_and_nothing_is_written(
    open_user: OpenUser, bank: Bank
) -> None:
    function = Function(bank.commit)
    user = open_user("unit", {"commit": function})
    function.before = lambda _event: user.stage.take_away(ENTITY)
    bank.locks_table, account = user.stage.table_name, bank.new_account()
    outcome = user.run({"account": account})
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")
    assert bank.repeated == []
    assert bank.balance(account) == 100


@pytest.mark.shows("state that writes once")
def test_each_item_of_a_map_is_written_once_however_often_its_iteration_is_retried(
    open_user: OpenUser, bank: Bank
) -> None:
    user = open_user("units_of_items", {"commit": Function(bank.commit, after=FailsAtFirst(3))})
    bank.locks_table = user.stage.table_name
    accounts = [bank.new_account() for _ in range(3)]
    # One of them twice: two items are two units.
    outcome = user.run({"accounts": [*accounts, accounts[0]]})
    assert outcome.status == "SUCCEEDED"
    assert [bank.balance(account) for account in accounts] == [80, 90, 90]


@pytest.mark.shows("state that writes once")
@pytest.mark.always("the shortest way on which a unit could be written twice")
def test_a_function_that_the_serialised_workflow_runs_twice_writes_once(open_stage: Open, bank: Bank) -> None:
    stage = open_stage({"commit": Function(bank.commit, twice="second reply")})
    bank.locks_table, account = stage.table_name, bank.new_account()
    task = {"functionArn": function_arn("commit"), "input": {"account": account}}
    outcome = stage.machine.run("twice", {"entity": ENTITY, "task": task})
    assert (outcome.status, outcome.output) == ("SUCCEEDED", {"left": 90})
    assert bank.repeated == [False, True]
    assert bank.balance(account) == 90


# A unit over the states of examples/booking.


@dataclass
class Agency:
    """The functions of the states over tables of their own, and what they sell."""

    tables: Tables
    units: Units
    functions: dict[str, Function]
    machine: Machine

    @property
    def written(self) -> tuple[int, int, int]:
        """Free seats, free rooms, and what the traveller has left."""
        flight, hotel = (self.tables.number("offers", id, "places") for id in ("flight", "hotel"))
        return (flight, hotel, self.tables.number("travellers", "ann", "balance"))

    def run(self) -> tuple[str, str | None, dict[str, int]]:
        """Book a trip: the status, the error, and how often each state was entered."""
        trip = {"flight": "flight", "hotel": "hotel", "traveller": "ann", "price": PRICE}
        arn = self.machine.start(f"e-{uuid.uuid4().hex}", {"trip": trip})
        outcome = self.machine.wait(arn)
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
    with ExitStack() as stack:
        tables = stack.enter_context(made(emulator, "offers", "travellers", "bookings"))
        for name, value in {
            **{f"{use.upper()}_TABLE": table for use, table in tables.names.items()},
            "AWS_ENDPOINT_URL_DYNAMODB": emulator.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.syspath_prepend(str(FUNCTIONS))
        monkeypatch.delitem(sys.modules, "booking", raising=False)
        stack.callback(sys.modules.pop, "booking", None)
        handlers = importlib.import_module("booking")
        functions = {name: Function(getattr(handlers, name)) for name in STATES}
        engine = stack.enter_context(StepFunctions(functions, dynamodb_endpoint=emulator.endpoint))
        for offer in ("flight", "hotel"):
            tables.put("offers", offer, places=3)
        tables.put("travellers", "ann", balance=500)
        yield Agency(tables, handlers.units, engine.functions, engine.machine("booking", definition()))


def once(what: Callable[[Any], object]) -> Callable[[Any], None]:
    """Do something before the first event only."""
    left = [what]

    def hook(event: Any) -> None:
        if left:
            left.pop()(event)

    return hook


@pytest.mark.shows("steps of a saved unit", "unit over several states")
def test_each_state_adds_to_the_unit_and_the_last_one_writes_it(agency: Agency) -> None:
    seen: list[Any] = []
    agency.functions["pay"].before = lambda _event: seen.append(agency.written)
    assert agency.run() == BOOKED_AT_ONCE
    assert (seen, agency.written) == ([(3, 3, 500)], (2, 2, 300))


@pytest.mark.shows("steps of a saved unit", "unit over several states")
@pytest.mark.parametrize("state", ["take_seat", "take_room", "pay"])
def test_a_state_that_is_tried_again_and_again_after_its_write_is_written_once(agency: Agency, state: str) -> None:
    tries: list[str | None] = []

    def breaks_twice(event: Any) -> None:
        tries.append(event.get("unit"))
        if len(tries) < 3:
            raise RuntimeError("the connection broke")

    agency.functions[state].after = breaks_twice
    assert agency.run() == BOOKED_AT_ONCE
    assert (len(tries), len(set(tries)), agency.written) == (3, 1, (2, 2, 300))


@pytest.mark.shows("steps of a saved unit", "unit over several states")
@pytest.mark.parametrize("twice", ["second reply", "first reply"])
def test_functions_that_run_twice_for_each_event_book_one_trip(agency: Agency, twice: Twice) -> None:
    for function in agency.functions.values():
        function.twice = twice
    assert agency.run() == BOOKED_AT_ONCE
    assert agency.written == (2, 2, 300)


@pytest.mark.shows("steps of a saved unit", "unit over several states")
def test_a_unit_that_was_rolled_back_when_the_execution_had_ended_is_begun_again_by_its_redrive(
    agency: Agency,
) -> None:
    # As the event of its end does. This interpreter goes on in the same life, of which a new save would be refused.
    agency.functions["take_room"].before = once(lambda event: agency.units.rollback(event["unit"]))
    assert agency.run() == ("SUCCEEDED", None, {"TakeSeat": 2, "TakeRoom": 2, "BeginAgain": 1, "Pay": 1})
    assert agency.written == (2, 2, 300)


@pytest.mark.shows("steps of a saved unit", "unit over several states")
def test_a_trip_is_booked_though_somebody_else_takes_a_seat_meanwhile(agency: Agency) -> None:
    def another_takes_one(_event: Any) -> None:
        offers = agency.units.table(agency.tables.names["offers"])
        with agency.units.begin() as unit:
            unit.update(offers, {"id": "flight"}, "SET places = places - :one", {":one": 1})

    agency.functions["pay"].before = once(another_takes_one)
    assert agency.run() == ("SUCCEEDED", None, {"TakeSeat": 2, "TakeRoom": 2, "BeginAgain": 1, "Pay": 2})
    assert agency.written == (1, 2, 300)


@pytest.mark.shows("steps of a saved unit", "unit over several states")
def test_a_trip_that_the_traveller_cannot_pay_is_rolled_back_whole(agency: Agency) -> None:
    agency.tables.put("travellers", "ann", balance=PRICE - 1)
    units: list[str] = []
    agency.functions["let_go"].before = lambda event: units.append(event["unit"])
    states = {"TakeSeat": 1, "TakeRoom": 1, "Pay": 1, "GiveUp": 1, "NotBooked": 1}
    assert agency.run() == ("FAILED", "ConditionFailed", states)
    assert agency.written == (3, 3, PRICE - 1)
    assert [agency.units.outcome(unit=unit).state.value for unit in units] == ["rolled back"]


@pytest.mark.shows("steps of a saved unit", "unit over several states")
def test_an_execution_saves_no_unit_once_the_units_of_its_owner_were_ended(agency: Agency) -> None:
    agency.functions["take_seat"].before = once(
        lambda event: agency.units.end_owner(unit_owner(event["execution"], event["redrives"]))
    )
    assert agency.run() == ("FAILED", "UnitRolledBack", {"TakeSeat": 1})
    assert agency.written == (3, 3, 500)
