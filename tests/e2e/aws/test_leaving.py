"""The stack, deleted while one execution waits and one holds."""

import time
from collections.abc import Callable, Mapping

from botocore.exceptions import ClientError
from e2e.aws.checked import Checked, NotSeen, assumes, entity
from e2e.aws.own_stack import LONGEST_DELETE_S

_DELETE = "https://docs.aws.amazon.com/step-functions/latest/apireference/API_DeleteStateMachine.html"
_POLICY = "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html"


def _deleted(checked: Checked) -> tuple[float, list[str], list[str]]:
    """Delete the stack; return how long it took, what was not deleted, and the log groups and tables that remain."""
    name = entity("last")
    holder = checked.nest(name, 60)
    checked.wait_until_held(name, holder)
    checked.wait_until_parked(checked.nest(name, 0))
    resources = checked.stack.resources()
    began = time.monotonic()
    left = checked.stack.delete(stop_executions=False)
    took_s = time.monotonic() - began
    return took_s, left, [each["PhysicalResourceId"] for each in resources if _is_there(checked, each)]


def _is_there(checked: Checked, resource: Mapping[str, str]) -> bool:
    name = resource.get("PhysicalResourceId", "")
    client = checked.account.client
    match resource["ResourceType"]:
        case "AWS::DynamoDB::Table":
            return _answers(lambda: client("dynamodb").describe_table(TableName=name))
        case "AWS::Lambda::Function":
            return _answers(lambda: client("lambda").get_function(FunctionName=name))
        case "AWS::Logs::LogGroup":
            return bool(client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"])
        case "AWS::StepFunctions::StateMachine":
            return _answers(lambda: client("stepfunctions").describe_state_machine(stateMachineArn=name))
    return False


def _answers(request: Callable[[], object]) -> bool:
    try:
        request()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if "NotFound" in code or "DoesNotExist" in code:
            return False
        raise
    return True


@assumes(
    assumed="DELETE_COMPLETE; running executions do not prevent it, and delay it at most until they end",
    link=_DELETE,
    emulator_lacks="it deletes at once, even if executions run",
)
def test_the_stack_is_deleted_while_one_waits_and_one_holds(checked: Checked) -> tuple[bool, str]:
    """Deletes the stack of the run."""
    took_s, left, _ = checked.once(_deleted)
    if left:
        return False, "; ".join(left)
    return took_s < LONGEST_DELETE_S, f"deleted in {took_s:.0f} s"


@assumes(assumed="no table, function, log group or state machine is left", link=_POLICY)
def test_nothing_of_the_stack_is_left(checked: Checked) -> tuple[bool, str]:
    """Search for the stack's resources by their names."""
    _, left, there = checked.once(_deleted)
    if left:
        raise NotSeen("the stack was not deleted")
    return not there, "left: " + ", ".join(there) if there else "nothing is left"
