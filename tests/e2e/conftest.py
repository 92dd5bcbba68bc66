"""The real stack, deployed once a session by the real CDK to the emulator."""

import io
import json
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from ticketlock_local.cloud import client_arguments, deploy
from ticketlock_local.emulator import Emulator

from ticketlock import LockName, LockState, LockTable
from ticketlock._sdk import make_client

_LONGEST_RUN_S = 120.0
_POLL_S = 0.1
# At most ten cold executions a second: each starts a process for every function on the emulator.
_BETWEEN_STARTS_S = 0.1

_FAILS = """\
class OutOfPaint(Exception):
    pass


def handler(event, _context):
    raise OutOfPaint("there is no more " + event["colour"])
"""


@dataclass(frozen=True)
class Ended:
    """An execution that has ended.

    Attributes:
        status: SUCCEEDED, FAILED, TIMED_OUT or ABORTED.
        output: of one that succeeded.
        error, cause: of one that failed.
        ticket: the number that it drew; None of a refused one.
    """

    arn: str
    status: str
    output: Any
    error: str | None
    cause: str | None
    ticket: int | None


class Cloud:
    """The deployed stack.

    Attributes:
        outputs: the stack's.
        failing_function: the ARN of a target that always fails.
    """

    def __init__(self, endpoint: str, outputs: Mapping[str, str], failing_function: str = "") -> None:
        self._arguments = client_arguments(endpoint)
        self.outputs = outputs
        self.failing_function = failing_function

    @cached_property
    def step_functions(self) -> Any:
        return boto3.client("stepfunctions", **self._arguments)

    @cached_property
    def dynamodb(self) -> Any:
        return make_client(**self._arguments)

    @cached_property
    def locks(self) -> LockTable:
        return LockTable(self.outputs["TableName"], client=self.dynamodb)

    def start(self, execution_input: Any) -> str:
        """Start an execution; returns its ARN."""
        time.sleep(_BETWEEN_STARTS_S)
        arn: str = self.step_functions.start_execution(
            stateMachineArn=self.outputs["StateMachineArn"],
            name=f"e-{uuid.uuid4().hex}",
            input=json.dumps(execution_input),
        )["executionArn"]
        return arn

    def sleep(self, entity: str, seconds: float, **more: Any) -> str:
        """Start an execution whose work is the example function; returns its ARN."""
        task = {"functionArn": self.outputs["ExampleFunctionArn"], "input": {"seconds": seconds}}
        return self.start({"entity": entity, "task": task, **more})

    def ended(self, arn: str) -> Ended:
        """Wait for the end of an execution."""
        found: Any = {}

        def has_ended() -> bool:
            nonlocal found
            found = self.step_functions.describe_execution(executionArn=arn)
            return bool(found["status"] != "RUNNING")

        self.wait_until(has_ended, f"the end of {arn}")
        succeeded = found["status"] == "SUCCEEDED"
        return Ended(
            arn=arn,
            status=found["status"],
            output=json.loads(found["output"]) if succeeded else None,
            error=found.get("error"),
            cause=found.get("cause"),
            ticket=self._ticket(arn),
        )

    def run(self, execution_input: Any) -> Ended:
        return self.ended(self.start(execution_input))

    def lock(self, entity: str, namespace: str = "default") -> LockState:
        return self.locks.inspect(LockName(entity, namespace))

    def is_free(self, entity: str) -> bool:
        """Whether somebody has held the lock, and nobody does or waits any more."""
        state = self.lock(entity)
        return state.item is not None and (state.item.held, state.item.holders, state.rows) == (0, (), ())

    def wait_until_held(self, entity: str) -> None:
        """Wait until somebody holds the lock."""

        def is_held() -> bool:
            item = self.lock(entity).item
            return item is not None and item.held == 1

        self.wait_until(is_held, f"a holder of {entity}")

    def items(self) -> list[Mapping[str, Any]]:
        """Everything in the table."""
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=self.outputs["TableName"], ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LONGEST_RUN_S
        while not condition():
            assert time.monotonic() < deadline, f"waited {_LONGEST_RUN_S:g} s for {what}"
            time.sleep(_POLL_S)

    def _ticket(self, arn: str) -> int | None:
        pages = self.step_functions.get_paginator("get_execution_history").paginate(executionArn=arn)
        for event in (event for page in pages for event in page["events"]):
            exited = event.get("stateExitedEventDetails", {})
            if exited.get("name") == "TakeTicket":
                turn = json.loads(exited["output"])["lock"]["turn"]
                drawn = turn.get("grant") or turn.get("place")
                return drawn["ticket"] if drawn else None
        return None


@pytest.fixture(scope="session")
def cloud(emulator: Emulator) -> Cloud:
    failing = boto3.client("lambda", **client_arguments(emulator.endpoint)).create_function(
        FunctionName="out-of-paint",
        Runtime="python3.14",
        Handler="index.handler",
        Role="arn:aws:iam::000000000000:role/out-of-paint",
        Code={"ZipFile": _zipped("index.py", _FAILS)},
    )["FunctionArn"]
    outputs = deploy(emulator, context={"poll": "1", "removal_policy": "destroy", "targets": failing})
    return Cloud(emulator.endpoint, outputs, failing)


@pytest.fixture(scope="session")
def guarded_cloud() -> Iterator[Cloud]:
    """A cloud of its own in which the functions may send only what their roles allow, with a lease of 10 s."""
    with Emulator(env={"AUTH": "true"}) as emulator:
        outputs = deploy(emulator, context={"poll": "1", "lease": "10", "removal_policy": "destroy"})
        iam = boto3.client("iam", **client_arguments(emulator.endpoint))
        _let_answer(iam)
        cloud = Cloud(emulator.endpoint, outputs)
        _check_that_it_guards(iam, emulator.endpoint, outputs["TableName"])
        yield cloud


def _let_answer(iam: Any) -> None:
    # The emulator wants these allowed on every resource; the stack allows them on its machine, as the CDK does itself.
    answers = ["states:SendTaskFailure", "states:SendTaskSuccess"]
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": answers, "Resource": "*"}]}
    for role in (role["RoleName"] for role in iam.list_roles()["Roles"]):
        if "HeartbeatRole" in role or "ReleaseRole" in role:
            iam.put_role_policy(RoleName=role, PolicyName="Answer", PolicyDocument=json.dumps(document))


def _check_that_it_guards(iam: Any, endpoint: str, table_name: str) -> None:
    iam.create_user(UserName="nobody")
    key = iam.create_access_key(UserName="nobody")["AccessKey"]
    credentials = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    nobody = boto3.client("dynamodb", **{**client_arguments(endpoint), **credentials})
    with pytest.raises(ClientError, match="AccessDenied"):
        nobody.scan(TableName=table_name)


@pytest.fixture
def entity() -> str:
    return f"order-{uuid.uuid4().hex}"


def _zipped(name: str, text: str) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, text)
    return archive.getvalue()
