"""Rules that invoke a function after executions: of a state machine if they fail, time out or are stopped; of a durable
function whenever they end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from ticketlock_cdk.either_stack import scopes_of
from ticketlock_cdk.nag import acknowledge
from ticketlock_cdk.tables import let_send

# A pattern has at most 2,048 characters, and an ARN with its quotes and comma at most about 150, as a prefix 165:
# https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html
_MACHINES_A_RULE = 12
_FUNCTIONS_A_RULE = 10
# Each rule needs a statement in the function's own policy, which has at most 20 KB:
# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
_MOST_RULES = 40


@dataclass(frozen=True)
class _WhatEnds:
    """Executions of one kind, as EventBridge tells of their ends.

    Attributes:
        of: what they are executions of, for messages.
        source, detail_type, ends: what the events have.
        field: which field names what they are executions of.
        a_rule: how many of these share a rule.
        suffix: of the rules' ids.
    """

    of: str
    source: str
    detail_type: str
    ends: Sequence[str]
    field: str
    a_rule: int
    suffix: str = ""


# https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html
_OF_MACHINES = _WhatEnds(
    "machine",
    "aws.states",
    "Step Functions Execution Status Change",
    ("FAILED", "TIMED_OUT", "ABORTED"),
    "stateMachineArn",
    _MACHINES_A_RULE,
)
# Also successes: a branch may have been suspended when its siblings were enough.
# https://docs.aws.amazon.com/lambda/latest/dg/durable-monitoring.html
_OF_DURABLE = _WhatEnds(
    "function",
    "aws.lambda",
    "Durable Execution Status Change",
    ("SUCCEEDED", "FAILED", "TIMED_OUT", "STOPPED"),
    "functionArn",
    _FUNCTIONS_A_RULE,
    "OfDurable",
)

UNQUALIFIED = "the ARN of a state machine, without a version, an alias or a Map's label"
"""What ``is_named_by_events`` allows, for messages."""


def is_named_by_events(arn: str) -> bool:
    """Whether events name a state machine by this ARN, as far as it is known at synth.

    They name a version or an alias beside it. Parts of the ARN, or all of it, may be known only at deploy time.
    https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html
    """
    if Token.is_unresolved(arn) and ":" not in arn:
        return True
    match arn.split(":"):
        case ["arn", partition, "states", region, account, "stateMachine", name]:
            return all((partition, region, account, name)) and "/" not in name
    return False


class EndedExecutions:
    """The rules of one function, and the queue for the events with which it has failed for good.

    EventBridge delivers at least once, in any order, and best effort.
    https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html

    Args:
        scope: where the function's permission to send to the queue is.
        function: what they invoke, with the event; it is tried three times.
        dead_letter_queue: also for the events that could not be delivered.
        encryption_key: the queue's.
        rule_id: what the rules are called in their scopes.
        what: what the function does, for messages.
    """

    def __init__(
        self,
        scope: Construct,
        function: lambda_.Function,
        dead_letter_queue: sqs.IQueue,
        encryption_key: kms.IKey | None,
        *,
        rule_id: str,
        what: str,
    ) -> None:
        _send_failures(scope, function, dead_letter_queue, encryption_key)
        self._function = function
        self._dead_letter_queue = dead_letter_queue
        self._rule_id = rule_id
        self._what = what
        self._rules: dict[tuple[str, str], tuple[Sequence[events.Rule], int]] = {}
        self._number_of_rules = 0

    def watch(self, place: Construct, machine: sfn.IStateMachine) -> None:
        """Invoke the function after the executions of a machine, by a rule in this scope that several machines share.

        The scope may be in either of two stacks.

        Raises:
            ValueError: there are too many rules; names the machine.
        """
        self._watch(_OF_MACHINES, place, machine, machine.state_machine_arn)

    def watch_durable(self, place: Construct, function: lambda_.IFunction) -> None:
        """The same after the executions of a durable function, of any version."""
        self._watch(_OF_DURABLE, place, function, {"prefix": f"{function.function_arn}:"})

    def _watch(self, kind: _WhatEnds, place: Construct, of: IConstruct, named: Any) -> None:
        key = (place.node.path, kind.of)
        rules, watched = self._rules.get(key, ((), kind.a_rule))
        if watched == kind.a_rule:
            rules, watched = self._new_rules(kind, place, of), 0
        for rule in rules:
            rule.add_event_pattern(detail={kind.field: [named]})
        self._rules[key] = (rules, watched + 1)

    def _new_rules(self, kind: _WhatEnds, place: Construct, of: IConstruct) -> Sequence[events.Rule]:
        if self._number_of_rules == _MOST_RULES:
            raise ValueError(
                f"{kind.of} is {of.node.path}, whose {self._what} would need one rule more than {_MOST_RULES}; "
                f"allowed: as many as these have room for, each for {kind.a_rule} {kind.of}s of one stack"
            )
        self._number_of_rules += 1
        return [self._new_rule(kind, scope) for scope in scopes_of(place)]

    def _new_rule(self, kind: _WhatEnds, scope: Construct) -> events.Rule:
        id = f"{self._rule_id}{kind.suffix}"
        is_first = scope.node.try_find_child(id) is None
        rule = events.Rule(
            scope,
            id if is_first else f"{id}{self._number_of_rules}",
            event_pattern=events.EventPattern(
                source=[kind.source], detail_type=[kind.detail_type], detail={"status": list(kind.ends)}
            ),
        )
        # By its ARN: the rule may be in another stack, and the queue's own policy cannot name it.
        queue = sqs.Queue.from_queue_arn(rule, "DeadLetters", self._dead_letter_queue.queue_arn)
        rule.add_target(targets.LambdaFunction(self._function, dead_letter_queue=queue))
        return rule


def _send_failures(
    place: Construct, function: lambda_.Function, queue: sqs.IQueue, encryption_key: kms.IKey | None
) -> None:
    """Send the events of a function that has failed for good to a queue.

    Written by hand: the CDK's own destination also grants the function to read the queue's attributes, which Lambda
    does not need: https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
    """
    function.configure_async_invoke(retry_attempts=2, max_event_age=Duration.hours(6))
    on_failure = lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=queue.queue_arn)
    invoke_config = function.node.find_child("EventInvokeConfig").node.default_child
    assert isinstance(invoke_config, lambda_.CfnEventInvokeConfig)
    invoke_config.destination_config = lambda_.CfnEventInvokeConfig.DestinationConfigProperty(on_failure=on_failure)
    may_send = iam.Policy(place, "SendDeadLetters")
    may_send.add_statements(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn]))
    if encryption_key is not None:
        let_send(may_send, encryption_key)
    assert function.role is not None
    may_send.attach_to_role(function.role)
    acknowledge(function, "LambdaDLQ")
    # Lambda refuses a destination to which the role may not send. The dependency is explicit: whether a function waits
    # for its role's policies depends on the app's feature flag createNewPoliciesWithAddToRolePolicy.
    invoke_config.node.add_dependency(may_send)
