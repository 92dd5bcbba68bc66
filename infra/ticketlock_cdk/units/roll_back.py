"""The end of the units that an execution has saved: a function, and rules for its failure, time-out or stop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import Duration, Stage
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.assets import OF_UNITS, stage_functions
from ticketlock_cdk.dead_letters import send_failures
from ticketlock_cdk.encryption import let_write
from ticketlock_cdk.ended_executions import EndedExecutions
from ticketlock_cdk.functions import Hosting, new_function
from ticketlock_cdk.units.access import ROLL_BACK_SAVED

# Enough for some thousand units of one execution; if it takes longer, the event is delivered again and continues.
_LONGEST = Duration.minutes(5)
# Many executions may end at once; further events wait.
_CONCURRENCY = 5


class RollBack(Construct):
    """Rolls back the saved units of executions of the watched state machines that fail, time out or are stopped.

    It does not watch executions that succeed: such an execution has committed its units, or left them to another
    process. Like EventBridge's delivery this is best effort; the time for which a unit is kept is the guarantee.

    Attributes:
        function: the function.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable,
        dead_letter_queue: sqs.IQueue,
        hosting: Hosting,
        service_name: str,
        reserve_concurrency: bool,
    ) -> None:
        super().__init__(scope, id)
        stage = Stage.of(self)
        assert stage is not None  # a construct outside an app cannot be synthesised
        reserved: Mapping[str, Any] = {"reserved_concurrent_executions": _CONCURRENCY} if reserve_concurrency else {}
        self.function = new_function(
            self,
            "Function",
            code=lambda_.Code.from_asset(str(stage_functions(Path(stage.asset_outdir), OF_UNITS))),
            handler="roll_back",
            timeout=_LONGEST,
            environment={"TABLE_NAME": table.table_name, "POWERTOOLS_SERVICE_NAME": service_name},
            hosting=hosting,
            **reserved,
        )
        self.function.add_to_role_policy(
            iam.PolicyStatement(actions=list(ROLL_BACK_SAVED), resources=[table.table_arn])
        )
        if table.encryption_key is not None:
            let_write(self.function, table.encryption_key)
        send_failures(
            self,
            self.function,
            dead_letter_queue,
            retry_attempts=2,
            max_event_age=Duration.hours(6),
            encryption_key=hosting.encryption_key,
        )
        self._ended = EndedExecutions(self.function, dead_letter_queue, rule_id="RollBackRule", what="rollback")

    def watch(self, place: Construct, machine: sfn.IStateMachine) -> None:
        """Roll back after the executions of a machine, by a rule in this scope that several machines share.

        Raises:
            ValueError: there are too many rules; names the machine.
        """
        self._ended.watch(place, machine)
