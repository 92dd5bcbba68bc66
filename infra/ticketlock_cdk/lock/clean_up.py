"""The clean-up after an execution failed, timed out or was stopped: a rule, a function and a dead-letter queue."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.dead_letters import new_dead_letter_queue, send_failures

_ENDS = ["FAILED", "TIMED_OUT", "ABORTED"]
# A pattern has at most 2,048 characters, and an ARN with its quotes and comma at most about 150:
# https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html
_MACHINES_A_RULE = 12
# Each rule needs a statement in the function's own policy, which has at most 20 KB:
# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
_MOST_RULES = 40


class CleanUp(Construct):
    """Invokes the clean-up function whenever an execution of the watched machines ends in such a way.

    It is best effort, like EventBridge's delivery; the lease is the guarantee.
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

    def watch(self, place: Construct, machine: sfn.IStateMachine) -> None:
        """Clean up after the executions of a machine, by a rule in this scope that several machines share.

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
        # By its ARN: the rule may be in another stack, and the queue's own policy cannot name it.
        queue = sqs.Queue.from_queue_arn(rule, "DeadLetters", self.dead_letter_queue.queue_arn)
        rule.add_target(targets.LambdaFunction(self._function, dead_letter_queue=queue))
        return rule
