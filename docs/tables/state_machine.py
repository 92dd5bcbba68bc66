"""The state machine as Mermaid flowcharts, from its definition and nothing else."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ticketlock_cdk.lock.serialize_machine import serialize_definition
from ticketlock_cdk.lock.settings import LockSettings
from ticketlock_cdk.lock.targets import parse_target

DEFINITION: Mapping[str, Any] = serialize_definition(
    LockSettings(lease_s=60, poll_s=5), [parse_target("target", "arn:aws:lambda:eu-west-1:123456789012:function:work")]
)
"""Of a deployment whose targets are functions."""

# The end of a task's resource, and what runs there.
_RESOURCES = {
    "lambda:invoke": "Lambda function",
    "lambda:invoke.waitForTaskToken": "callback task",
    "states:startExecution.sync:2": "nested execution",
    "dynamodb:updateItem": "DynamoDB update",
}


def flowcharts(machine: Mapping[str, Any] = DEFINITION) -> str:
    """The states and where they lead, and those of each branch of `Hold`.

    Dashed arrows are caught errors; retries of failed calls are left out.
    """
    return "\n\n".join(_flowcharts("", machine))


def _flowcharts(title: str, machine: Mapping[str, Any]) -> Iterator[str]:
    states = machine["States"]
    lines = ["flowchart TD", f"  start([start]) --> {_id(machine['StartAt'])}", *_lines(states)]
    yield "\n".join([*([title, ""] if title else []), "```mermaid", *lines, "```"])
    for name, state in states.items():
        for number, branch in enumerate(state.get("Branches", ()), 1):
            yield from _flowcharts(f"`{name}`, branch {number}:", branch)


def _lines(states: Mapping[str, Any]) -> Iterator[str]:
    edges = _edges(states)
    # A choice that is called as the failure it leads to says nothing more: such failures share a box.
    failures: dict[str, list[str]] = {}
    for (source, target, _), labels in list(edges.items()):
        if states[target]["Type"] == "Fail" and states[source]["Type"] == "Choice" and not labels:
            failures.setdefault(source, []).append(target)
            del edges[source, target, "-->"]
    together = {name for names in failures.values() for name in names}
    yield from (f"  {_node(name, state)}" for name, state in states.items() if name not in together)
    # In the states' order, in which Mermaid draws fewer arrows behind boxes.
    place = {name: number for number, name in enumerate(states)}
    for source, target, arrow in sorted(edges, key=lambda each: (place[each[0]], place[each[1]])):
        labels = edges[source, target, arrow]
        told = f'|"{" or ".join(labels)}"|' if labels else ""
        yield f"  {_id(source)} {arrow}{told} {_id(target)}"
    for source, names in failures.items():
        yield f'  {_id(source)} --> {_id(source)}Fails(["{"<br>".join(names)}"])'


def _node(name: str, state: Mapping[str, Any]) -> str:
    if state["Type"] == "Choice":
        return f'{_id(name)}{{"{name}"}}'
    if state["Type"] == "Fail":
        return f'{_id(name)}(["{name}"])'
    if state["Type"] == "Parallel":
        return f'{_id(name)}[["{name}: {len(state["Branches"])} branches at once"]]'
    if state["Type"] != "Task":
        return f'{_id(name)}["{name}"]'
    kind = _RESOURCES[state["Resource"].partition(":::")[2]]
    if kind == "callback task":
        again = any(each["ErrorEquals"] == ["States.Timeout"] for each in state.get("Retry", ()))
        kind = f"{kind}, times out after {state['TimeoutSeconds']} s" + (" and is retried" if again else "")
    return f'{_id(name)}["{name}<br>{kind}"]'


def _edges(states: Mapping[str, Any]) -> dict[tuple[str, str, str], list[str]]:
    """The labels of the arrows from each state to each other."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, state in states.items():
        for choice in state.get("Choices", ()):
            label = str(choice["StringEquals"])
            # A choice that is called as the state it leads to says nothing more.
            found.setdefault((name, choice["Next"], "-->"), []).append("" if label == choice["Next"] else label)
        if "Default" in state:
            found.setdefault((name, state["Default"], "-->"), []).append("otherwise")
        if "Next" in state:
            found.setdefault((name, state["Next"], "-->"), []).append("")
        for catch in state.get("Catch", ()):
            errors = catch["ErrorEquals"]
            label = "any error" if "States.ALL" in errors else ", ".join(errors)
            found.setdefault((name, catch["Next"], "-.->"), []).append(label)
    return {key: _told(labels) for key, labels in found.items()}


def _told(labels: list[str]) -> list[str]:
    return ["any error"] if "any error" in labels else [label for label in labels if label]


def _id(name: str) -> str:
    return re.sub(r"\W", "", name)
