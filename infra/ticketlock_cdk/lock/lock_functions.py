"""The functions of the state machine: one for each step, each allowed exactly the requests that it sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Stack, Stage, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.assets import stage_functions
from ticketlock_cdk.checks import check_bound
from ticketlock_cdk.ended_executions import EndedExecutions
from ticketlock_cdk.functions import Hosting, new_dead_letter_queue, new_function, send_failures
from ticketlock_cdk.lock.settings import LockSettings
from ticketlock_cdk.nag import NIST, acknowledge
from ticketlock_cdk.tables import let_write

# With some 30 ms each, more than 300 clean-ups a second; few enough for any account that may reserve concurrency.
# Without a bound 3,000 executions that end together take the concurrency that heartbeats need.
CLEAN_UP_CONCURRENCY = 10
# Lambda's longest: nothing waits for a clean-up, and Step Functions may throttle its requests.
_CLEAN_UP_S = 900


def environment_of_arn(arn: str) -> Mapping[str, str]:
    """The environment in an ARN, whose parts may be known only at deploy time."""
    _, _, _, region, account, *_ = arn.split(":", 5)
    return _known({"Region": region, "account": account})


def environment_of(resource: Any) -> Mapping[str, str]:
    """The environment of a resource: that of its stack, or that in the ARN by which it was imported."""
    return _known({"Region": resource.env.region, "account": resource.env.account})


def _known(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {part: value for part, value in environment.items() if not Token.is_unresolved(value)}


class Environment:
    """The Region and the account of a TicketLock: its stack's, or those of the first resource that has known ones.

    An environment-agnostic stack does not know its Region and account, but all its resources must be in the same ones.
    """

    def __init__(self, stack: Stack) -> None:
        found = _known({"Region": stack.region, "account": stack.account})
        self._known = {part: (value, f"the stack's own, {value}") for part, value in found.items()}

    def check(self, name: str, shown: str, found: Mapping[str, str]) -> None:
        """Refuse a resource in another Region or account: nested executions there cannot be awaited or stopped.

        https://docs.aws.amazon.com/step-functions/latest/dg/concepts-access-cross-acct-resources.html

        Args:
            name: the property's name.
            shown: its value, for the message.
            found: the resource's environment.

        Raises:
            ValueError: it is in another Region or account; the message says in which, and what is allowed.
        """
        for part, value in found.items():
            here, allowed = self._known.setdefault(part, (value, f"that of {name}, {value}"))
            if value != here:
                raise ValueError(f"{name} is {shown}, in the {part} {value}; allowed: {allowed}")

    def is_elsewhere(self, found: Mapping[str, str]) -> bool:
        """Whether a resource is known to be in another Region or account."""
        return any(part in self._known and self._known[part][0] != value for part, value in found.items())


class CleanUp(Construct):
    """Invokes the clean-up function whenever an execution of the watched machines ends in such a way.

    It is best effort, like EventBridge's delivery; the lease is the guarantee.

    Attributes:
        dead_letter_queue: the events that could not be delivered, or whose clean-up failed three times.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function: lambda_.Function,
        removal_policy: RemovalPolicy,
        encryption_key: kms.IKey | None,
    ) -> None:
        super().__init__(scope, id)
        self.dead_letter_queue = new_dead_letter_queue(
            self, "DeadLetters", removal_policy=removal_policy, encryption_key=encryption_key
        )
        send_failures(
            self,
            function,
            self.dead_letter_queue,
            retry_attempts=2,
            max_event_age=Duration.hours(6),
            encryption_key=encryption_key,
        )
        self._ended = EndedExecutions(function, self.dead_letter_queue, rule_id="CleanUpRule", what="clean-up")

    def watch(self, place: Construct, machine: sfn.IStateMachine) -> None:
        """Clean up after the executions of a machine, by a rule in this scope that several machines share.

        Raises:
            ValueError: there are too many rules; names the machine.
        """
        self._ended.watch(place, machine)


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


# Get, in all of them: a cold process asks the table for the time.
# Update: acquire, mint a ticket. Put: the row. Query: the count may say that there are waiters when there are none.
# Delete: expired rows, if there are no others.
_TAKE_TICKET = _Step(
    "TakeTicket",
    "take_ticket",
    ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"),
)
# Query: the front. Update: take my turn, withdraw, extend. Delete: my row, expired rows. Put: joining again.
_CHECK_POSITION = _Step(
    "CheckPosition",
    "check_position",
    ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"),
)
# Update: the session. Query: the front.
_WAIT_FOR_WAKE_UP = _Step(
    "WaitForWakeUp", "wait_for_wake_up", ("dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem")
)
# Update: the lease, the session; the lock, if the release failed. Query: the next waiter then.
_HEARTBEAT = _Step("Heartbeat", "heartbeat", ("dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"))
# Update: the session, the lock. Query: the next waiter.
_RELEASE = _Step("Release", "release", ("dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"))
# Query: the sessions, the next waiter. BatchGet: the items. Delete: the row. Update: the session, the lock.
_CLEAN_UP = _Step(
    "CleanUp",
    "clean_up",
    ("dynamodb:BatchGetItem", "dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What Lambda runs the functions on.

    Attributes:
        hosting: the settings that all functions share.
        snap_start: whether all but the clean-up start from snapshots.
        clean_up_concurrency: how many clean-ups run at once, reserved; None for no reservation, and no bound but the
            account's.
    """

    hosting: Hosting
    snap_start: bool
    clean_up_concurrency: int | None

    def __post_init__(self) -> None:
        if self.clean_up_concurrency is not None:
            check_bound("clean_up_concurrency", self.clean_up_concurrency, 1, 1_000)


class LockFunctions(Construct):
    """The functions of one lock table.

    Attributes:
        all: all functions.
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
        machines: Machines,
    ) -> None:
        super().__init__(scope, id)
        self._machines = machines
        self._table = table
        self._service_name = service_name
        self.all: list[lambda_.Function] = []
        self.arns: dict[str, str] = {}
        self.called_by_machines: dict[str, list[str]] = {}
        stage = Stage.of(self)
        assert stage is not None  # a construct outside an app cannot be synthesised
        self._code = lambda_.Code.from_asset(str(stage_functions(Path(stage.asset_outdir))))
        timeout = Duration.seconds(settings.function_timeout_s)
        self.take_ticket = self._function(_TAKE_TICKET, timeout)
        self.wait_for_wake_up = self._function(_WAIT_FOR_WAKE_UP, Duration.seconds(settings.heartbeat_timeout_s))
        self.check_position = self._function(_CHECK_POSITION, timeout)
        self.heartbeat = self._function(_HEARTBEAT, Duration.seconds(settings.heartbeat_timeout_s))
        self.release = self._function(_RELEASE, timeout)
        self.clean_up = self._function(
            _CLEAN_UP, Duration.seconds(_CLEAN_UP_S), reserved_concurrent_executions=machines.clean_up_concurrency
        )
        self.answering = [self.wait_for_wake_up, self.check_position, self.heartbeat, self.release, self.clean_up]
        self.failing = [self.heartbeat, self.release]

    def _function(self, step: _Step, timeout: Duration, **more: Any) -> lambda_.Function:
        stepping = step is not _CLEAN_UP
        if stepping and self._machines.snap_start:
            more["snap_start"] = lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS
        function = new_function(
            self,
            step.id,
            code=self._code,
            handler=step.handler,
            timeout=timeout,
            environment={"TABLE_NAME": self._table.table_name, "POWERTOOLS_SERVICE_NAME": self._service_name},
            hosting=self._machines.hosting,
            **more,
        )
        function.add_to_role_policy(iam.PolicyStatement(actions=list(step.actions), resources=[self._table.table_arn]))
        if self._table.encryption_key is not None:
            let_write(function, self._table.encryption_key)
        if stepping:
            # For any settings. A snapshot belongs to a version, and running executions invoke what their definition
            # names: an alias outlives versions, and must outlive snap_start too.
            # https://docs.aws.amazon.com/lambda/latest/dg/snapstart.html
            alias = lambda_.Alias(self, f"{step.id}Live", alias_name="live", version=function.current_version)
            self.arns[step.id] = alias.function_arn
            reason = "A state machine awaits it, and repeats what fails."
            acknowledge(function, "LambdaDLQ", pack=NIST, reason=reason)
            self.called_by_machines[step.id] = [function.function_arn, alias.function_arn]
        self.all.append(function)
        return function
