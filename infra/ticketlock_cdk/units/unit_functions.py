"""The functions of units of work: the sweeper, and what rolls back the units of an execution."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import Duration, Stage
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.assets import OF_UNITS, stage_functions
from ticketlock_cdk.ended_executions import EndedExecutions
from ticketlock_cdk.functions import Hosting, new_dead_letter_queue, new_function, send_failures
from ticketlock_cdk.tables import let_write
from ticketlock_cdk.units.access import ROLL_BACK_SAVED, SWEEP_RECORDS

# Enough for some thousand units of one execution; if it takes longer, the event is delivered again and continues.
_LONGEST = Duration.minutes(5)
# Many executions may end at once; further events wait.
_CONCURRENCY = 5

_LONGEST_FUNCTION_S = 900
_LONGEST_EVERY_S = 24 * 3_600
# https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
_LONGEST_EVENT_AGE_S = 6 * 3_600


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


class Sweeper(Construct):
    """The function, its schedule, and the dead-letter queue for the events of failed passes.

    Two concurrent passes would do no harm, and no good: so one runs at a time, and at most until the next one starts. A
    failed pass is not retried: the next one is due.

    Attributes:
        function: the function.
        dead_letter_queue: the events of passes that failed, or did not start.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable,
        prefix: str,
        sweep_every: Duration,
        hosting: Hosting,
        service_name: str,
        reserve_concurrency: bool,
    ) -> None:
        super().__init__(scope, id)
        every_s = int(sweep_every.to_seconds())
        stage = Stage.of(self)
        assert stage is not None  # a construct outside an app cannot be synthesised
        reserved: Mapping[str, Any] = {"reserved_concurrent_executions": 1} if reserve_concurrency else {}
        self.function = new_function(
            self,
            "Function",
            code=lambda_.Code.from_asset(str(stage_functions(Path(stage.asset_outdir), OF_UNITS))),
            handler="sweeper",
            timeout=Duration.seconds(min(_LONGEST_FUNCTION_S, every_s)),
            environment={
                "TABLE_NAME": table.table_name,
                "PREFIX": prefix,
                "POWERTOOLS_SERVICE_NAME": service_name,
            },
            hosting=hosting,
            **reserved,
        )
        self.function.add_to_role_policy(iam.PolicyStatement(actions=list(SWEEP_RECORDS), resources=[table.table_arn]))
        if table.encryption_key is not None:
            let_write(self.function, table.encryption_key)
        self.dead_letter_queue = new_dead_letter_queue(
            self, "DeadLetters", removal_policy=hosting.removal_policy, encryption_key=hosting.encryption_key
        )
        longest_wait = Duration.seconds(min(_LONGEST_EVENT_AGE_S, every_s))
        send_failures(
            self,
            self.function,
            self.dead_letter_queue,
            retry_attempts=0,
            max_event_age=longest_wait,
            encryption_key=hosting.encryption_key,
        )
        rule = events.Rule(self, "Every", schedule=events.Schedule.rate(sweep_every))
        # By its ARN: the queue's own policy names the rules already.
        queue = sqs.Queue.from_queue_arn(rule, "DeadLetters", self.dead_letter_queue.queue_arn)
        rule.add_target(targets.LambdaFunction(self.function, dead_letter_queue=queue, max_event_age=longest_wait))


def check_sweep_every(sweep_every: object) -> Duration:
    """Check the time between two sweeps: whole minutes, since EventBridge's rates are.

    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html

    Raises:
        ValueError: it is not.
    """
    allowed = "allowed: a Duration of whole minutes from 1 minute to 1 day"
    if not isinstance(sweep_every, Duration) or sweep_every.is_unresolved():
        raise ValueError(f"sweep_every is {sweep_every!r}; {allowed}")
    seconds = sweep_every.to_milliseconds() / 1_000
    if seconds % 60 or not 60 <= seconds <= _LONGEST_EVERY_S:
        raise ValueError(f"sweep_every is {seconds:g} seconds; {allowed}")
    return sweep_every
