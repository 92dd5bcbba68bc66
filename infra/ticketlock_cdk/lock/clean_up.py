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
from ticketlock_cdk.nag import acknowledge

_ENDS = ["FAILED", "TIMED_OUT", "ABORTED"]
# A pattern has at most 2,048 characters, and an ARN at most some 150 with what is around it:
# https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html
_MACHINES_A_RULE = 12
# Each needs a statement in the function's own policy, which has at most 20 KB:
# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
_MOST_RULES = 40


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
        self._rules: dict[str, tuple[events.Rule, int]] = {}
        self._number_of_rules = 0
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
        may_send = iam.Policy(self, "SendDeadLetters")
        may_send.add_statements(
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.dead_letter_queue.queue_arn])
        )
        if encryption_key is not None:
            let_send(may_send, encryption_key)
        assert function.role is not None
        may_send.attach_to_role(function.role)
        # Lambda refuses a destination to which the role may not send. Said here: whether a function waits for what is
        # added to its role depends on the app's feature flag createNewPoliciesWithAddToRolePolicy.
        invoke_config.node.add_dependency(may_send)

    def watch(self, place: Construct, machine: sfn.IStateMachine) -> None:
        """Clean up after the executions of a machine, by a rule in this place, which has several machines.

        Raises:
            ValueError: there are too many rules; names the machine.
        """
        rule, machines = self._rules.get(place.node.path, (None, _MACHINES_A_RULE))
        if rule is None or machines == _MACHINES_A_RULE:
            rule, machines = self._new_rule(place, machine), 0
        rule.add_event_pattern(detail={"stateMachineArn": [machine.state_machine_arn]})
        self._rules[place.node.path] = (rule, machines + 1)

    def _new_rule(self, place: Construct, machine: sfn.IStateMachine) -> events.Rule:
        if self._number_of_rules == _MOST_RULES:
            raise ValueError(
                f"machine is {machine.node.path}, whose clean-up would need one rule more than {_MOST_RULES}; "
                f"allowed: as many as these have room for, each for {_MACHINES_A_RULE} machines of one stack"
            )
        self._number_of_rules += 1
        first = place.node.try_find_child("CleanUpRule") is None
        rule = events.Rule(
            place,
            "CleanUpRule" if first else f"CleanUpRule{self._number_of_rules}",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"status": _ENDS},
            ),
        )
        # By its ARN: the machine may be in another stack, whose rule the queue's own policy cannot name.
        queue = sqs.Queue.from_queue_arn(rule, "DeadLetters", self.dead_letter_queue.queue_arn)
        rule.add_target(targets.LambdaFunction(self._function, dead_letter_queue=queue))
        return rule
