"""The clean-up after an execution failed, timed out or was stopped: rules, a function and a dead-letter queue."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.dead_letters import new_dead_letter_queue, send_failures
from ticketlock_cdk.ended_executions import EndedExecutions


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
