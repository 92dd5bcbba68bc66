"""What docs/durable.md shows runs, and so does its example: a unit in a step, a wait of a day, a second step."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.lambda_service import InvocationStatus
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner
from kit.pages import ROOT, python_blocks
from kit.units import make_table

from ticketlock import LockClient, create_table
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import Units, create_units_table

PAGE = "docs/durable.md"
EXAMPLE = ROOT / "examples" / "durable_booking" / "handler.py"
TABLES = {
    "LOCK_TABLE": "locks",
    "UNITS_TABLE": "units",
    "RESTAURANTS_TABLE": "restaurants",
    "BOOKINGS_TABLE": "bookings",
}


@pytest.fixture
def handler(boto3_in_memory: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in TABLES.items():
        monkeypatch.setenv(name, value)
    create_table("locks")
    create_units_table("units")
    for name in ("restaurants", "bookings"):
        make_table(boto3_in_memory.client, name, {"id": "S"})
    spec = importlib.util.spec_from_file_location("durable_booking_handler", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


def result_of(handler: Any, event: Any) -> Any:
    """What an execution returns on AWS's local runner, which skips waits."""
    runner: Any = DurableFunctionTestRunner(handler=handler)
    try:
        done = runner.run(input=json.dumps(event))
    finally:
        runner.close()
        runner._scheduler._loop.close()
    assert done.status is InvocationStatus.SUCCEEDED, done.error
    return json.loads(done.result)


def of_page(*wanted: str) -> list[Any]:
    """The blocks of the page that have one of these texts, compiled."""
    found = [(line, block) for line, block in python_blocks(PAGE) if any(each in block for each in wanted)]
    assert len(found) == len(wanted)
    return [compile("\n" * line + block, str(ROOT / PAGE), "exec") for line, block in found]


def test_the_python_of_the_page_runs(boto3_in_memory: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TABLES.items():
        monkeypatch.setenv(name, value)
    create_table("locks")
    create_units_table("units")
    make_table(boto3_in_memory.client, "orders", {"id": "S"})
    names: dict[str, Any] = {}
    for block in of_page("def handler", "def charge_once", "locks_of_tests"):
        exec(block, names)
    assert result_of(names["handler"], {"order": "42"}) == "shipped"

    @durable_execution
    def charges_once(event: Any, context: DurableContext) -> str:
        with names["locks"].hold(context, event["order"]) as lease:
            lease.step(names["charge_once"], lease.unit_name("charge"), event["order"])
        return str(names["units"].outcome(name=lease.unit_name("charge")).state.name)

    assert result_of(charges_once, {"order": "42"}) == "COMMITTED"


@pytest.mark.verify("a stack with its assets")
def test_the_stack_of_the_page_is_synthesised(tmp_path: Path) -> None:
    (tmp_path / "ship").mkdir()
    (tmp_path / "ship" / "ship.py").write_text("def handler(event, context): ...")
    (block,) = (block for _, block in python_blocks(PAGE) if "attach_durable" in block)
    # The CDK's own process looks for assets where it was started.
    synthesise = [sys.executable, "-c", f"{block}\nimport json\nprint(json.dumps(app.synth().stacks[0].template))"]
    done = subprocess.run(synthesise, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    resources = json.loads(done.stdout)["Resources"].values()
    (durable,) = [each["Properties"] for each in resources if "DurableConfig" in each["Properties"]]
    assert durable["DurableConfig"]["ExecutionTimeout"] == 30 * 86_400


def test_a_table_is_booked_once_and_confirmed_a_day_later_under_one_lock(
    handler: Any, boto3_in_memory: MemoryDynamoDB
) -> None:
    units = Units("units")
    restaurants = units.table("restaurants")
    with units.begin() as unit:
        unit.put(restaurants, {"id": "roma", "tables": 2})
    assert result_of(handler, {"restaurant": "roma", "guest": "ann"}) == "confirmed"
    assert units.get(restaurants, {"id": "roma"}) == {"id": "roma", "tables": 1}
    (booked,) = boto3_in_memory.client.scan(TableName="bookings")["Items"]
    assert (booked["guest"], booked["status"]) == ({"S": "ann"}, {"S": "confirmed"})
    with LockClient("locks") as locks:
        assert locks.try_acquire("restaurant-roma") is not None
