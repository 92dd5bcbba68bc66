"""Step Functions as far as ticketlock speaks to it, in the place of the service: it takes notes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import boto3
from botocore.awsrequest import AWSResponse
from kit.world import Process, Stepper, Table

from ticketlock import Claim, LockTable
from ticketlock.locks._hand_over import CallingContender
from ticketlock.locks._protocol import Contender
from ticketlock.wire._answers import Reply
from ticketlock.wire._requests import Request, Steps
from ticketlock.wire._step_functions import Closing, TaskAnswer
from ticketlock.workflow import Workflow

T = TypeVar("T")


@dataclass
class TaskService:
    """Takes down what it is told, and answers like the service.

    Attributes:
        answers: the answers to callback tasks that somebody waited for, in order.
        gone: the tokens of tasks that are over; a task is over once it is answered.
        closings: the executions that were to be closed.
        never_close: those of them that are not seen closed.
        described: what DescribeExecution says, over the wire.
        asked: the operations that it was asked for over the wire, in order.
        throttled: whether it refuses whatever it is asked over the wire.
        quotes: over the wire every answer is refused, with its token in the words of the refusal.
    """

    answers: list[TaskAnswer] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    closings: list[str] = field(default_factory=list)
    never_close: set[str] = field(default_factory=set)
    described: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    throttled: Callable[[], bool] = lambda: False
    quotes: bool = False

    @property
    def called(self) -> list[str]:
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
        """The workflow in a process, its requests to Step Functions answered here."""
        return Workflow(self.table(process))

    def table(self, process: Process) -> LockTable:
        """The table in a process, its requests to Step Functions answered here."""
        return Table(process, step_functions=self.client())

    def client(self) -> Any:
        """A client of boto3 that is answered here."""
        made = boto3.client("stepfunctions")
        self.serve(made)
        return made

    def serve(self, client: Any) -> None:
        """Answer a client of boto3."""
        client.meta.events.register("before-call.sfn", self._over_the_wire)

    def _over_the_wire(self, model: Any, params: Mapping[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        """What a handler of ``before-call`` returns is taken for the reply."""
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
            # An answer says no more than that: either nothing, or an error that has a name.
            assert asked["output"] == "{}" if operation == "SendTaskSuccess" else asked["error"]
            answered = self.answer(TaskAnswer(token, asked.get("error"), asked.get("cause")))
            return {}, None if answered else ("TaskTimedOut", "")
        execution = asked["executionArn"]
        if execution not in self.described:
            return {}, ("ExecutionDoesNotExist", "")
        if operation == "StopExecution":
            assert asked["error"]
            assert asked["cause"]
            if self.close(execution):
                self.described[execution]["status"] = "ABORTED"
        return self.described[execution], None


class Callback(Stepper[T]):
    """Steps of one claim whose requests to Step Functions are taken down instead of sent."""

    def __init__(
        self,
        process: Process,
        claim: Claim,
        verb: Callable[[Contender], Steps[T]],
        service: TaskService | None = None,
    ) -> None:
        self.service = service if service is not None else TaskService()
        super().__init__(process, lambda now: verb(CallingContender(claim, now)))

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
