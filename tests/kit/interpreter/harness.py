"""Runs a state machine definition on moto's interpreter with real handlers and a real table.

Step Functions is moto, in this process; the functions are Python callables behind a loopback Lambda
endpoint; DynamoDB is the server at the given endpoint.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self
from unittest.mock import patch

import boto3
from kit.interpreter.lambda_server import Function, Handler, Invocation, LambdaContext, LambdaServer
from kit.interpreter.moto_repairs import repaired
from moto import mock_aws
from moto.core.config import DefaultConfig
from moto.stepfunctions.parser import utils as interpreter

PATIENCE_S = 120.0
"""For what takes far less, on a busy machine too."""
_POLLS_EVERY_S = 0.05
ROLE = "arn:aws:iam::123456789012:role/state-machine"


@dataclass(frozen=True)
class Outcome:
    """How an execution ended: status, and output or error and cause."""

    status: str
    output: Any = None
    error: str | None = None
    cause: str | None = None


class StepFunctions:
    """The engine for one test: open it, add machines, start executions; closing it stops running executions."""

    def __init__(
        self, functions: Mapping[str, Function | Handler], *, dynamodb_endpoint: str, patience_s: float = 10.0
    ) -> None:
        """At the end, running handlers, and then the interpreter, have `patience_s` seconds to end."""
        self._patience_s = patience_s
        self.functions = {
            name: function if isinstance(function, Function) else Function(function)
            for name, function in functions.items()
        }
        self._dynamodb_endpoint = dynamodb_endpoint
        self._machines: list[Machine] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._server = LambdaServer(self.functions, self._patience_s)
            inherited = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
            endpoints = {
                "AWS_ENDPOINT_URL_LAMBDA": self._server.endpoint,
                "AWS_ENDPOINT_URL_DYNAMODB": self._dynamodb_endpoint,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_CONFIG_FILE": os.devnull,
            }
            stack.enter_context(patch.dict(os.environ, inherited | endpoints, clear=True))
            config: DefaultConfig = {
                "stepfunctions": {"execute_state_machine": True},
                "core": {"passthrough": {"services": ["lambda", "dynamodb"], "urls": []}},
            }
            stack.enter_context(mock_aws(config=config))
            # boto3's default session is created here, once: creating it is not thread-safe.
            self.client = boto3.client("stepfunctions")
            stack.callback(self.client.close)
            stack.enter_context(repaired())
            known = set(threading.enumerate())
            stack.callback(self._join_interpreter, known)
            stack.enter_context(self._server)
            stack.callback(self._stop_all)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def invocations_of(self, function: str) -> list[Invocation]:
        """The finished runs of a function, in the order of their ends."""
        return [invocation for invocation in list(self._server.invocations) if invocation.function == function]

    def machine(self, name: str, definition: Mapping[str, Any] | str) -> Machine:
        """Create a state machine; a broken definition is refused here."""
        text = definition if isinstance(definition, str) else json.dumps(definition)
        arn = self.client.create_state_machine(name=name, definition=text, roleArn=ROLE)["stateMachineArn"]
        machine = Machine(self.client, arn)
        self._machines.append(machine)
        return machine

    def _stop_all(self) -> None:
        for machine in self._machines:
            for execution in machine.executions(statusFilter="RUNNING"):
                machine.stop(execution["executionArn"])

    def _join_interpreter(self, known: set[threading.Thread]) -> None:
        """Wait until the interpreter's threads have ended."""
        deadline = time.monotonic() + self._patience_s
        ours = [thread for thread in interpreter.TMP_THREADS if thread not in known]
        for thread in ours:
            thread.join(max(0.0, deadline - time.monotonic()))
        interpreter.TMP_THREADS.clear()
        left = [thread.name for thread in ours if thread.is_alive()]
        if left:
            raise RuntimeError(f"{len(left)} threads of the interpreter are still running: {', '.join(left)}")


class Machine:
    """One state machine; executions are named by their ARNs."""

    def __init__(self, client: Any, arn: str) -> None:
        self._client = client
        self.arn = arn

    def start(self, name: str, input: Any) -> str:
        """Start an execution and return its ARN, once its first event is written."""
        arn: str = self._client.start_execution(stateMachineArn=self.arn, name=name, input=json.dumps(input))[
            "executionArn"
        ]
        until(lambda: self.history(arn), PATIENCE_S, lambda: f"{name} to begin")
        return arn

    def wait(self, arn: str, timeout: float = PATIENCE_S) -> Outcome:
        ended: Outcome = until(lambda: self.outcome(arn), timeout, lambda: f"{arn} to end: {self.entered(arn)}")
        return ended

    def run(self, name: str, input: Any, timeout: float = PATIENCE_S) -> Outcome:
        return self.wait(self.start(name, input), timeout)

    def outcome(self, arn: str) -> Outcome | None:
        """How the execution ended, or None while it runs."""
        found = self._client.describe_execution(executionArn=arn)
        if found["status"] == "RUNNING":
            return None
        output = json.loads(found["output"]) if "output" in found else None
        return Outcome(found["status"], output, found.get("error"), found.get("cause"))

    def stop(self, arn: str) -> None:
        """StopExecution: no Catch runs, callback tokens end."""
        self._client.stop_execution(executionArn=arn)

    def executions(self, **more: Any) -> list[dict[str, Any]]:
        pages = self._client.get_paginator("list_executions").paginate(stateMachineArn=self.arn, **more)
        return [execution for page in pages for execution in page["executions"]]

    def history(self, arn: str) -> list[dict[str, Any]]:
        pages = self._client.get_paginator("get_execution_history").paginate(executionArn=arn)
        return [event for page in pages for event in page["events"]]

    def entered(self, arn: str) -> Counter[str]:
        """How often each state was entered; `.total()` is the number of billed transitions."""
        details = (event.get("stateEnteredEventDetails") for event in self.history(arn))
        return Counter(detail["name"] for detail in details if detail)

    def wait_until_entered(self, arn: str, state: str, timeout: float = PATIENCE_S, *, more_than: int = 0) -> None:
        """Wait until an execution has entered a state more than so many times."""
        until(lambda: self.entered(arn)[state] > more_than, timeout, lambda: f"{state}: {self.entered(arn)}")


def until(condition: Callable[[], Any], timeout: float, what: Callable[[], str]) -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout} s for {what()}")
        pause.wait(_POLLS_EVERY_S)
    return value


@dataclass
class Work:
    """A protected function for tests: takes a while, may fail, remembers when it ran."""

    seconds: float = 0.0
    result: Any = "done"
    error: Exception | None = None
    started: threading.Event = field(default_factory=threading.Event)
    finish: threading.Event = field(default_factory=threading.Event)
    """Set it to end the work early."""
    runs: list[Work.Run] = field(default_factory=list)

    @dataclass(frozen=True)
    class Run:
        event: Any
        started: float
        ended: float

    def __call__(self, event: Any, context: LambdaContext) -> Any:  # noqa: ARG002
        began = time.monotonic()
        self.started.set()
        self.finish.wait(self.seconds)
        self.runs.append(self.Run(event, began, time.monotonic()))
        if self.error is not None:
            raise self.error
        return self.result

    def overlaps(self) -> list[tuple[Work.Run, Work.Run]]:
        """Neighbours in time that ran at the same moment: empty when exclusion held."""
        runs = sorted(self.runs, key=lambda run: run.started)
        return [(a, b) for a, b in pairwise(runs) if b.started < a.ended]
