"""Step Functions, as far as ticketlock uses it, replaced by a recorder."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import boto3
from botocore.awsrequest import AWSResponse
from kit.world import Process, Stepper, Table

from ticketlock import Claim, LockTable
from ticketlock.locks._protocol import Contender
from ticketlock.wire._actions import Reply
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._step_functions import Closing, TaskAnswer
from ticketlock.workflow import Workflow

T = TypeVar("T")


@dataclass
class TaskService:
    """Records what it is sent, and answers like the service.

    Attributes:
        answers: the answers to open callback tasks, in order.
        gone: the tokens of closed tasks; a task is closed once it is answered.
        closings: the executions that were to be closed.
        never_close: those of them that are never seen closed.
        described: the reply of DescribeExecution, over the wire.
        asked: the operations that were requested over the wire, in order.
        read: the executions whose data were asked for, not only what needs no key of theirs.
        throttled: whether it throttles every request over the wire.
        quotes: over the wire every answer is refused, and the message quotes its token.
    """

    answers: list[TaskAnswer] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    closings: list[str] = field(default_factory=list)
    never_close: set[str] = field(default_factory=set)
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    throttled: Callable[[], bool] = lambda: False
    quotes: bool = False

    @property
    def answered(self) -> list[str]:
        """The tokens that were answered."""
        return [answer.task_token for answer in self.answers]

    def answer(self, answer: TaskAnswer) -> bool:
        if answer.task_token in self.gone:
            return False
        self.answers.append(answer)
        self.gone.add(answer.task_token)
        return True

    def close(self, execution: str) -> bool:
        self.closings.append(execution)
        return execution not in self.never_close

    def workflow(self, process: Process) -> Workflow:
        """The workflow in a process, with its requests to Step Functions answered here."""
        return Workflow(self.table(process))

    def table(self, process: Process) -> LockTable:
        """The table in a process, with its requests to Step Functions answered here."""
        return Table(process, step_functions=self.client())

    def client(self) -> Any:
        """A boto3 client that is answered here."""
        made = boto3.client("stepfunctions")
        self.serve(made)
        return made

    def serve(self, client: Any) -> None:
        """Answer a boto3 client."""
        client.meta.events.register("before-call.sfn", self._over_the_wire)

    def _over_the_wire(self, model: Any, params: Mapping[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        """The return value of a handler of ``before-call``, which botocore uses as the reply."""
        reply, error = self._reply(model.name, json.loads(params["body"]))
        status = 400 if error else 200
        headers: Any = {}
        answer = {**reply, "ResponseMetadata": {"HTTPHeaders": headers, "HTTPStatusCode": status}}
        if error:
            answer["Error"] = {"Code": error[0], "Message": error[1]}
        return AWSResponse("https://states", status, headers, None), answer

    def _reply(self, operation: str, asked: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, str] | None]:
        self.asked.append(operation)
        if self.throttled():
            return {}, ("ThrottlingException", "Rate exceeded")
        if operation in ("SendTaskSuccess", "SendTaskFailure"):
            token = asked["taskToken"]
            if self.quotes:
                text = f"1 validation error detected: Value '{token}' at 'taskToken' failed to satisfy constraint"
                return {}, ("ValidationException", text)
            # Either an output, or an error with a name.
            assert asked["output"] if operation == "SendTaskSuccess" else asked["error"]
            told = {name: asked[name] for name in ("error", "cause", "output") if name in asked}
            answered = self.answer(TaskAnswer(token, **told))
            return {}, None if answered else ("TaskTimedOut", "")
        execution = asked["executionArn"]
        if execution not in self.described:
            return {}, ("ExecutionDoesNotExist", "")
        if operation == "StopExecution":
            assert asked["error"]
            assert asked["cause"]
            if self.close(execution):
                self.described[execution]["status"] = "ABORTED"
        if operation == "DescribeExecution":
            if asked["includedData"] == "METADATA_ONLY":
                return {name: value for name, value in self.described[execution].items() if name != "input"}, None
            self.read.add(execution)
        return self.described[execution], None


class Callback(Stepper[T]):
    """Steps of one claim whose requests to Step Functions are recorded instead of sent."""

    def __init__(
        self,
        process: Process,
        claim: Claim,
        verb: Callable[[Contender], Steps[T]],
        service: TaskService | None = None,
    ) -> None:
        self.service = service if service is not None else TaskService()
        super().__init__(process, lambda now: verb(Contender(claim, now, wakes=True)))

    @property
    def answers(self) -> list[TaskAnswer]:
        return self.service.answers

    def run(self) -> Self:
        """Send what is left, whether it ends in a result or an error."""
        while not self.done:
            self.step()
        return self

    def _perform(self, request: Request) -> Reply:
        if isinstance(request, TaskAnswer):
            return Reply(self.service.answer(request), (), self._process.table.now())
        if isinstance(request, Closing):
            return Reply(self.service.close(request.execution), (), self._process.table.now())
        return super()._perform(request)
