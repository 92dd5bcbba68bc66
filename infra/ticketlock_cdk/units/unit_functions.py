"""The functions of units of work: the sweeper, and what rolls back the units of an execution."""

from aws_cdk import Duration, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.assets import OF_UNITS
from ticketlock_cdk.ended_executions import EndedExecutions
from ticketlock_cdk.functions import Hosting, code_of, new_dead_letter_queue, new_function
from ticketlock_cdk.lock import executions_arn
from ticketlock_cdk.nag import acknowledge
from ticketlock_cdk.policies import INLINE_OF_A_FUNCTION, LONGEST_MACHINE_ARN, MOST_MANAGED, Policies, Room
from ticketlock_cdk.tables import let_send
from ticketlock_cdk.units.access import ROLL_BACK_SAVED, SWEEP_RECORDS

# Enough for some thousand units of one execution; if it takes longer, the event is delivered again and continues.
_LONGEST = Duration.minutes(5)
# If it is reserved. Many executions may end at once; further events wait.
_CONCURRENCY = 5

_DESCRIBE = ("states:DescribeExecution",)

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
        self.function = new_function(
            self,
            "Function",
            code=code_of(self, OF_UNITS),
            handler="roll_back",
            timeout=_LONGEST,
            service_name=service_name,
            table=table,
            actions=ROLL_BACK_SAVED,
            hosting=hosting,
            reserved_concurrent_executions=_CONCURRENCY if reserve_concurrency else None,
        )
        self._ended = EndedExecutions(
            self, self.function, dead_letter_queue, hosting.encryption_key, rule_id="RollBackRule", what="rollback"
        )
        assert self.function.role is not None
        room = Room(inline=INLINE_OF_A_FUNCTION, managed=MOST_MANAGED)
        self._policies = Policies(self.function.role, "Describe", room)

    def watch(self, place: Construct, machine: sfn.IStateMachine) -> None:
        """Roll back after the executions of a machine, by a rule in this scope that several machines share.

        The function may describe its executions: an event may not say after how many redrives an execution ended.

        Raises:
            ValueError: there are too many rules, or the function's role has no room; names the machine.
        """
        self._ended.watch(place, machine)
        arn = executions_arn(Stack.of(self), machine.state_machine_arn)
        characters = LONGEST_MACHINE_ARN if Token.is_unresolved(arn) else len(arn)
        if not self._policies.allow(place, _DESCRIBE, arn, machine.node.path, characters):
            raise ValueError(
                f"machine is {machine.node.path}, for which the role of {self.function.node.path} has no room in its "
                f"inline policies and {MOST_MANAGED} managed policies; allowed: fewer state machines for one "
                "TransactionTables"
            )


class Sweeper(Construct):
    """The function, its schedule, and the dead-letter queue.

    Two concurrent passes do no harm, and no good. A pass, and the wait of its event, each take at most until the next
    one starts: so two meet only if an event is late, and with a reservation never. A failed pass is not retried, nor
    kept: the next one is due, and does what is left.

    Attributes:
        function: the function.
        dead_letter_queue: the passes that could not be started; others may send to it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable,
        sweep_every: Duration,
        hosting: Hosting,
        service_name: str,
        reserve_concurrency: bool,
    ) -> None:
        super().__init__(scope, id)
        every_s = int(sweep_every.to_seconds())
        self.function = new_function(
            self,
            "Function",
            code=code_of(self, OF_UNITS),
            handler="sweeper",
            timeout=Duration.seconds(min(_LONGEST_FUNCTION_S, every_s)),
            service_name=service_name,
            table=table,
            actions=SWEEP_RECORDS,
            hosting=hosting,
            reserved_concurrent_executions=1 if reserve_concurrency else None,
        )
        self.dead_letter_queue = new_dead_letter_queue(self, "DeadLetters", hosting)
        longest_wait = Duration.seconds(min(_LONGEST_EVENT_AGE_S, every_s))
        self.function.configure_async_invoke(retry_attempts=0, max_event_age=longest_wait)
        acknowledge(self.function, "LambdaAsyncFailureDestination", "LambdaDLQ")
        self._schedule(sweep_every, longest_wait, hosting.encryption_key)

    def _schedule(self, sweep_every: Duration, longest_wait: Duration, encryption_key: kms.IKey | None) -> None:
        """Start a pass at once, and then at this rate.

        Written by hand: the CDK's own target also grants the role to invoke each version of the function.
        https://docs.aws.amazon.com/scheduler/latest/UserGuide/configuring-schedule-dlq.html
        """
        stack = Stack.of(self)
        # Roles of the Scheduler are for a group of schedules:
        # https://docs.aws.amazon.com/scheduler/latest/UserGuide/cross-service-confused-deputy-prevention.html
        group = stack.format_arn(service="scheduler", resource="schedule-group", resource_name="default")
        of_ours = {"StringEquals": {"aws:SourceAccount": stack.account, "aws:SourceArn": group}}
        role = iam.Role(
            self, "EveryRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=of_ours)
        )
        may_start = iam.Policy(self, "StartPasses")
        may_start.add_statements(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn]),
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.dead_letter_queue.queue_arn]),
        )
        if encryption_key is not None:
            let_send(may_start, encryption_key)
        may_start.attach_to_role(role)
        target = scheduler.CfnSchedule.TargetProperty(
            arn=self.function.function_arn,
            role_arn=role.role_arn,
            dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self.dead_letter_queue.queue_arn),
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                maximum_event_age_in_seconds=longest_wait.to_seconds()
            ),
        )
        schedule = scheduler.CfnSchedule(
            self,
            "Every",
            schedule_expression=scheduler.ScheduleExpression.rate(sweep_every).expression_string,
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=target,
        )
        # The first pass begins with the schedule.
        schedule.node.add_dependency(may_start)


def check_sweep_every(sweep_every: object) -> Duration:
    """Check the time between two sweeps: whole minutes, since the Scheduler's rates are.

    https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html#rate-based

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
