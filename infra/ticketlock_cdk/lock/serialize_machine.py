"""The state machines: the serialised workflow, and the one that continues its long waits and holds.

Their definitions get the numbers and lists of one deployment. Strings stay as ``${...}`` placeholders, which the
deployment substitutes.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aws_cdk import Aws, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock.workflow import PARKS_PER_POLL
from ticketlock_cdk.assets import source_folder
from ticketlock_cdk.functions import Hosting
from ticketlock_cdk.lock.grants import let_invoke, let_nest, let_write_sessions
from ticketlock_cdk.lock.lock_functions import LockFunctions
from ticketlock_cdk.lock.settings import HandOver, LockSettings
from ticketlock_cdk.lock.targets import Target, TargetKind, executions_arn
from ticketlock_cdk.machine_keys import encrypt, let_log_delivery_decrypt
from ticketlock_cdk.machine_logs import machine_log_group
from ticketlock_cdk.nag import acknowledge, acknowledge_wildcard

PARKED = ("WaitForWakeUp", "WaitForWakeUpBehind", "WaitForWakeUpBriefly")

_CONTINUES = "Continues a wait or a heartbeat whose own execution has used its share of events."


@dataclass(frozen=True, slots=True)
class _KindOfWork:
    """Work of one kind: how the first step calls the kind, and the state that does it."""

    kind: str
    state: str


_WORK: Mapping[TargetKind, _KindOfWork] = {
    "function": _KindOfWork("function", "InvokeFunction"),
    "stateMachine": _KindOfWork("execution", "StartExecution"),
}


def serialize_definition(settings: LockSettings, targets: Sequence[Target]) -> dict[str, Any]:
    """The definition of the serialised workflow.

    Its first step goes straight on to the work of one kind of target, functions if there are any.

    Args:
        settings: the deployment's.
        targets: the functions and state machines that may be run.
    """
    definition = _read()
    states = definition["States"]
    held = _numbered(states, settings)
    take_ticket, choices = states["TakeTicket"], states["MyTurn?"]["Choices"]
    first, *others = [work for kind, work in _WORK.items() if any(target.kind == kind for target in targets)] or [
        _WORK["function"]
    ]
    take_ticket["Parameters"]["Payload"] |= {"targets": [target.arn for target in targets], "goesOn": first.kind}
    states["TakeTicketAgain"] = _take_ticket_again(take_ticket)
    take_ticket["Next"] = _add_work(states, held, first)
    granted = next(choice for choice in choices if choice["StringEquals"] == "granted")
    for other in others:
        start = _add_work(states, held, other, f"Of{other.kind.capitalize()}")
        states["Granted"] = {**states["NotYet"], "Comment": "The lock is held, for work of this kind.", "Next": start}
        take_ticket["Catch"].append({"ErrorEquals": ["Granted"], "Next": "Granted"})
        is_granted = {name: value for name, value in granted.items() if name != "Next"}
        choices.insert(0, {"And": [is_granted, {"Variable": "$.task.kind", "StringEquals": other.kind}], "Next": start})
    granted["Next"] = take_ticket["Next"]
    return definition


def fragment_states(settings: LockSettings) -> dict[str, Any]:
    """The states of the serialised workflow from which a fragment is made, with the work of both kinds."""
    states: dict[str, Any] = _read()["States"]
    held = _numbered(states, settings)
    states["TakeTicketAgain"] = _take_ticket_again(states["TakeTicket"])
    return states | held


def _read() -> dict[str, Any]:
    definition: dict[str, Any] = json.loads((source_folder("statemachines") / "serialize.asl.json").read_text())
    return definition


def _numbered(states: dict[str, Any], settings: LockSettings) -> dict[str, Any]:
    """Give the states the numbers of a deployment, and remove those that hold the lock, which are returned.

    Those do the work of both kinds.
    """
    states["TakeTicket"]["Parameters"]["Payload"] |= ticket_settings(settings)
    hold = states.pop("Hold")
    heartbeat = hold["Branches"][1]["States"]["Heartbeat"]
    for state in (states["CheckPosition"], *(states[name] for name in PARKED), heartbeat):
        state["Parameters"]["Payload"]["leaseSeconds"] = settings.lease_s
    states["CheckPosition"]["Parameters"]["Payload"]["rowLeaseSeconds"] = settings.row_lease_s
    if settings.hand_over is HandOver.POLL:
        _poll(states)
    else:
        for name, lease_s in (("WaitForWakeUp", settings.lease_s), ("WaitForWakeUpBehind", settings.row_lease_s)):
            states[name]["TimeoutSeconds"] = lease_s // 2
            states[name]["Retry"][0]["MaxAttempts"] = PARKS_PER_POLL - 1
        states["WaitForWakeUpBriefly"]["TimeoutSeconds"] = settings.poll_s
    if settings.heartbeat:
        _set_heartbeat(heartbeat, settings)
        return {"Hold": hold}
    return _for_one_lease(hold["Branches"][0]["States"], settings)


def _take_ticket_again(take_ticket: Mapping[str, Any]) -> dict[str, Any]:
    """The first step as a task that returns what it finds: its callback task was not answered in time.

    So it is with a function of an earlier version, after a deployment was rolled back; or the turn and the work's input
    are too long for the answer.
    """
    again = copy.deepcopy({name: value for name, value in take_ticket.items() if name not in ("Catch", "ResultPath")})
    for name in ("taskToken.$", "goesOn"):
        again["Parameters"]["Payload"].pop(name, None)
    again["Retry"][-1]["ErrorEquals"].append("States.Timeout")
    return again | {
        "Comment": "The same, and returns it: the function did not answer, or its answer is too long.",
        "Resource": take_ticket["Resource"].removesuffix(".waitForTaskToken"),
        "OutputPath": "$.Payload",
        "Next": "MyTurn?",
    }


def _add_work(states: dict[str, Any], held: Mapping[str, Any], work: "_KindOfWork", suffix: str = "") -> str:
    """Add the states that hold the lock and do the work of one kind. Returns the first one's name."""
    held = copy.deepcopy(dict(held))
    branch: dict[str, Any] = held["Hold"]["Branches"][0] if "Hold" in held else {"States": held}
    for other in _WORK.values():
        if other is not work:
            del branch["States"][other.state]
    branch["StartAt"] = work.state
    start = "Hold" if "Hold" in held else work.state
    if suffix:
        held = _renamed(held, lambda name: name if name == work.state else name + suffix)
        start = start if start == work.state else start + suffix
    states |= held
    return start


def _renamed(states: Mapping[str, Any], new: Callable[[str], str]) -> dict[str, Any]:
    """The same states under other names, with those in their branches."""
    return {new(name): _routed(state, new) for name, state in states.items()}


def _routed(part: Any, new: Callable[[str], str]) -> Any:
    """A part of a state, with other names of states."""
    if isinstance(part, list):
        return [_routed(each, new) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        name: _renamed(value, new)
        if name == "States"
        else new(value)
        if name in ("Next", "Default", "StartAt")
        else _routed(value, new)
        for name, value in part.items()
    }


def ticket_settings(settings: LockSettings) -> dict[str, Any]:
    """The deployment's settings that are passed to the first step."""
    return {
        "defaultRecordWaitSeconds": settings.default_record_wait,
        "defaultPermits": settings.permits,
        "leaseSeconds": settings.lease_s,
        "rowLeaseSeconds": settings.row_lease_s,
        "pollSeconds": settings.poll_s,
        "handOver": settings.hand_over.value,
        "pollsAnExecution": settings.polls_an_execution,
        "beatsAnExecution": settings.beats_an_execution,
    }


def continue_definition(settings: LockSettings) -> dict[str, Any]:
    """The definition of the machine that continues long waits and holds, made of states of the serialised workflow.

    Its executions succeed, so that the names of errors survive: they return the turn after a wait, or the ``status``
    and ``Cause`` of a heartbeat that is over. It supports all settings, since it continues executions that began under
    other settings.
    """
    all_of_it = replace(settings, heartbeat=True, hand_over=HandOver.CALLBACK)
    serialize = fragment_states(all_of_it)
    states = {name: serialize[name] for name in (*PARKED, "WaitForTurn", "CheckPosition")}
    # Not grantedMeanwhile, which the first execution checks.
    asleep = [
        choice for choice in serialize["MyTurn?"]["Choices"] if choice["Next"] in states.keys() - {"CheckPosition"}
    ]
    states["MyTurn?"] = {**serialize["MyTurn?"], "Choices": asleep, "Default": "Waited"}
    states["Waited"] = {
        "Comment": "The turn came, or the wait failed, or no polls are left here: the first execution continues.",
        "Type": "Pass",
        "OutputPath": "$.lock",
        "End": True,
    }
    states["WaitingOrHolding?"] = {
        "Comment": "Whether a wait or a heartbeat continues here.",
        "Type": "Choice",
        "Choices": [{"Variable": "$.goOn", "StringEquals": "holding", "Next": "Heartbeat"}],
        "Default": "CheckPosition",
    }
    heartbeat = copy.deepcopy(serialize["Hold"]["Branches"][1]["States"]["Heartbeat"])
    del heartbeat["End"]
    ends = ["ContinueHolding", "LockLost", "EventBudgetExceeded"]
    heartbeat |= {
        "Next": "Ended",
        "Catch": [{"ErrorEquals": ends, "ResultPath": "$.heartbeatEnd", "Next": "BeatsOver"}],
    }
    states["Heartbeat"] = heartbeat
    states["Ended"] = {
        "Comment": "The work has ended.",
        "Type": "Pass",
        "Result": {"status": "ended", "Cause": ""},
        "End": True,
    }
    states["BeatsOver"] = {
        "Comment": "The lock is lost, or no heartbeats are left here: the first execution continues.",
        "Type": "Pass",
        "Parameters": {"status.$": "$.heartbeatEnd.Error", "Cause.$": "$.heartbeatEnd.Cause"},
        "End": True,
    }
    return {"Comment": _CONTINUES, "StartAt": "WaitingOrHolding?", "States": states}


def _set_heartbeat(heartbeat: dict[str, Any], settings: LockSettings) -> None:
    heartbeat["TimeoutSeconds"] = settings.lease_s // 2
    on_any_error = heartbeat["Retry"][-1]
    # Its attempts are spread over the second half of the lease: after that the lease is lost anyway.
    on_any_error["IntervalSeconds"] = max(1, settings.lease_s // 12)


def _poll(states: dict[str, Any]) -> None:
    """Remove what parks."""
    for name in (*PARKED, "Parked"):
        del states[name]
    for routed in (states["MyTurn?"]["Choices"], states["TakeTicket"]["Catch"]):
        routed[:] = [each for each in routed if each["Next"] in states.keys() | {"Hold", "TakeTicketAgain"}]


def _for_one_lease(work: dict[str, Any], settings: LockSettings) -> dict[str, Any]:
    """The work's branch in place of the Parallel: work that always ends within its lease needs no heartbeat."""
    del work["LeaveToHeartbeat"]
    for each in _WORK.values():
        work[each.state]["TimeoutSeconds"] = settings.work_timeout_s
        # Each attempt has its own time-out; together they would outlast the lease.
        del work[each.state]["Retry"]
    work["Release"]["Catch"][-1]["Next"] = "LeftToLease"
    work["LeftToLease"] = {
        "Comment": "The release failed: the work's output is kept, and the lock is free when its lease ends.",
        "Type": "Pass",
        "OutputPath": "$.task.output",
        "End": True,
    }
    return work


class SerializeMachine(Construct):
    """The serialised workflow: one task at a time for each entity.

    Attributes:
        state_machine: the workflow, a Standard state machine.
        continues: the machine whose executions continue long waits and holds.
        substitutions: the values of the definition's placeholders.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable,
        functions: LockFunctions,
        settings: LockSettings,
        targets: Sequence[Target],
        retired_targets: Sequence[Target],
        hosting: Hosting,
    ) -> None:
        super().__init__(scope, id)
        self._hosting = hosting
        if hosting.encryption_key is not None:
            let_log_delivery_decrypt(hosting.encryption_key, self)
        steps = ("CheckPosition", "WaitForWakeUp", "Heartbeat")
        going_on = {f"{step}Arn": functions.arns[step] for step in steps}
        self.continues = self._machine("Continue", continue_definition(settings), going_on)
        let_invoke(self.continues, [arn for step in steps for arn in functions.called_by_machines[step]])
        continues_arn = self.continues.state_machine_arn
        definition = serialize_definition(settings, targets)
        known = {
            "TakeTicketArn": functions.arns["TakeTicket"],
            "ReleaseArn": functions.arns["Release"],
            **going_on,
            "ContinueArn": continues_arn,
            "TableName": table.table_name,
        }
        written = json.dumps(definition)
        self.substitutions: Mapping[str, str] = {name: known[name] for name in known if f"${{{name}}}" in written}
        self.state_machine = self._machine("StateMachine", definition, self.substitutions)
        # More than the current definition needs: executions keep the one that they began with, and its targets.
        admitted = [*targets, *retired_targets]
        # Exactly the ARNs that are invoked: a target with a version or an alias is allowed only as such.
        invoked = [each.arn for each in admitted if each.kind == "function"]
        steps_of_its_own = [arn for arns in functions.called_by_machines.values() for arn in arns]
        let_invoke(self.state_machine, [*steps_of_its_own, *invoked])
        let_write_sessions(self.state_machine, table)
        nested = [(each.machine_arn, each.executions_arn(Stack.of(self))) for each in admitted if each.machine_arn]
        let_nest(self.state_machine, [*nested, (continues_arn, executions_arn(Stack.of(self), continues_arn))])

    def _machine(self, id: str, definition: Mapping[str, Any], substitutions: Mapping[str, str]) -> sfn.StateMachine:
        # json.dumps, not Stack.to_json_string: that loses every null on its way through jsii, and null means something
        # here. The tokens among the targets are ARNs, which need no escaping.
        hosting = self._hosting
        log_group = machine_log_group(
            self,
            "Logs" if id == "StateMachine" else f"{id}Logs",
            retention=hosting.log_retention,
            removal_policy=hosting.removal_policy,
            encryption_key=hosting.encryption_key,
        )
        machine = sfn.StateMachine(
            self,
            id,
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(json.dumps(definition)),
            definition_substitutions={"Partition": Aws.PARTITION, **substitutions},
            tracing_enabled=hosting.tracing,
            logs=sfn.LogOptions(
                destination=log_group,
                level=hosting.log_level,
                # The work's input and output are the user's, and a task token allows anyone to answer for the task.
                include_execution_data=False,
            ),
        )
        resource = machine.node.default_child
        assert isinstance(resource, sfn.CfnStateMachine)
        # cfn-lint judges the text before its substitutions: ${Partition} is no ARN to it. E1101 is its own failure
        # to say where in a Parallel that is.
        resource.add_metadata("cfn-lint", {"config": {"ignore_checks": ["E1101", "E3601"]}})
        acknowledge_wildcard(machine, "services")
        if not hosting.tracing:
            acknowledge(machine, "SF2", "StepFunctionStateMachineXray")
        if hosting.log_level is not sfn.LogLevel.ALL:
            acknowledge(machine, "SF1")
        if hosting.encryption_key is not None:
            encrypt(machine, hosting.encryption_key)
        return machine
