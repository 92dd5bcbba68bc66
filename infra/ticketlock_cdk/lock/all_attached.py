"""A state machine with a fragment needs ``attach``: without it nothing that the fragment does is allowed."""

from collections.abc import Callable, Sequence
from typing import Any

import jsii
from aws_cdk import Stack, Stage
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct, IValidation

from ticketlock_cdk.lock.serialized import Serialized


@jsii.implements(IValidation)
class AllAttached:
    """Fails the synthesis of an app in which a state machine has states of a lock and was never attached.

    Args:
        lock: the lock.
        first_step: the ARN that the first state of every fragment calls.
        fragments: all of them, by then.
        attached: the state machines that were attached, by then.
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
        """What is wrong: one message for each state machine."""
        if not self._fragments:
            return []
        stage = Stage.of(self._lock)
        assert stage is not None  # a construct outside of an app cannot be synthesised
        attached = {machine.node.path for machine in self._attached()}
        return [
            message
            for found in stage.node.find_all()
            if isinstance(found, sfn.CfnStateMachine) and _owner(found).node.path not in attached
            for message in self._judged(found)
        ]

    def _judged(self, machine: sfn.CfnStateMachine) -> list[str]:
        # As the lock's own stack has it, also where the machine is in another one.
        stack = Stack.of(self._lock)
        parts = _parts(stack.resolve(machine.definition_string))
        if stack.resolve(self._first_step) not in parts:
            return []
        text = "".join(part for part in parts if isinstance(part, str))
        ids = sorted({each.node.id for each in self._fragments if f'"{each.node.id}.TakeTicket":' in text})
        message = (
            f"state machine {_owner(machine).node.path} has fragments of {self._lock.node.path} ({', '.join(ids)}) "
            "and was never attached; allowed: with attach(machine) of that lock"
        )
        return [message]


def _owner(resource: sfn.CfnStateMachine) -> IConstruct:
    """The StateMachine of a resource, or the resource where it was made alone."""
    owner = resource.node.scope
    return owner if isinstance(owner, sfn.StateMachine) else resource


def _parts(definition: Any) -> list[Any]:
    match definition:
        case {"Fn::Join": [_, [*parts]]}:
            return parts
    return [definition]
