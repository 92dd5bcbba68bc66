"""What happens after an execution that failed, timed out or was stopped: an event, a function, a dead-letter queue."""

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.encryption import let_rules_use, let_send
from ticketlock_cdk.lock.access import let_describe
from ticketlock_cdk.lock.targets import executions_arn
from ticketlock_cdk.nag import acknowledge

_ENDS = ["FAILED", "TIMED_OUT", "ABORTED"]


class CleanUp(Construct):
    """Calls the clean-up function at every such end of the machines that it watches.

    Best effort, as EventBridge's delivery is; the lease is the guarantee.
    https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html

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
        self._function = function
        self.dead_letter_queue = sqs.Queue(
            self,
            "DeadLetters",
            retention_period=Duration.days(14),
            enforce_ssl=True,
            removal_policy=removal_policy,
            encryption=sqs.QueueEncryption.SQS_MANAGED if encryption_key is None else sqs.QueueEncryption.KMS,
            encryption_master_key=encryption_key,
        )
        rules = Stack.of(self).format_arn(service="events", resource="rule", resource_name="*")
        self.dead_letter_queue.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.dead_letter_queue.queue_arn],
                # https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rule-dlq.html
                conditions={"ArnLike": {"aws:SourceArn": rules}},
            )
        )
        acknowledge(self.dead_letter_queue, "SQS3", reason="It is a dead-letter queue itself.")
        if encryption_key is not None:
            let_rules_use(encryption_key, self)
        function.configure_async_invoke(retry_attempts=2, max_event_age=Duration.hours(6))
        # By hand: the grant of the CDK's own destination lets the function look at the queue too, which Lambda does not
        # ask for: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
        on_failure = lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=self.dead_letter_queue.queue_arn)
        invoke_config = function.node.find_child("EventInvokeConfig").node.default_child
        assert isinstance(invoke_config, lambda_.CfnEventInvokeConfig)
        invoke_config.destination_config = lambda_.CfnEventInvokeConfig.DestinationConfigProperty(on_failure=on_failure)
        function.add_to_role_policy(
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.dead_letter_queue.queue_arn])
        )
        if encryption_key is not None:
            let_send(function, encryption_key)

    def watch(self, scope: Construct, machine: sfn.IStateMachine) -> events.Rule:
        """Clean up after the executions of a machine."""
        rule = events.Rule(
            scope,
            "CleanUpRule",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"status": _ENDS, "stateMachineArn": [machine.state_machine_arn]},
            ),
        )
        # By its ARN: the machine may be in another stack, whose rule the queue's own policy cannot name.
        queue = sqs.Queue.from_queue_arn(rule, "DeadLetters", self.dead_letter_queue.queue_arn)
        rule.add_target(targets.LambdaFunction(self._function, dead_letter_queue=queue))
        executions = executions_arn(Stack.of(self), machine.state_machine_arn)
        let_describe(scope, [self._function], [executions])
        return rule
