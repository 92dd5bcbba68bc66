"""The state machines: the serialised workflow, and the one that continues its long waits and holds.

Their definitions get the numbers and lists of one deployment. Strings stay as ``${...}`` placeholders, which the
deployment substitutes.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from ticketlock_cdk.lock.targets import Target, executions_arn
from ticketlock_cdk.machine_keys import encrypt, let_log_delivery_decrypt
from ticketlock_cdk.machine_logs import machine_log_group
from ticketlock_cdk.nag import acknowledge_wildcard

_PARKED = ("WaitForWakeUp", "WaitForWakeUpBriefly")
_WORK = ("InvokeFunction", "StartExecution")

_CONTINUES = "Continues a wait or a heartbeat whose own execution has used its share of events."


def serialize_definition(settings: LockSettings, targets: Sequence[str]) -> dict[str, Any]:
    """The definition of the serialised workflow.

    Args:
        settings: the deployment's.
        targets: the ARNs of the functions and state machines that may be run.
    """
    definition: dict[str, Any] = json.loads((source_folder("statemachines") / "serialize.asl.json").read_text())
    states = definition["States"]
    states["TakeTicket"]["Parameters"]["Payload"] |= {"targets": list(targets), **ticket_settings(settings)}
    timed = [states["CheckPosition"], *(states[name] for name in _PARKED)]
    timed.append(states["Hold"]["Branches"][1]["States"]["Heartbeat"])
    for state in timed:
        state["Parameters"]["Payload"]["leaseSeconds"] = settings.lease_s
    if settings.hand_over is HandOver.POLL:
        for name in _PARKED:
            del states[name]
        choices = states["MyTurn?"]["Choices"]
        choices[:] = [choice for choice in choices if choice["Next"] not in _PARKED]
    else:
        states["WaitForWakeUp"]["TimeoutSeconds"] = settings.lease_s // 2
        states["WaitForWakeUp"]["Retry"][0]["MaxAttempts"] = PARKS_PER_POLL - 1
        states["WaitForWakeUpBriefly"]["TimeoutSeconds"] = settings.poll_s
    if settings.heartbeat:
        _set_heartbeat(states["Hold"]["Branches"][1]["States"]["Heartbeat"], settings)
    else:
        _hold_for_one_lease(states, settings)
    return definition


def ticket_settings(settings: LockSettings) -> dict[str, Any]:
    """The deployment's settings that are passed to the first step."""
    return {
        "defaultRecordWaitSeconds": settings.default_record_wait,
        "defaultPermits": settings.permits,
        "leaseSeconds": settings.lease_s,
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
    serialize = serialize_definition(all_of_it, ())["States"]
    states = {name: serialize[name] for name in (*_PARKED, "WaitForTurn", "CheckPosition")}
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


def _hold_for_one_lease(states: dict[str, Any], settings: LockSettings) -> None:
    """Replace the Parallel by the work's branch: work that always ends within its lease needs no heartbeat."""
    branch = states.pop("Hold")["Branches"][0]
    work = branch["States"]
    del work["LeaveToHeartbeat"]
    for name in _WORK:
        work[name]["TimeoutSeconds"] = settings.work_timeout_s
        # Each attempt has its own time-out; together they would outlast the lease.
        del work[name]["Retry"]
    work["Release"]["Catch"][-1]["Next"] = "LeftToLease"
    work["LeftToLease"] = {
        "Comment": "The release failed: the work's output is kept, and the lock is free when its lease ends.",
        "Type": "Pass",
        "OutputPath": "$.task.output",
        "End": True,
    }
    granted = next(choice for choice in states["MyTurn?"]["Choices"] if choice["Next"] == "Hold")
    granted["Next"] = branch["StartAt"]
    states |= work


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
        definition = serialize_definition(settings, [target.arn for target in targets])
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
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=log_group,
                level=sfn.LogLevel.ALL,
                # The work's input and output are the user's, and a task token allows anyone to answer for the task.
                include_execution_data=False,
            ),
        )
        resource = machine.node.default_child
        assert isinstance(resource, sfn.CfnStateMachine)
        # cfn-lint judges the text before its substitutions: ${Partition} is no ARN to it. E1101 is its own failure
        # to say where in a Parallel that is.
        resource.add_metadata("cfn-lint", {"config": {"ignore_checks": ["E1101", "E3601"]}})
        acknowledge_wildcard(machine, reason="X-Ray and the delivery of logs name no resources.")
        if hosting.encryption_key is not None:
            encrypt(machine, hosting.encryption_key)
        return machine
