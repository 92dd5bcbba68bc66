"""What a definition with fragments of a lock must be like, judged at synthesis, when it is complete."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import jsii
from aws_cdk import Annotations, Stack, Stage
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct, IValidation

from ticketlock_cdk.lock.jsonata import OF_JSONPATH
from ticketlock_cdk.lock.serialized import Serialized

_TAKES = ".TakeTicket"
# In place of a value that is known only at deploy time: within a text of JSON, and outside of one.
_FIRST_PLACEHOLDER = 7 * 10**15

States = Mapping[str, Mapping[str, Any]]


@jsii.implements(IValidation)
class AllAttached:
    """Judges each state machine with states of a lock, and whether each fragment is in one.

    The synthesis fails if a fragment is in none, if a state machine was never attached, if it is in JSONata and a state
    of it is not, if a fragment is in a Distributed Map, if a protected state leads to an unknown one, or if a variable
    is assigned both within and outside of a fragment. It warns of variables that end with a fragment, of failures that
    are caught within one, and of attached state machines without fragments.

    Args:
        lock: the lock.
        first_step: the ARN that the first state of every fragment calls.
        fragments: those of the lock, as of the synthesis.
        attached: the state machines that were attached, as of the synthesis.
    """

    def __init__(
        self,
        lock: Construct,
        first_step: str,
        fragments: Callable[[], Sequence[Serialized]],
        attached: Callable[[], Sequence[sfn.StateMachine]],
    ) -> None:
        self._lock = lock
        self._first_step = first_step
        self._fragments = fragments
        self._attached = attached

    def validate(self) -> list[str]:
        """The error messages of all state machines."""
        attached = {machine.node.path: machine for machine in self._attached()}
        if not self._fragments() and not attached:
            return []
        definitions = dict(self._definitions())
        for path in attached.keys() - {owner.node.path for owner in definitions}:
            Annotations.of(attached[path]).add_warning_v2(
                "ticketlock:attachedWithoutFragments",
                f"it is attached to {self._lock.node.path} and has no fragment of it; chain what serialize returned, "
                "or, if no execution with an earlier definition is left, do not attach it",
            )
        judged = (self._judged(owner, definition, attached) for owner, definition in definitions.items())
        return [*self._forgotten(list(definitions.values())), *chain.from_iterable(judged)]

    def _definitions(self) -> "Iterator[tuple[IConstruct, _Definition]]":
        """The state machines with states of the lock, with their definitions."""
        # Resolved in the lock's own stack, even if the machine is in another one.
        stack, stage = Stack.of(self._lock), Stage.of(self._lock)
        assert stage is not None  # a construct outside an app cannot be synthesised
        for found in stage.node.find_all():
            if isinstance(found, sfn.CfnStateMachine):
                resolved, first_step = map(stack.resolve, (found.definition_string, self._first_step))
                definition = _Definition.of(resolved, first_step=first_step)
                if definition is not None:
                    yield _owner(found), definition

    def _forgotten(self, definitions: "Sequence[_Definition]") -> Iterator[str]:
        """The error messages of fragments that are in no state machine."""
        if not all(definition.is_readable for definition in definitions):
            return
        made: dict[str, list[str]] = {}
        for fragment in self._fragments():
            made.setdefault(fragment.name, []).append(fragment.node.path)
        found = Counter(name for definition in definitions for name in definition.fragments())
        for name, paths in made.items():
            if found[name] < len(paths):
                yield (
                    f"the fragment {' or '.join(paths)} is in no state machine, so that what it protects runs without "
                    "the lock, if at all: chain what serialize returned, in place of what it was given"
                )

    def _judged(
        self, owner: IConstruct, definition: "_Definition", attached: Mapping[str, sfn.StateMachine]
    ) -> Iterator[str]:
        what = f"state machine {owner.node.path}"
        if owner.node.path not in attached:
            ids = ", ".join(sorted(definition.fragments()))
            yield (
                f"{what} has fragments of {self._lock.node.path} ({ids}) and was never attached: call attach(machine) "
                "of that lock"
            )
        if found := ", ".join(definition.refused_by_its_language()):
            yield (
                f"{what} is in JSONata, and has in JSONPath: {found}; the service refuses such a definition; allowed: "
                "serialize(..., query_language=sfn.QueryLanguage.JSONATA), and the same of states of your own"
            )
        for name, map_name in definition.in_distributed_maps():
            yield (
                f"{what} has the fragment {name} in the Distributed Map {map_name}, whose child executions neither the "
                "grants nor the clean-up cover; allowed: a Map that is inline, or a child workflow that starts the "
                "state machine of the lock"
            )
        for name, state, field, unknown in definition.leads_nowhere():
            yield (
                f"{what} has the state {state} in the fragment {name}, whose {field} names {unknown}, which is no "
                "state beside it: what a fragment protects is a branch of its own; allowed: a state that is chained "
                "there; for failures that are caught outside, to_single_state().add_catch(...)"
            )
        for assigned in definition.assigned_outside_too():
            yield (
                f"{what} assigns the variable {assigned.variable} in the state {assigned.state}, within the fragment "
                f"{assigned.fragment}, and outside of it, too: the service refuses such a definition; allowed: another "
                "name within it, and the value in its output, which a state behind it assigns"
            )
        for assigned in definition.assigned_in_fragments():
            Annotations.of(owner).add_warning_v2(
                "ticketlock:variableEndsWithItsFragment",
                f"the variable {assigned.variable}, which the state {assigned.state} assigns, ends with the fragment "
                f"{assigned.fragment}; to have it afterwards, let the output have its value, and assign it behind the "
                "fragment, or by to_single_state(assign=...)",
            )
        for name, state, handler in definition.caught_in_fragments():
            Annotations.of(owner).add_warning_v2(
                "ticketlock:caughtWithinItsFragment",
                f"the failure of the state {state} is caught within the fragment {name} by {handler}, which runs under "
                "the lock, and then what follows the fragment runs, as after a success; to catch it outside, use "
                "to_single_state().add_catch(...)",
            )


def _owner(resource: sfn.CfnStateMachine) -> IConstruct:
    """The StateMachine construct of a resource, or the resource itself if it has none."""
    owner = resource.node.scope
    return owner if isinstance(owner, sfn.StateMachine) else resource


@dataclass(frozen=True)
class _Assigned:
    """A variable that a protected state assigns."""

    fragment: str
    state: str
    variable: str


@dataclass(frozen=True)
class _Scope:
    """States that share variables: those of a definition, of a branch, or of a Map.

    Attributes:
        states: by name.
        start: the first one.
        around: the scopes that it is in, the outermost first.
        protected_by: the innermost fragment whose protected states these are, or are within.
        is_protected: whether they are themselves the protected states, and not within a Parallel or a Map of these.
        distributed: the Distributed Map that it is in.
    """

    states: States
    start: str
    around: "tuple[_Scope, ...]" = ()
    protected_by: str | None = None
    is_protected: bool = False
    distributed: str | None = None

    def inner(self) -> "Iterator[_Scope]":
        """The scopes of its Parallel and Map states, and those within."""
        for name, state in self.states.items():
            branches = list(state.get("Branches", ()))
            processor = state.get("ItemProcessor", state.get("Iterator"))
            mode = (processor or {}).get("ProcessorConfig", {}).get("Mode")
            protects = self._protects(name)
            for each in branches if processor is None else [processor]:
                scope = _Scope(
                    each["States"],
                    each["StartAt"],
                    (*self.around, self),
                    protects or self.protected_by,
                    protects is not None,
                    name if mode == "DISTRIBUTED" else self.distributed,
                )
                yield scope
                yield from scope.inner()

    def _protects(self, name: str) -> str | None:
        """The fragment of which this is the state of all protected states."""
        fragment, is_it, _ = name.rpartition(".Protected")
        return fragment if is_it and f"{fragment}.Release" in self.states else None

    def assigned(self) -> Iterator[tuple[str, str]]:
        """Each state that assigns a variable, with the variable."""
        for name, state in self.states.items():
            for part in _parts(state):
                for variable in part.get("Assign", {}):
                    yield name, variable.removesuffix(".$")


class _Definition:
    """A definition with fragments of one lock.

    Attributes:
        is_readable: whether its states are known.
    """

    def __init__(self, definition: Mapping[str, Any], first_step: str) -> None:
        outermost = _Scope(definition["States"], definition["StartAt"])
        self._scopes = [outermost, *outermost.inner()]
        self._language = definition.get("QueryLanguage")
        self._first_step = first_step
        self.is_readable = bool(outermost.states)

    @classmethod
    def of(cls, resolved: Any, *, first_step: Any) -> "_Definition | None":
        """Read a definition; None if it has no states of the lock.

        Args:
            resolved: the definition: a text, or the parts of one.
            first_step: the ARN that the first state of each fragment calls.
        """
        parts = resolved["Fn::Join"][1] if isinstance(resolved, dict) and "Fn::Join" in resolved else [resolved]
        if first_step not in parts:
            return None
        unknown: dict[str, str] = {}
        for part in parts:
            if not isinstance(part, str):
                unknown.setdefault(json.dumps(part, sort_keys=True), str(_FIRST_PLACEHOLDER + len(unknown)))
        text = "".join(part if isinstance(part, str) else unknown[json.dumps(part, sort_keys=True)] for part in parts)
        try:
            definition = json.loads(text)
        except ValueError:
            # A text of the user's, with substitutions of theirs.
            definition = {"StartAt": "", "States": {}}
        return cls(definition, unknown[json.dumps(first_step, sort_keys=True)])

    def refused_by_its_language(self) -> Iterable[str]:
        """The fragments of the lock, and other states, that are in JSONPath if the definition is in JSONata."""
        if self._language != "JSONata":
            return ()
        ids = self.fragments()
        return dict.fromkeys(
            next((id for id in ids if name.startswith(f"{id}.")), name)
            for scope in self._scopes
            for name, state in scope.states.items()
            if any(part.keys() & OF_JSONPATH for part in _parts(state))
        )

    def fragments(self) -> list[str]:
        """The names of the lock's fragments."""
        return [name for scope in self._scopes for name in self._entered_in(scope)]

    def in_distributed_maps(self) -> Iterator[tuple[str, str]]:
        """Each fragment that is in a Distributed Map, with the map."""
        for scope in self._scopes:
            if scope.distributed is not None:
                for name in self._entered_in(scope):
                    yield name, scope.distributed

    def leads_nowhere(self) -> Iterator[tuple[str, str, str, str]]:
        """Each fragment of the lock, with a protected state, and its field that names a state that is not beside it."""
        for scope in self._of_fragments():
            for name, state in scope.states.items():
                for field, then in _ways(state):
                    if then not in scope.states:
                        yield str(scope.protected_by), name, field, then

    def assigned_outside_too(self) -> Iterator[_Assigned]:
        """The variables that are assigned in a fragment of the lock, and in a scope around it."""
        for scope in self._of_fragments():
            outside = {
                variable
                for around in scope.around
                if around.protected_by != scope.protected_by
                for _, variable in around.assigned()
            }
            yield from (each for each in _assigned_in(scope) if each.variable in outside)

    def assigned_in_fragments(self) -> Iterator[_Assigned]:
        """The variables that end with a fragment of the lock: not those that would end without it, too."""
        for scope in self._of_fragments():
            if scope.is_protected:
                yield from _assigned_in(scope)

    def caught_in_fragments(self) -> Iterator[tuple[str, str, str]]:
        """Each fragment of the lock, with a protected state and what catches its failure and lets the fragment end."""
        for scope in self._of_fragments():
            if not scope.is_protected:
                continue
            usual = _reachable(scope.states, scope.start, caught=False)
            for name, state in scope.states.items():
                of_a_fragment = f"{name.rpartition('.')[0]}{_TAKES}" in scope.states
                for catch in () if of_a_fragment else state.get("Catch", ()):
                    beside = _reachable(scope.states, catch["Next"], caught=True) - usual
                    if catch["Next"] in beside and any(_ends(scope.states[each]) for each in beside):
                        yield str(scope.protected_by), name, catch["Next"]

    def _of_fragments(self) -> list[_Scope]:
        names = self.fragments()
        return [scope for scope in self._scopes if scope.protected_by in names]

    def _entered_in(self, scope: _Scope) -> list[str]:
        return [
            name.removesuffix(_TAKES)
            for name, state in scope.states.items()
            if name.endswith(_TAKES) and _sent(state).get("FunctionName") == self._first_step
        ]


def _parts(state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The state itself, what catches its failures, and its choices."""
    return (state, *state.get("Catch", ()), *state.get("Choices", ()))


def _sent(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a task sends, in either language."""
    sent = task.get("Parameters", task.get("Arguments"))
    return sent if isinstance(sent, Mapping) else {}


def _assigned_in(scope: _Scope) -> Iterator[_Assigned]:
    for state, variable in scope.assigned():
        yield _Assigned(str(scope.protected_by), state, variable)


def _reachable(states: States, start: str, *, caught: bool) -> set[str]:
    """The names of states that may follow, in the same scope."""
    found: set[str] = set()
    left = [start]
    while left:
        name = left.pop()
        if name in found or name not in states:
            continue
        found.add(name)
        left += [then for field, then in _ways(states[name]) if caught or field != "Catch"]
    return found


def _ways(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of the states that may follow, each with the field that has it."""
    for field in ("Next", "Default"):
        if field in state:
            yield field, state[field]
    for field in ("Choices", "Catch"):
        yield from ((field, way["Next"]) for way in state.get(field, ()) if "Next" in way)


def _ends(state: Mapping[str, Any]) -> bool:
    return bool(state.get("End")) or state["Type"] == "Succeed"
