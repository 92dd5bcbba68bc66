"""The deployed stack, for the checks: executions, histories, locks, logs, and waits with a time limit."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from ticketlock import LockName, LockState, LockTable
from ticketlock.wire._sdk import CLIENT_SETTINGS
from ticketlock_local.aws.account import Account
from ticketlock_local.aws.own_stack import OwnStack
from ticketlock_local.aws.seen import NotSeen

PATIENCE_S = 90.0
"""The time limit for steps that take seconds, and on AWS sometimes more."""

_POLL_EVERY_S = 0.5
_REFUSALS = ("AccessDenied", "AccessDeniedException")

T = TypeVar("T")
History = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Bursts:
    """The sizes of the bursts.

    Attributes:
        starts: nested executions that are started, and that are stopped; 0 for none.
    """

    starts: int


class Deployed:
    """One stack with its lock.

    Args:
        account: where.
        stack: whose.
        outputs: the stack's.
        bursts: how many executions a burst may have.
    """

    def __init__(self, account: Account, stack: OwnStack, outputs: Mapping[str, str], bursts: Bursts) -> None:
        self.account = account
        self.stack = stack
        self.outputs = outputs
        self.bursts = bursts
        self._done: dict[Callable[[Deployed], Any], Any] = {}

    def once(self, experiment: "Callable[[Deployed], T]") -> T:
        """The result of an experiment, which is run once for all checks that use it.

        Raises:
            NotSeen: or any other error of the experiment, each time.
        """
        if experiment not in self._done:
            try:
                self._done[experiment] = experiment(self)
            except Exception as error:
                self._done[experiment] = error
        found = self._done[experiment]
        if isinstance(found, Exception):
            raise found
        shown: T = found
        return shown

    @cached_property
    def step_functions(self) -> Any:
        """Step Functions, with the caller's credentials."""
        return self.account.client("stepfunctions")

    @cached_property
    def locks(self) -> LockTable:
        """The lock table, with the caller's credentials."""
        return LockTable(self.outputs["TableName"], client=self._dynamodb(self.account.session))

    def lock(self, entity: str) -> LockState:
        """A lock, its holders and its queue."""
        return self.locks.inspect(LockName(entity))

    def is_free(self, entity: str) -> bool:
        """Whether the lock has been used, and has neither a holder nor a waiter."""
        state = self.lock(entity)
        return state.item is not None and not state.item.holders and not state.rows

    # Executions.

    def start(self, entity: str, task: Mapping[str, Any], machine: str | None = None) -> str:
        """Start an execution of the serialised workflow; returns its ARN."""
        arn: str = self.step_functions.start_execution(
            stateMachineArn=machine or self.outputs["StateMachineArn"],
            name=f"check-{uuid.uuid4().hex}",
            input=json.dumps({"entity": entity, "recordWaitSeconds": 300, "task": task}),
        )["executionArn"]
        return arn

    def nest(self, entity: str, seconds: int, machine: str | None = None) -> str:
        """Start one whose work is a nested execution that waits."""
        return self.start(entity, {"stateMachineArn": self.outputs["WaitsArn"], "input": {"seconds": seconds}}, machine)

    def sleep(self, entity: str, seconds: float = 0) -> str:
        """Start one whose work is a function that sleeps."""
        return self.start(entity, {"functionArn": self.outputs["SleepsArn"], "input": {"seconds": seconds}})

    def ended(self, arn: str, patience_s: float = PATIENCE_S) -> Mapping[str, Any]:
        """Wait for the end of an execution; returns its description."""

        def has_ended() -> Mapping[str, Any] | None:
            found: Mapping[str, Any] = self.step_functions.describe_execution(executionArn=arn)
            return found if found["status"] != "RUNNING" else None

        return self.wait_for(has_ended, f"the end of {arn}", patience_s)

    def history(self, arn: str) -> History:
        """The events of an execution, oldest first."""
        pages = self.step_functions.get_paginator("get_execution_history").paginate(executionArn=arn)
        return [event for page in pages for event in page["events"]]

    def until_held(self, entity: str, by: str) -> int:
        """Wait until this execution holds the lock; returns its fencing token."""

        def token() -> int | None:
            item = self.lock(entity).item
            return next((each.fencing_token for each in item.holders if each.owner == by), None) if item else None

        return self.wait_for(token, f"{entity} being held by {by}")

    def until_parked(self, arn: str) -> None:
        """Wait until an execution is parked: its session has a token, which is not read."""
        request = {
            "TableName": self.outputs["TableName"],
            "KeyConditionExpression": "pk = :session",
            "FilterExpression": "attribute_exists(wakeUpToken)",
            "ExpressionAttributeValues": {":session": {"S": f"session#{arn}"}},
            "ConsistentRead": True,
            "Select": "COUNT",
        }
        dynamodb = self.account.client("dynamodb")
        self.wait_for(lambda: dynamodb.query(**request)["Count"] > 0, f"{arn} being parked")

    def wait_for(self, probe: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
        """Poll until something is found that is neither None nor False.

        Raises:
            NotSeen: nothing was found in time.
        """
        deadline = time.monotonic() + patience_s
        while True:
            found = probe()
            if found is not None and found is not False:
                return found
            if time.monotonic() > deadline:
                raise NotSeen(f"waited {patience_s:.0f} s for {what}")
            time.sleep(_POLL_EVERY_S)

    # Functions and roles.

    def function(self, handler: str) -> str:
        """The name of the lock's function with this handler."""
        functions = self.account.client("lambda")
        for each in self.stack.resources():
            if each["ResourceType"] == "AWS::Lambda::Function":
                name: str = each["PhysicalResourceId"]
                if functions.get_function_configuration(FunctionName=name)["Handler"] == f"{handler}.handler":
                    return name
        raise NotSeen(f"the stack has no function {handler}")

    def log_lines(self, handler: str) -> list[str]:
        """The log of a function of the lock, with Lambda's own lines."""
        configuration = self.account.client("lambda").get_function_configuration(FunctionName=self.function(handler))
        pages = self.account.client("logs").get_paginator("filter_log_events")
        group = configuration["LoggingConfig"]["LogGroup"]
        return [event["message"] for page in pages.paginate(logGroupName=group) for event in page["events"]]

    def acting_as(self, role: str) -> boto3.Session:
        """A session of the role `Operator` or `Client`, which have only the construct's grants."""

        def assumed() -> Mapping[str, str] | None:
            try:
                answer = self.account.client("sts").assume_role(
                    RoleArn=self.outputs[f"{role}RoleArn"], RoleSessionName="check", ExternalId=self.stack.run
                )
            except ClientError as error:
                if error.response["Error"]["Code"] in _REFUSALS:
                    return None  # IAM is eventually consistent
                raise
            credentials: Mapping[str, str] = answer["Credentials"]
            return credentials

        now = self.wait_for(assumed, f"the role {role} to be assumed")
        return boto3.Session(
            now["AccessKeyId"], now["SecretAccessKey"], now["SessionToken"], region_name=self.account.region
        )

    def table_of(self, session: boto3.Session) -> LockTable:
        """The lock table, with another session."""
        return LockTable(self.outputs["TableName"], client=self._dynamodb(session))

    def _dynamodb(self, session: boto3.Session) -> Any:
        return session.client("dynamodb", config=Config(**CLIENT_SETTINGS))


def entity(what: str) -> str:
    """An unused name."""
    return f"{what}-{uuid.uuid4().hex[:8]}"


def is_refused(request: Callable[[], object]) -> bool:
    """Whether IAM refuses a request; any other error is raised."""
    try:
        request()
    except ClientError as error:
        if error.response["Error"]["Code"] in _REFUSALS:
            return True
        raise
    return False


def in_state(history: History, *names: str) -> list[Mapping[str, Any]]:
    """The events of a history that follow from entering a state."""
    by_id = {event["id"]: event for event in history}

    def entered(event: Mapping[str, Any]) -> str:
        for before in _back(by_id, event):
            if before["type"].endswith("StateEntered"):
                name: str = before["stateEnteredEventDetails"]["name"]
                return name
        return ""

    return [event for event in history if entered(event) in names]


def ends_of_parking(history: History) -> list[str]:
    """How the callback task of a waiter ended, each time: it succeeds when the waiter is woken.

    Raises:
        NotSeen: it is not in the history.
    """
    parked = in_state(history, "WaitForWakeUp", "WaitForWakeUpBriefly")
    ends = [event["type"] for event in parked if event["type"] in ("TaskSucceeded", "TaskTimedOut", "TaskFailed")]
    if not ends:
        raise NotSeen("the history has no end of the parking")
    return ends


def details(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The details of an event of any type."""
    found = [value for key, value in event.items() if key.endswith("EventDetails")]
    return found[0] if found else {}


def _back(by_id: Mapping[int, Mapping[str, Any]], event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    seen: set[int] = set()
    while event["id"] not in seen:
        seen.add(event["id"])
        yield event
        previous = by_id.get(event.get("previousEventId", 0))
        if previous is None:
            return
        event = previous
