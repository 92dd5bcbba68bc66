"""Waiters that functions wake: executions of the machine's own ARN, and of an alias."""

import uuid

from ticketlock_local.aws.checking import check
from ticketlock_local.aws.deployed import Deployed, ends_of_parking, entity

_STATES = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsstepfunctions.html"
_ALIASES = "https://docs.aws.amazon.com/step-functions/latest/dg/auth-version-alias.html"
_ANY = "it asks no role for the resource of such an answer"


def _ends_of_the_wait(deployed: Deployed, machine: str) -> tuple[bool, str]:
    """Make an execution of a machine wait behind another, and return how its parking ended."""
    name = entity("woken")
    holder = deployed.nest(name, 15, machine)
    deployed.until_held(name, holder)
    waiter = deployed.nest(name, 0, machine)
    deployed.until_parked(waiter)
    for arn in (holder, waiter):
        deployed.ended(arn)
    ends = ends_of_parking(deployed.history(waiter))
    return ends[-1] == "TaskSucceeded", ", ".join(ends)


@check(
    assumed="WaitForWakeUp succeeds: SendTaskSuccess is authorised by the machine's ARN",
    link=_STATES,
    emulator_lacks=_ANY,
)
def a_function_wakes_a_waiter_by_the_machines_arn(deployed: Deployed) -> tuple[bool, str]:
    """Make one execution wait behind another."""
    return _ends_of_the_wait(deployed, deployed.outputs["StateMachineArn"])


@check(
    assumed="the same of executions that were started by an alias: it is authorised by the machine's ARN",
    link=_ALIASES,
    emulator_lacks=_ANY,
)
def a_function_wakes_a_waiter_that_was_started_by_an_alias(deployed: Deployed) -> tuple[bool, str]:
    """Make a version and an alias of the stack's machine, which are deleted with it."""
    machine = deployed.outputs["StateMachineArn"]
    version = deployed.step_functions.publish_state_machine_version(stateMachineArn=machine)["stateMachineVersionArn"]
    alias = deployed.step_functions.create_state_machine_alias(
        name=f"check-{uuid.uuid4().hex[:8]}",
        routingConfiguration=[{"stateMachineVersionArn": version, "weight": 100}],
    )["stateMachineAliasArn"]
    return _ends_of_the_wait(deployed, alias)
