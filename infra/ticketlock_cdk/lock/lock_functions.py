"""The functions of the state machine: one for each step, each allowed exactly the requests that it sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Annotations, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from ticketlock_cdk.assets import OF_LOCKS
from ticketlock_cdk.checks import check_bound
from ticketlock_cdk.functions import Hosting, code_of, new_function
from ticketlock_cdk.lock.settings import LockSettings
from ticketlock_cdk.nag import acknowledge

# Lambda's longest: nothing waits for a clean-up, and Step Functions may throttle its requests.
_CLEAN_UP_S = 900


@dataclass(frozen=True, slots=True)
class _Step:
    """One handler.

    Attributes:
        id: the construct's id, which is the state's name too.
        handler: its module.
        actions: DynamoDB's actions that it needs. A transaction needs those of its writes:
            https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
    """

    id: str
    handler: str
    actions: Sequence[str]


# Get: a cold process asks the table for the time. Query: the front of the queue, the next waiter's session. Update: the
# lock, rows, sessions. ConditionCheck: the session of a waiter whose task has ended, when its row is shortened.
_ALL = ("dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem")
# Put: the row. Delete: expired rows, the execution's own.
_JOINING = ("dynamodb:DeleteItem", "dynamodb:PutItem")
_TAKE_TICKET = _Step("TakeTicket", "take_ticket", (*_ALL, *_JOINING))
_CHECK_POSITION = _Step("CheckPosition", "check_position", (*_ALL, *_JOINING))
_WAIT_FOR_WAKE_UP = _Step("WaitForWakeUp", "wait_for_wake_up", _ALL)
_HEARTBEAT = _Step("Heartbeat", "heartbeat", _ALL)
_RELEASE = _Step("Release", "release", _ALL)
# BatchGet: the items. Delete: the row.
_CLEAN_UP = _Step("CleanUp", "clean_up", (*_ALL, "dynamodb:BatchGetItem", "dynamodb:DeleteItem"))


class LockFunctions(Construct):
    """The functions of one lock table.

    Attributes:
        all: all functions.
        bounded: those that their reserved concurrency throttles as a matter of course: an event of the clean-up that
            is not handled in hours goes to the dead-letter queue.
        arns: the ARNs that state machines invoke, by the construct's id: the alias of the newest version.
        take_ticket: checks the request; takes the lock or joins the queue.
        wait_for_wake_up: stores the task token of a parked waiter.
        check_position: polls once, and takes the lock if it is the execution's turn.
        heartbeat: renews the lease.
        release: frees the lock.
        clean_up: leaves the queue, and frees locks, for an execution that was stopped.
        called_by_machines: the ARNs that a state machine may invoke, by the construct's id, for any settings: an
            execution continues with the definition that it began with, which may name the function itself.
        answering: the functions that complete callback tasks: their own, or the next waiter's.
        failing: the functions that fail callback tasks.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable,
        settings: LockSettings,
        service_name: str,
        hosting: Hosting,
        snap_start: bool,
        clean_up_concurrency: int | None,
    ) -> None:
        super().__init__(scope, id)
        if clean_up_concurrency is not None:
            check_bound("clean_up_concurrency", clean_up_concurrency, 1, 1_000)
        self._snapshots = lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None
        self._common: Mapping[str, Any] = {
            "code": code_of(self, OF_LOCKS),
            "service_name": service_name,
            "table": table,
            "hosting": hosting,
        }
        self.all: list[lambda_.Function] = []
        self.arns: dict[str, str] = {}
        self.called_by_machines: dict[str, list[str]] = {}
        timeout, beat = (Duration.seconds(each) for each in (settings.function_timeout_s, settings.heartbeat_timeout_s))
        self.take_ticket = self._step(_TAKE_TICKET, timeout)
        self.wait_for_wake_up = self._step(_WAIT_FOR_WAKE_UP, beat)
        self.check_position = self._step(_CHECK_POSITION, timeout)
        self.heartbeat = self._step(_HEARTBEAT, beat)
        self.release = self._step(_RELEASE, timeout)
        self.clean_up = self._function(
            _CLEAN_UP, Duration.seconds(_CLEAN_UP_S), reserved_concurrent_executions=clean_up_concurrency
        )
        self.bounded = () if clean_up_concurrency is None else (self.clean_up,)
        self.answering = [
            self.take_ticket,
            self.wait_for_wake_up,
            self.check_position,
            self.heartbeat,
            self.release,
            self.clean_up,
        ]
        self.failing = [self.take_ticket, self.heartbeat, self.release]

    def _step(self, step: _Step, timeout: Duration) -> lambda_.Function:
        function = self._function(step, timeout, snap_start=self._snapshots)
        # For any settings. A snapshot belongs to a version, and running executions invoke what their definition
        # names: an alias outlives versions, and must outlive snap_start too.
        # https://docs.aws.amazon.com/lambda/latest/dg/snapstart.html
        alias = lambda_.Alias(self, f"{step.id}Live", alias_name="live", version=function.current_version)
        self.arns[step.id] = alias.function_arn
        self.called_by_machines[step.id] = [function.function_arn, alias.function_arn]
        acknowledge(function, "LambdaDLQ")
        return function

    def _function(self, step: _Step, timeout: Duration, **more: Any) -> lambda_.Function:
        function = new_function(
            self, step.id, handler=step.handler, timeout=timeout, actions=step.actions, **self._common, **more
        )
        if more.get("snap_start") is not None:
            Annotations.of(function).acknowledge_warning(
                "@aws-cdk/aws-lambda:snapStartRequirePublish", "State machines call the newest version, by its alias."
            )
        self.all.append(function)
        return function
