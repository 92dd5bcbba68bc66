"""Scopes for resources that name resources of two stacks, and may be in either of them.

CloudFormation deploys a stack after those whose resources its template names, so two stacks that name each other's
cannot be deployed. Which of the two waits for the other is known only at the end: a grant or an environment variable
may follow in any order. So these resources are made in both stacks, and when the app is synthesised, one of the two is
removed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aws_cdk import CfnOutput, CfnResource, Names, Stack, Stage
from constructs import Construct, Dependable, DependencyGroup, IConstruct

from ticketlock_cdk.references import named_in


class EitherStack(Construct):
    """A scope in its own stack, and one in another stack: it is removed from one of them at synthesis.

    It stays in its own stack, unless the other stack waits for this one, directly or not: then, and only then, a
    reference from here to there would close a circle.

    Args:
        scope, id: those of the scope in its own stack.
        there: where in the other stack the scope of the same id is.

    Attributes:
        scopes: what to make the same resources in: both scopes; after the synthesis, the one that is left.
    """

    def __init__(self, scope: Construct, id: str, there: Construct) -> None:
        super().__init__(scope, id)
        self.scopes: Sequence[Construct] = (self, _There(there, id, self))
        at_synthesis(self, self._decide)

    def _decide(self) -> None:
        if len(self.scopes) == 1:
            return
        here, there = self.scopes
        goes, stays = (here, there) if _waits_for(Stack.of(there), Stack.of(here)) else (there, here)
        assert goes.node.scope is not None
        goes.node.scope.node.try_remove_child(goes.node.id)
        # Who depends on what is in both depends on what is left.
        for emptied in goes.node.find_all():
            for child in emptied.node.children:
                emptied.node.try_remove_child(child.node.id)
        self.scopes = (stays,)


class _There(Construct):
    def __init__(self, scope: Construct, id: str, either: EitherStack) -> None:
        super().__init__(scope, id)
        self.either = either


def either_stack(scope: Construct, id: str, there: Construct) -> Construct:
    """A scope in either of two stacks; the given one, if the other scope is in the same stack or in one nested in it.

    Args:
        scope: where it is in its own stack.
        id: what it is called there, and in the other stack, together with the other stack's name.
        there: where it is in the other stack.
    """
    here, other = Stack.of(scope), Stack.of(there)
    if _contains(here, other):
        return scope
    whole_id = f"{id}-{Names.unique_resource_name(other)}"
    found = scope.node.try_find_child(whole_id) or there.node.try_find_child(whole_id)
    found = found or EitherStack(scope, whole_id, there)
    assert isinstance(found, Construct)
    return found


def scopes_of(place: Construct) -> Sequence[Construct]:
    """What to make a resource in that belongs to this scope: two scopes, if it is in either of two stacks."""
    return place.scopes if isinstance(place, EitherStack) else (place,)


def at_synthesis(construct: Construct, act: Callable[[], None]) -> None:
    """Call this when the app is synthesised, perhaps more than once: resources may still be changed then.

    The CDK asks constructs for their dependencies after it has invoked all aspects, and before it turns references
    between stacks into exports. An aspect would be too early: others follow, and what the search for references has
    resolved until then, the CDK would keep.
    """
    asked = DependencyGroup()
    Dependable.implement(asked, _Acts(act))
    construct.node.add_dependency(asked)


class _Acts(Dependable):
    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act = act

    @property
    def dependency_roots(self) -> list[IConstruct]:
        self._act()
        return []


def _waits_for(stack: Stack, awaited: Stack) -> bool:
    """Whether a stack is deployed after another one, because of what the app has until now.

    Of a stack that the other one is nested in: whether it has a resource that is.
    """
    if _contains(stack, awaited):
        return any(_contains(awaited, found) for found in _named_in(stack, without=awaited))
    end = _beside(awaited, stack)
    left = [_beside(stack, awaited)]
    seen: list[Stack] = []
    while left:
        waiting = left.pop()
        seen.append(waiting)
        for found in _named_in(waiting):
            # What is around a nested stack does not wait for it as a whole, nor the reverse.
            if _contains(found, stack) or _contains(waiting, found):
                continue
            part = _beside(found, stack)
            if part is end:
                return True
            if part not in seen and part not in left:
                left.append(part)
    return False


def _beside(stack: Stack, other: Stack) -> Stack:
    """The stack, or the outermost one that it is nested in and that the other one is not."""
    while stack.nested_stack_parent is not None and not _contains(stack.nested_stack_parent, other):
        stack = stack.nested_stack_parent
    return stack


def _contains(outer: Stack, stack: Stack) -> bool:
    found: Stack | None = stack
    while found is not None and found is not outer:
        found = found.nested_stack_parent
    return found is outer


def _named_in(scope: IConstruct, without: IConstruct | None = None) -> Iterator[Stack]:
    """The stacks that a scope waits for: by what its resources name, or since the app says so."""
    if isinstance(scope, EitherStack | _There):
        either = scope if isinstance(scope, EitherStack) else scope.either
        if len(either.scopes) > 1:
            return
    if isinstance(scope, Stack):
        yield from scope.dependencies
    for awaited in scope.node.dependencies:
        yield from _stack_of(awaited)
    if isinstance(scope, CfnResource | CfnOutput):
        value = scope.value if isinstance(scope, CfnOutput) else scope._cfn_properties
        yield from map(Stack.of, named_in(scope, value))
    for child in scope.node.children:
        # A stack that is made in another one's scope, but not nested, is one of its own.
        is_another = isinstance(child, Stage) or (isinstance(child, Stack) and child.nested_stack_parent is None)
        if not is_another and child is not without:
            yield from _named_in(child, without)


def _stack_of(construct: Any) -> Iterator[Stack]:
    found = construct
    while found is not None and not isinstance(found, Stack):
        found = found.node.scope
    if found is not None:
        yield found
