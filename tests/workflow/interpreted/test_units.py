"""Units of work in protected states, executed: written once however often a state is retried, not after a lost lock."""

import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit.interpreter.lambda_server import Function, ServiceError, function_arn
from kit.units import KEYS, dumped, loaded, make_table
from ticketlock_local.engines.emulator import Emulator
from workflow.interpreted.conftest import Open, OpenUser

from ticketlock import Fence
from ticketlock.units import Units, create_units_table, unit_name
from ticketlock.wire._sdk import make_client

pytestmark = [
    pytest.mark.shows("state that writes once"),
    pytest.mark.verify("moto's interpreter waits in real time between two tries"),
]

ENTITY = "order-42"
RETRIES = 5


@dataclass
class Bank:
    """Accounts, the units' table, and the function of a task, which takes ten from an account.

    Attributes:
        locks_table: set once the workflow is open.
        repeated: for each run that was committed, whether it had been committed before.
    """

    client: Any
    units_table: str
    accounts: str
    locks_table: str = ""
    repeated: list[bool] = field(default_factory=list)
    _alone: threading.Lock = field(default_factory=threading.Lock)

    def new_account(self) -> str:
        """An account with 100."""
        account = f"account-{uuid.uuid4().hex}"
        self.client.put_item(TableName=self.accounts, Item=dumped({"id": account, "balance": 100}))
        return account

    def balance(self, account: str) -> int:
        found = self.client.get_item(TableName=self.accounts, Key={"id": {"S": account}}, ConsistentRead=True)
        return int(loaded(found["Item"])["balance"])

    def commit(self, event: Mapping[str, Any], _context: Any = None) -> str:
        """The function: a client for each run, as in a new container."""
        units = Units(self.units_table, client=make_client(endpoint_url=self.client.meta.endpoint_url))
        fence = Fence(event["lock"], self.locks_table)
        item = (event["item"],) if "item" in event else ()
        # In the serialised workflow the owner is the execution.
        name = unit_name(event.get("execution", fence.owner), event.get("state", "InvokeFunction"), *item)
        with units.begin(under=fence, name=name) as unit:
            unit.update(units.table(self.accounts), {"id": event["account"]}, "SET balance = balance - :n", {":n": 10})
        with self._alone:
            self.repeated.append(unit.repeated)
        return "committed"


@pytest.fixture
def bank(emulator: Emulator) -> Iterator[Bank]:
    client = make_client(endpoint_url=emulator.endpoint, region_name="us-east-1")
    suffix = uuid.uuid4().hex
    bank = Bank(client, f"units-{suffix}", f"accounts-{suffix}")
    create_units_table(bank.units_table, client=client)
    make_table(client, bank.accounts, KEYS["accounts"])
    yield bank
    for name in (bank.units_table, bank.accounts):
        client.delete_table(TableName=name)


class Fails:
    """Fails this many calls, each in another way."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, _event: Any) -> None:
        if self.left > 0:
            self.left -= 1
            # Its own error, and an error of the service in between.
            raise RuntimeError("the connection broke") if self.left % 2 else ServiceError("ServiceException")


def test_a_state_whose_replies_are_lost_after_the_commit_is_retried_5_times_and_written_once(
    open_user: OpenUser, bank: Bank
) -> None:
    function = Function(bank.commit, after=Fails(RETRIES))
    user = open_user("unit", {"commit": function})
    bank.locks_table, account = user.stage.table_name, bank.new_account()
    outcome = user.run({"account": account}, 60)
    assert (outcome.status, outcome.output) == ("SUCCEEDED", "committed")
    assert bank.repeated == [False] + [True] * RETRIES
    assert bank.balance(account) == 90
    assert user.stage.is_free(ENTITY)


def test_a_state_that_fails_before_the_commit_is_retried_and_written_once(open_user: OpenUser, bank: Bank) -> None:
    user = open_user("unit", {"commit": Function(bank.commit, before=Fails(RETRIES))})
    bank.locks_table, account = user.stage.table_name, bank.new_account()
    assert user.run({"account": account}, 60).status == "SUCCEEDED"
    assert bank.repeated == [False]
    assert bank.balance(account) == 90


def test_two_executions_are_two_units(open_user: OpenUser, bank: Bank) -> None:
    user = open_user("unit", {"commit": bank.commit})
    bank.locks_table, account = user.stage.table_name, bank.new_account()
    arns = [user.start({"account": account}) for _ in range(2)]
    assert [user.machine.wait(arn, 60).status for arn in arns] == ["SUCCEEDED"] * 2
    assert bank.balance(account) == 80


def test_a_state_that_has_lost_its_lock_fails_with_LockLost_and_nothing_is_written(
    open_user: OpenUser, bank: Bank
) -> None:
    function = Function(bank.commit)
    user = open_user("unit", {"commit": function})
    function.before = lambda _event: user.stage.take_away(ENTITY)
    bank.locks_table, account = user.stage.table_name, bank.new_account()
    outcome = user.run({"account": account}, 60)
    assert (outcome.status, outcome.error) == ("FAILED", "LockLost")
    assert bank.repeated == []
    assert bank.balance(account) == 100


def test_each_item_of_a_map_is_written_once_however_often_its_iteration_is_retried(
    open_user: OpenUser, bank: Bank
) -> None:
    user = open_user("units_of_items", {"commit": Function(bank.commit, after=Fails(3))})
    bank.locks_table = user.stage.table_name
    accounts = [bank.new_account() for _ in range(3)]
    # One of them twice: two items are two units.
    outcome = user.run({"accounts": [*accounts, accounts[0]]}, 60)
    assert outcome.status == "SUCCEEDED"
    assert [bank.balance(account) for account in accounts] == [80, 90, 90]


@pytest.mark.always("the shortest way on which a unit could be written twice")
def test_a_function_that_the_serialised_workflow_runs_twice_writes_once(open_stage: Open, bank: Bank) -> None:
    stage = open_stage({"commit": Function(bank.commit, twice="second reply")})
    bank.locks_table, account = stage.table_name, bank.new_account()
    task = {"functionArn": function_arn("commit"), "input": {"account": account}}
    outcome = stage.machine.run("twice", {"entity": ENTITY, "task": task}, 60)
    assert (outcome.status, outcome.output) == ("SUCCEEDED", "committed")
    assert bank.repeated == [False, True]
    assert bank.balance(account) == 90
