"""Checks that state machines with a fragment were attached: otherwise they lack every permission of the fragment."""

from collections.abc import Callable, Sequence
from typing import Any

import jsii
from aws_cdk import Stack, Stage
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct, IValidation

from ticketlock_cdk.lock.serialized import Serialized


@jsii.implements(IValidation)
class AllAttached:
    """Fails the synthesis if a state machine has states of a lock and was never attached.

    Args:
        lock: the lock.
        first_step: the ARN that the first state of every fragment calls.
        fragments: all fragments, as of the synthesis.
        attached: the state machines that were attached, as of the synthesis.
    """

    def __init__(
        self,
        lock: Construct,
        first_step: str,
        fragments: Sequence[Serialized],
        attached: Callable[[], Sequence[sfn.StateMachine]],
    ) -> None:
        self._lock = lock
        self._first_step = first_step
        self._fragments = fragments
        self._attached = attached

    def validate(self) -> list[str]:
        """One error message for each state machine that was not attached."""
        if not self._fragments:
            return []
        stage = Stage.of(self._lock)
        assert stage is not None  # a construct outside an app cannot be synthesised
        attached = {machine.node.path for machine in self._attached()}
        return [
            message
            for found in stage.node.find_all()
            if isinstance(found, sfn.CfnStateMachine) and _owner(found).node.path not in attached
            for message in self._judged(found)
        ]

    def _judged(self, machine: sfn.CfnStateMachine) -> list[str]:
        # Resolved in the lock's own stack, even if the machine is in another one.
        stack = Stack.of(self._lock)
        parts = _parts(stack.resolve(machine.definition_string))
        if stack.resolve(self._first_step) not in parts:
            return []
        text = "".join(part for part in parts if isinstance(part, str))
        ids = sorted({each.node.id for each in self._fragments if f'"{each.node.id}.TakeTicket":' in text})
        message = (
            f"state machine {_owner(machine).node.path} has fragments of {self._lock.node.path} ({', '.join(ids)}) "
            "and was never attached: call attach(machine) of that lock"
        )
        return [message]


def _owner(resource: sfn.CfnStateMachine) -> IConstruct:
    """The StateMachine construct of a resource, or the resource itself if it has none."""
    owner = resource.node.scope
    return owner if isinstance(owner, sfn.StateMachine) else resource


def _parts(definition: Any) -> list[Any]:
    match definition:
        case {"Fn::Join": [_, [*parts]]}:
            return parts
    return [definition]
