"""The functions of the state machine: one for each step, with the requests it may send and no others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Stage
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from ticketlock_cdk.assets import stage_functions
from ticketlock_cdk.settings import Settings

_MEMORY_MB = 256


@dataclass(frozen=True, slots=True)
class _Step:
    """One handler.

    Attributes:
        id: the construct's, which is the state's name too.
        handler: the module.
        actions: of DynamoDB. A transaction needs those of its writes:
            https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
    """

    id: str
    handler: str
    actions: Sequence[str]


# Get, in all of them: a cold process asks the table for the time.
# Update: acquire, mint a ticket. Put: the row. Query: the count says that somebody waits, and perhaps nobody does.
_TAKE_TICKET = _Step(
    "TakeTicket",
    "take_ticket",
    ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"),
)
# Query: the front. Update: take my turn, withdraw, extend. Delete: my row, dead rows. Put: joining again.
_CHECK_POSITION = _Step(
    "CheckPosition",
    "check_position",
    ("dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"),
)
# Update: the lease, the session.
_HEARTBEAT = _Step("Heartbeat", "heartbeat", ("dynamodb:GetItem", "dynamodb:UpdateItem"))
# Update: the session, the lock.
_RELEASE = _Step("Release", "release", ("dynamodb:GetItem", "dynamodb:UpdateItem"))


class LockFunctions(Construct):
    """The four functions, over one table.

    Attributes:
        take_ticket: checks the request; takes the lock or a place in the queue.
        check_position: looks once, and takes the lock if it is the turn.
        heartbeat: renews the lease.
        release: frees the lock.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable,
        settings: Settings,
        log_retention: logs.RetentionDays,
        removal_policy: RemovalPolicy,
    ) -> None:
        super().__init__(scope, id)
        self._table = table
        self._log_retention = log_retention
        self._removal_policy = removal_policy
        stage = Stage.of(self)
        assert stage is not None  # a construct outside of an app cannot be synthesised
        self._code = lambda_.Code.from_asset(str(stage_functions(Path(stage.asset_outdir))))
        timeout = Duration.seconds(settings.function_timeout_s)
        self.take_ticket = self._function(_TAKE_TICKET, timeout)
        self.check_position = self._function(_CHECK_POSITION, timeout)
        self.heartbeat = self._function(_HEARTBEAT, Duration.seconds(settings.heartbeat_timeout_s))
        self.release = self._function(_RELEASE, timeout)

    def _function(self, step: _Step, timeout: Duration) -> lambda_.Function:
        log_group = logs.LogGroup(
            self, f"{step.id}Logs", retention=self._log_retention, removal_policy=self._removal_policy
        )
        # Its own role: the managed policy that a function gets otherwise lets it write to every log group.
        role = iam.Role(self, f"{step.id}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        function = lambda_.Function(
            self,
            step.id,
            code=self._code,
            handler=f"{step.handler}.handler",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=_MEMORY_MB,
            timeout=timeout,
            tracing=lambda_.Tracing.ACTIVE,
            log_group=log_group,
            role=role,
            environment={"TABLE_NAME": self._table.table_name},
        )
        function.add_to_role_policy(iam.PolicyStatement(actions=list(step.actions), resources=[self._table.table_arn]))
        if self._table.encryption_key is not None:
            self._table.encryption_key.grant_encrypt_decrypt(function)
        return function
