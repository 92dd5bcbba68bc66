"""The construct: a lock table, its functions and the state machine that runs one task at a time for each entity."""

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.lock_functions import LockFunctions
from ticketlock_cdk.lock_table import check_given_table, new_lock_table
from ticketlock_cdk.serialize_machine import SerializeMachine
from ticketlock_cdk.settings import RecordWait, Settings
from ticketlock_cdk.targets import parse_targets

_LEASE = Duration.seconds(60)
_POLL = Duration.seconds(5)


class TicketLock(Construct):
    """Workflows that run one at a time for each entity, in the order of their tickets.

    Args:
        table: an existing table with the string keys ``pk`` and ``sk`` and time to live on ``expiresAt``; a new one
            otherwise.
        lease: how long a grant lasts without renewal: whole, even seconds, at least 10; renewed at its half-life.
        poll: the longest sleep of the front waiter: whole seconds, at least 1, at most half the lease.
        default_record_wait: how long an execution waits whose input has no ``recordWaitSeconds``.
        targets: the functions and Standard state machines that may be run, as constructs or as ARNs. An execution
            names one of them by exactly this ARN; a version or an alias is a target of its own. An Express state
            machine is refused where its type is known; an ARN does not tell it, and such a target fails when it runs.
        removal_policy: what happens to a new table and to the logs when they leave the stack.
        log_retention: how long logs are kept.

    Raises:
        ValueError: a setting is out of its bounds; names it, its value and what is allowed.

    Attributes:
        table: the table of the locks.
        state_machine: the serialised workflow.
        take_ticket, check_position, heartbeat, release: its functions.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable | None = None,
        lease: Duration = _LEASE,
        poll: Duration = _POLL,
        default_record_wait: RecordWait = "Infinity",
        targets: Sequence[lambda_.IFunction | sfn.IStateMachine | str] = (),
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
    ) -> None:
        super().__init__(scope, id)
        settings = Settings.of(lease=lease, poll=poll, default_record_wait=default_record_wait)
        allowed = parse_targets(targets)
        if table is None:
            table = new_lock_table(self, "Table", removal_policy=removal_policy)
        else:
            check_given_table(self, table)
        functions = LockFunctions(
            self,
            "Functions",
            table=table,
            settings=settings,
            log_retention=log_retention,
            removal_policy=removal_policy,
        )
        machine = SerializeMachine(
            self,
            "Serialize",
            table=table,
            functions=functions,
            settings=settings,
            targets=allowed,
            log_retention=log_retention,
            removal_policy=removal_policy,
        )
        self.table: dynamodb.ITable = table
        self.state_machine: sfn.StateMachine = machine.state_machine
        self.take_ticket: lambda_.Function = functions.take_ticket
        self.check_position: lambda_.Function = functions.check_position
        self.heartbeat: lambda_.Function = functions.heartbeat
        self.release: lambda_.Function = functions.release

    def grant_start_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal start executions."""
        return self.state_machine.grant_start_execution(grantee)
