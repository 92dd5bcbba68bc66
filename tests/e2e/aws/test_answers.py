"""Waiters that functions wake: executions of the machine's own ARN, and of an alias."""

import uuid

from e2e.aws.checked import Checked, assumes, ends_of_parking, entity

_STATES = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsstepfunctions.html"
_ALIASES = "https://docs.aws.amazon.com/step-functions/latest/dg/auth-version-alias.html"
_ANY = "it asks no role for the resource of such an answer"


def _ends_of_the_wait(checked: Checked, machine: str) -> tuple[bool, str]:
    """Make an execution of a machine wait behind another, and return how its parking ended."""
    name = entity("woken")
    holder = checked.nest(name, 15, machine)
    checked.wait_until_held(name, holder)
    waiter = checked.nest(name, 0, machine)
    checked.wait_until_parked(waiter)
    for arn in (holder, waiter):
        checked.ended(arn)
    ends = ends_of_parking(checked.history(waiter))
    return ends[-1] == "TaskSucceeded", ", ".join(ends)


@assumes(
    assumed="WaitForWakeUp succeeds: SendTaskSuccess is authorised by the machine's ARN",
    link=_STATES,
    emulator_lacks=_ANY,
)
def test_a_function_wakes_a_waiter_by_the_machines_arn(checked: Checked) -> tuple[bool, str]:
    """Make one execution wait behind another."""
    return _ends_of_the_wait(checked, checked.outputs["StateMachineArn"])


@assumes(
    assumed="the same of executions that were started by an alias: it is authorised by the machine's ARN",
    link=_ALIASES,
    emulator_lacks=_ANY,
)
def test_a_function_wakes_a_waiter_that_was_started_by_an_alias(checked: Checked) -> tuple[bool, str]:
    """Make a version and an alias of the stack's machine, which are deleted with it."""
    machine = checked.outputs["StateMachineArn"]
    version = checked.step_functions.publish_state_machine_version(stateMachineArn=machine)["stateMachineVersionArn"]
    alias = checked.step_functions.create_state_machine_alias(
        name=f"check-{uuid.uuid4().hex[:8]}",
        routingConfiguration=[{"stateMachineVersionArn": version, "weight": 100}],
    )["stateMachineAliasArn"]
    return _ends_of_the_wait(checked, alias)
