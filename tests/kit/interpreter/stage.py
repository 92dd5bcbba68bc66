"""The serialised workflow on moto's interpreter: the real definition and handlers, a table of its own on ministack."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import _observed
import check_position
import clean_up
import heartbeat
import release
import take_ticket
import wait_for_wake_up
from kit.engines import create_table
from kit.interpreter.harness import PATIENCE_S, Machine, Outcome, StepFunctions, Work, until
from kit.interpreter.lambda_server import Function, Handler, LambdaContext, function_arn
from kit.lock_model import lease_runs
from ticketlock_cdk.lock.serialize_machine import continue_definition, serialize_definition
from ticketlock_cdk.lock.settings import HandOver, LockSettings
from ticketlock_cdk.lock.targets import parse_target

from ticketlock import LockName, LockState, LockTable
from ticketlock.locks._items import Session, lock_key
from ticketlock.wire._actions import Item
from ticketlock.wire._sdk import make_client

SERIALIZE_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:serialize"
CHILD_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:child"
CONTINUE_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:continue"
LEASE_S = 20
"""Its half is longer than a busy machine keeps a heartbeat waiting."""
HALF_LIFE_S = LEASE_S // 2
HANDLERS: Mapping[str, Handler] = {
    "TakeTicket": take_ticket.handler,
    "CheckPosition": check_position.handler,
    "WaitForWakeUp": wait_for_wake_up.handler,
    "Heartbeat": heartbeat.handler,
    "Release": release.handler,
}


@dataclass
class Stage:
    """One open engine with the workflow in it.

    Attributes:
        requests: the names of all requests that the functions sent to the table.
    """

    engine: StepFunctions
    machine: Machine
    continues: Machine
    client: Any
    table_name: str
    requests: list[str] = field(default_factory=list)

    def start(self, entity: str, *, name: str | None = None, function: str = "work", **more: Any) -> str:
        task = {"functionArn": function_arn(function), "input": {"order": 42}}
        return self.machine.start(name or f"e-{uuid.uuid4().hex}", {"entity": entity, "task": task, **more})

    def run(self, entity: str, *, timeout: float = PATIENCE_S, **more: Any) -> Outcome:
        return self.machine.wait(self.start(entity, **more), timeout)

    def hold(self, entity: str, *, function: str = "work", **more: Any) -> str:
        """Start an execution, and wait until its work runs."""
        arn = self.start(entity, function=function, **more)
        work: Any = self.function(function).handler
        assert work.started.wait(PATIENCE_S)
        return arn

    def hold_with_child(self, entity: str, **more: Any) -> tuple[str, Machine, str]:
        """An execution whose nested execution runs, the nested one's machine, and the nested one."""
        sleep = {"Type": "Wait", "Seconds": 120, "End": True}
        machine = self.engine.machine("child", {"StartAt": "Sleep", "States": {"Sleep": sleep}})
        assert machine.arn == CHILD_ARN
        asked = {"entity": entity, "task": {"stateMachineArn": machine.arn, "input": {}}, **more}
        holder = self.machine.start("holder", asked)
        child: str = until(machine.executions, PATIENCE_S, lambda: "a child")[0]["executionArn"]
        machine.wait_until_entered(child, "Sleep")
        return holder, machine, child

    def function(self, name: str) -> Function:
        return self.engine.functions[name]

    def lock(self, entity: str) -> LockState:
        return LockTable(self.table_name, client=self.client).inspect(LockName(entity))

    def items(self) -> list[Item]:
        found: list[Item] = self.client.scan(TableName=self.table_name, ConsistentRead=True)["Items"]
        return found

    def is_free(self, entity: str) -> bool:
        state = self.lock(entity)
        return state.item is not None and (state.item.held, state.item.holders, state.rows) == (0, (), ())

    def wait_until_free(self, entity: str) -> None:
        """Wait until the lock has no holder and no waiter, except expired ones."""
        until(lambda: not lease_runs(self.lock(entity)), PATIENCE_S, lambda: f"{entity} to be free: {self.items()}")

    def session(self, arn: str) -> Item | None:
        key = Session(arn, "serialize").key()
        found = self.client.get_item(TableName=self.table_name, Key=key, ConsistentRead=True)
        item: Item | None = found.get("Item")
        return item

    def continuations(self, prefix: str) -> list[str]:
        """The executions that continue waits (``wait-``) or holds (``hold-``), in the order of their starts."""
        found = sorted(self.continues.executions(), key=lambda execution: execution["startDate"])
        return [each["executionArn"] for each in found if each["name"].startswith(prefix)]

    def wait_until_parked(self, arn: str) -> None:
        """Wait until a waiter has left the token of its callback task."""
        until(
            lambda: "wakeUpToken" in (self.session(arn) or {}),
            PATIENCE_S,
            lambda: f"{arn} to park: {self.machine.entered(arn)}",
        )

    def clean_up(self, arn: str, *, input_included: bool = True) -> None:
        """The event of EventBridge after an execution has failed, timed out or was stopped; it has milliseconds.

        https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html
        """
        found = self.engine.client.describe_execution(executionArn=arn)
        detail: dict[str, Any] = {name: found[name] for name in ("executionArn", "stateMachineArn", "name", "status")}
        if detail["status"] == "RUNNING":
            # Stopped; moto's execution ends only when the function that it has invoked ends.
            detail["status"] = "ABORTED"
        dates = {"startDate": found["startDate"], "stopDate": found.get("stopDate", datetime.now(tz=UTC))}
        detail |= {name: int(date.timestamp() * 1_000) for name, date in dates.items()}
        detail |= {"input": found["input"] if input_included else None, "inputDetails": {"included": input_included}}
        detail |= {"output": None, "outputDetails": None}
        kind = {"source": "aws.states", "detail-type": "Step Functions Execution Status Change"}
        clean_up.handler({"version": "0", **kind, "resources": [arn], "detail": detail}, LambdaContext("CleanUp"))

    def take_away(self, entity: str) -> None:
        """Do as a successor after the end of the lease: remove the holder, and issue a later token."""
        item = self.client.get_item(TableName=self.table_name, Key=lock_key(LockName(entity)))["Item"]
        kept = {name: value for name, value in item.items() if not name.startswith(("holder:", "token:"))}
        token = int(item["fencingToken"]["N"]) + 1
        self.client.put_item(
            TableName=self.table_name, Item=kept | {"held": {"N": "0"}, "fencingToken": {"N": str(token)}}
        )


@contextmanager
def stage(
    endpoint: str,
    work: Mapping[str, Function | Handler | Work],
    *,
    change: Mapping[str, Any] | None = None,
    hand_over: HandOver = HandOver.POLL,
    parks: int | None = None,
    definition: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Stage]:
    """Open the engine with the workflow and the work functions.

    Args:
        endpoint: the emulator that has the table.
        work: the functions that may be run.
        change: paths in the definition ("Hold/0/InvokeFunction/TimeoutSeconds"), and their new values.
        hand_over: the construct property.
        definition: in place of that of the settings.
        parks: how many times a parked waiter renews its row between two polls; as deployed, unless given.
        settings: further settings.
    """
    client = make_client(endpoint_url=endpoint, region_name="us-east-1")
    table_name = create_table(client)
    numbers = LockSettings(**{"lease_s": LEASE_S, "poll_s": 1, "hand_over": hand_over, **settings})
    targets = [parse_target("work", arn) for arn in (*map(function_arn, work), CHILD_ARN)]
    opened_with = dict(definition) if definition is not None else serialize_definition(numbers, targets)
    continuing = continue_definition(numbers)
    if parks is not None:
        for each in (opened_with, continuing):
            each["States"]["WaitForWakeUp"]["Retry"][0]["MaxAttempts"] = parks - 1
    for path, value in (change or {}).items():
        put(opened_with, path, value)
    functions: dict[str, Any] = {name: Function(handler) for name, handler in HANDLERS.items()} | dict(work)
    _observed.workflow.cache_clear()
    with StepFunctions(functions, dynamodb_endpoint=endpoint) as engine:
        environment = {"TABLE_NAME": table_name, "POWERTOOLS_LOG_LEVEL": "ERROR", "POWERTOOLS_SERVICE_NAME": "lock"}
        environment |= {"STATE_MACHINE_ARN": SERIALIZE_ARN, "LEASE_SECONDS": str(numbers.lease_s)}
        with patch.dict(os.environ, environment):
            continues = engine.machine("continue", substituted(continuing, table_name))
            machine = engine.machine("serialize", substituted(opened_with, table_name))
            opened = Stage(engine, machine, continues, client, table_name)
            _observed.workflow()._table._client.meta.events.register(
                "provide-client-params.dynamodb", lambda model, **_: opened.requests.append(model.name)
            )
            yield opened


def substituted(definition: Mapping[str, Any], table_name: str) -> str:
    text = json.dumps(definition).replace("${Partition}", "aws").replace("${TableName}", table_name)
    text = text.replace("${ContinueArn}", CONTINUE_ARN)
    for name in HANDLERS:
        text = text.replace(f"${{{name}Arn}}", function_arn(name))
    assert "${" not in text
    return text


def put(definition: dict[str, Any], path: str, value: Any) -> None:
    """Change one field of a state; a number in the path is a branch of a Parallel."""
    *states, name = path.split("/")
    found: Any = definition["States"]
    for step in states:
        found = found["Branches"][int(step)]["States"] if step.isdigit() else found[step]
    found[name] = value
