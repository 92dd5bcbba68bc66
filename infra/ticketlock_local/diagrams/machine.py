"""The state machine as graphs, from its definition and nothing else."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ticketlock_local.diagrams.graph import Edge, Graph, Node

# The end of a task's resource, and what runs there.
_RESOURCES = {
    "lambda:invoke": "Lambda function",
    "lambda:invoke.waitForTaskToken": "callback task",
    "states:startExecution.sync:2": "nested execution",
    "dynamodb:updateItem": "DynamoDB update",
}
_HUES = {"Fail": "fail", "Parallel": "hold", "Wait": "wait", "Succeed": "hold"}


def graphs_of(definition: Path) -> list[Graph]:
    """The states of a definition, and those of each branch of its Parallel states."""
    read: Mapping[str, Any] = json.loads(definition.read_text())
    return list(_graphs("Waiting for the turn", read["StartAt"], read["States"]))


def _graphs(title: str, first: str, states: Mapping[str, Any]) -> Iterator[Graph]:
    names = [first, *(name for name in states if name != first)]
    nodes = [Node(name, _notes(states[name]), _hue(states[name], is_first=name == first)) for name in names]
    yield Graph(title, nodes, [edge for name in names for edge in _edges(name, states[name])])
    for name, state in states.items():
        for number, branch in enumerate(state.get("Branches", ())):
            yield from _graphs(f"{name}, branch {number + 1}", branch["StartAt"], branch["States"])


def _notes(state: Mapping[str, Any]) -> tuple[str, ...]:
    end = ("end",) if state.get("End") else ()
    if state["Type"] == "Parallel":
        return ("Parallel:", f"the {len(state['Branches'])} branches below", *end)
    if state["Type"] != "Task":
        return (state["Type"],)
    kind = _RESOURCES[state["Resource"].partition(":::")[2]]
    if kind != "callback task":
        return (kind, *end)
    again = [each for each in state.get("Retry", ()) if each["ErrorEquals"] == ["States.Timeout"]]
    return (kind, f"times out after {state['TimeoutSeconds']} s", *(["and is retried"] if again else []), *end)


def _hue(state: Mapping[str, Any], *, is_first: bool) -> str:
    if str(state.get("Resource", "")).endswith("waitForTaskToken"):
        return "wait"
    return "start" if is_first else _HUES.get(state["Type"], "plain")


def _edges(name: str, state: Mapping[str, Any]) -> Iterator[Edge]:
    for choice in state.get("Choices", ()):
        yield Edge(name, choice["Next"], str(choice["StringEquals"]))
    if "Default" in state:
        yield Edge(name, state["Default"], "otherwise")
    if "Next" in state:
        yield Edge(name, state["Next"])
    caught: dict[str, list[str]] = {}
    for catch in state.get("Catch", ()):
        caught.setdefault(catch["Next"], []).extend(catch["ErrorEquals"])
    for target, errors in caught.items():
        yield Edge(name, target, _errors(errors), dashed=True)


def _errors(names: Sequence[str]) -> str:
    return "any error" if "States.ALL" in names else ", ".join(names)
