"""One deployed TicketLock, as its users and its operator use it."""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from kit.units import dumped, loaded
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.demo.executions import TOLD_BY, Execution, observe, turn_in

from ticketlock import LockName, LockState, LockTable
from ticketlock.locks._items import Holder, LockItem
from ticketlock.wire._sdk import make_client
from ticketlock.workflow._failures import execution_arn, work_name

POLL_S = 1
LEASE_S = 60
"""The construct's default."""

NOTHING = {"CleanedUpPlaces": 0, "CleanedUpHolds": 0, "HoldsLeftToLease": 0}
"""What the clean-up has done that has found nothing."""

_LONGEST_RUN_S = 120.0
# At most ten cold executions a second: each starts a process for every function on the emulator.
_BETWEEN_STARTS_S = 0.1

T = TypeVar("T")
History = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Ended:
    """An execution that has ended.

    Attributes:
        status: SUCCEEDED, FAILED, TIMED_OUT or ABORTED.
        output: of one that succeeded.
        error, cause: of one that failed; empty otherwise.
        ticket: the ticket that it got; None if it was refused.
    """

    arn: str
    status: str
    output: Any
    error: str
    cause: str
    ticket: int | None


class FunctionFailed(Exception):
    """A function that was called directly raised an error."""


class Cloud:
    """One deployed TicketLock.

    Attributes:
        outputs: the stack's: TableName, StateMachineArn, ExampleTargetArn, ExampleFunctionArn.
        failing_function: the ARN of a target that always fails.
    """

    poll_every_s = 0.1

    def __init__(
        self,
        endpoint: str,
        outputs: Mapping[str, str],
        failing_function: str = "",
    ) -> None:
        self.endpoint = endpoint
        self._arguments = client_arguments(endpoint)
        self._clients: dict[str, Any] = {}
        self.outputs = outputs
        self.failing_function = failing_function

    @cached_property
    def step_functions(self) -> Any:
        return self.client("stepfunctions")

    @cached_property
    def dynamodb(self) -> Any:
        return make_client(**self._arguments)

    @cached_property
    def locks(self) -> LockTable:
        return LockTable(self.outputs["TableName"], client=self.dynamodb)

    @cached_property
    def functions(self) -> Mapping[str, Any]:
        """The configurations of its functions by the names of their handlers' modules."""
        pages = self.client("lambda").get_paginator("list_functions").paginate()
        found = {}
        for function in (function for page in pages for function in page["Functions"]):
            table = function.get("Environment", {}).get("Variables", {}).get("TABLE_NAME")
            if table == self.outputs["TableName"]:
                found[function["Handler"].partition(".")[0]] = function
        return found

    def client(self, service: str) -> Any:
        """An AWS client of a user with all permissions."""
        if service not in self._clients:
            # No retries: a function that is called twice would do twice what a test counts.
            config = Config(read_timeout=60, retries={"total_max_attempts": 1})
            # The service's name is known only to the caller, so no typed overload fits.
            make: Any = boto3.client
            self._clients[service] = make(service, config=config, **self._arguments)
        return self._clients[service]

    def configuration(self, function: str) -> Any:
        """The configuration of a function by its name."""
        return self.client("lambda").get_function_configuration(FunctionName=function)

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        """Call a function directly.

        Raises:
            FunctionFailed: it has raised.
        """
        answer = self.client("lambda").invoke(FunctionName=function, Payload=json.dumps(event))
        reply = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise FunctionFailed(str(reply.get("errorMessage")))
        return reply

    def call(self, step: str, event: Mapping[str, Any]) -> Any:
        """Call the function of a step directly."""
        return self.invoke(self.functions[step]["FunctionName"], event)

    def logged(self, function: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What a function with this configuration has logged as JSON, oldest first."""
        return [json.loads(each["message"]) for each in self._events(function) if each["message"].startswith("{")]

    def log_lines(self, step: str, execution: str) -> list[Mapping[str, Any]]:
        """What a step's function has logged for an execution, oldest first."""
        return [line for line in self.logged(self.functions[step]) if line.get("execution") == execution]

    def cleaned_up(self, arn: str) -> dict[str, int]:
        """Wait until the clean-up has run for an execution; return what it did, from its last log line."""
        self.wait_until(lambda: bool(self.log_lines("clean_up", arn)), f"the clean-up of {arn}")
        line = self.log_lines("clean_up", arn)[-1]
        # If it left nothing, the line has no figures.
        return {name: line.get(name, 0) for name in NOTHING}

    def messages(self, step: str) -> list[str]:
        """The log of a step's function, with Lambda's own lines."""
        return [event["message"] for event in self._events(self.functions[step])]

    def _events(self, function: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        pages = self.client("logs").get_paginator("filter_log_events")
        group = function["LoggingConfig"]["LogGroup"]
        return [event for page in pages.paginate(logGroupName=group) for event in page["events"]]

    def now_ms(self) -> int:
        """The emulator's time, which is this machine's."""
        return time.time_ns() // 1_000_000

    def start(self, execution_input: Any, machine: str | None = None) -> str:
        """Start an execution, of the serialised workflow unless a machine is named; returns its ARN."""
        # A pause, not a wait for a condition.
        time.sleep(_BETWEEN_STARTS_S)
        arn: str = self.step_functions.start_execution(
            stateMachineArn=machine or self.outputs["StateMachineArn"],
            name=f"e-{uuid.uuid4().hex}",
            input=json.dumps(execution_input),
        )["executionArn"]
        return arn

    def stop(self, arn: str) -> int:
        """Stop an execution; returns when it was stopped, in milliseconds since the epoch."""
        self.step_functions.stop_execution(executionArn=arn)
        stopped: int = round(self.described(arn)["stopDate"].timestamp() * 1_000)
        return stopped

    def described(self, arn: str) -> Any:
        return self.step_functions.describe_execution(executionArn=arn)

    def definition(self, machine: str) -> Any:
        """The definition of a state machine, as it was deployed."""
        return json.loads(self.step_functions.describe_state_machine(stateMachineArn=machine)["definition"])

    def history(self, arn: str) -> History:
        """The events of an execution, oldest first."""
        pages = self.step_functions.get_paginator("get_execution_history").paginate(executionArn=arn)
        return [event for page in pages for event in page["events"]]

    def story(self, arn: str) -> Execution:
        """What the history of an execution of the serialised workflow shows."""
        return observe(self.step_functions, arn)

    def nest(self, entity: str, seconds: int, machine: str | None = None, **more: Any) -> str:
        """Start an execution whose work is the example workflow; returns its ARN."""
        task = {"stateMachineArn": self.outputs["ExampleTargetArn"], "input": {"seconds": seconds}}
        return self.start({"entity": entity, "task": task, **more}, machine)

    def put(self, output: str, item: Mapping[str, Any]) -> None:
        """Write an item of a table of users, which the stack names in an output."""
        self.dynamodb.put_item(TableName=self.outputs[output], Item=dumped(item))

    def got(self, output: str, id: str) -> dict[str, Any]:
        """An item of such a table."""
        found = self.dynamodb.get_item(TableName=self.outputs[output], Key={"id": {"S": id}}, ConsistentRead=True)
        return loaded(found["Item"])

    def nested(self, arn: str, entity: str) -> str:
        """The ARN of the execution that is the work of the one that holds the lock."""
        token = self.holder(entity, arn).fencing_token
        return execution_arn(self.outputs["ExampleTargetArn"], work_name(arn, token))

    def sleep(self, entity: str, seconds: float = 0, **more: Any) -> str:
        """Start an execution whose work is the example function; returns its ARN."""
        task = {"functionArn": self.outputs["ExampleFunctionArn"], "input": {"seconds": seconds}}
        return self.start({"entity": entity, "task": task, **more})

    def ended(self, arn: str, patience_s: float = _LONGEST_RUN_S) -> Ended:
        """Wait for the end of an execution."""

        def described() -> Any:
            found = self.described(arn)
            return None if found["status"] == "RUNNING" else found

        found = self.wait_for(described, f"the end of {arn}", patience_s)
        succeeded = found["status"] == "SUCCEEDED"
        return Ended(
            arn=arn,
            status=found["status"],
            output=json.loads(found["output"]) if succeeded else None,
            error=found.get("error") or "",
            cause=found.get("cause") or "",
            ticket=self._ticket(arn),
        )

    def run(self, execution_input: Any) -> Ended:
        return self.ended(self.start(execution_input))

    def lock(self, entity: str, namespace: str = "default") -> LockState:
        return self.locks.inspect(LockName(entity, namespace))

    def item(self, entity: str, namespace: str = "default") -> LockItem:
        """The item of a lock that has been used."""
        item = self.lock(entity, namespace).item
        assert item is not None
        return item

    def holder(self, entity: str, owner: str | None = None) -> Holder:
        """The grant of the holder, which is this owner's."""
        [holder] = self.item(entity).holders
        assert owner in (None, holder.owner)
        return holder

    def is_free(self, entity: str, namespace: str = "default") -> bool:
        """Whether the lock has been used, and has neither a holder nor a waiter."""
        state = self.lock(entity, namespace)
        return state.item is not None and (state.item.held, state.item.holders, state.rows) == (0, (), ())

    def wait_until_held(self, entity: str, by: str | None = None) -> None:
        """Wait until the lock has a holder, or this execution holds it."""

        def is_held() -> bool:
            item = self.lock(entity).item
            return item is not None and item.held == 1 and by in (None, item.holders[0].owner)

        self.wait_until(is_held, f"a holder of {entity}")

    def wait_until_queued(self, entity: str, *arns: str) -> None:
        """Wait until the queue has exactly these executions, in this order."""
        self.wait_until(lambda: tuple(row.owner for row in self.lock(entity).rows) == arns, f"the queue of {entity}")

    def wait_until_parked(self, arn: str) -> None:
        """Wait until an execution is parked: its function has stored the token, and found no reason to poll."""
        self.wait_until(
            lambda: any(line.get("stays") for line in self.log_lines("wait_for_wake_up", arn)), f"{arn} being parked"
        )

    def items(self) -> list[Mapping[str, Any]]:
        """Everything in the table."""
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=self.outputs["TableName"], ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def wait_until(self, condition: Callable[[], bool], what: str, patience_s: float = _LONGEST_RUN_S) -> None:
        self.wait_for(lambda: condition() or None, what, patience_s)

    def wait_for(self, probe: Callable[[], T | None], what: str, patience_s: float = _LONGEST_RUN_S) -> T:
        """Poll until something is found."""
        deadline = time.monotonic() + patience_s
        while (found := probe()) is None:
            assert time.monotonic() < deadline, f"waited {patience_s:g} s for {what}"
            # Executions do not report what they do: it is polled.
            time.sleep(self.poll_every_s)
        return found

    def _ticket(self, arn: str) -> int | None:
        for event in self.history(arn):
            exited = event.get("stateExitedEventDetails", {})
            if exited.get("name") in TOLD_BY and (turn := turn_in(exited["output"])):
                drawn = turn.get("grant") or turn.get("place")
                return drawn["ticket"] if drawn else None
        return None
