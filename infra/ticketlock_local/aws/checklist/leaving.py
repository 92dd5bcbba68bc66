"""The stack, deleted while one execution waits and one holds."""

import time
from collections.abc import Callable, Mapping

from botocore.exceptions import ClientError

from ticketlock_local.aws.checking import check
from ticketlock_local.aws.deployed import Deployed, entity
from ticketlock_local.aws.own_stack import LONGEST_DELETE_S
from ticketlock_local.aws.seen import NotSeen

_DELETE = "https://docs.aws.amazon.com/step-functions/latest/apireference/API_DeleteStateMachine.html"
_POLICY = "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html"


def _deleted(deployed: Deployed) -> tuple[float, list[str], list[str]]:
    """Delete the stack; return how long it took, what was not deleted, and the log groups and tables that remain."""
    name = entity("last")
    holder = deployed.nest(name, 60)
    deployed.until_held(name, holder)
    deployed.until_parked(deployed.nest(name, 0))
    resources = deployed.stack.resources()
    began = time.monotonic()
    left = deployed.stack.delete(stop_executions=False)
    took_s = time.monotonic() - began
    return took_s, left, [each["PhysicalResourceId"] for each in resources if _is_there(deployed, each)]


def _is_there(deployed: Deployed, resource: Mapping[str, str]) -> bool:
    name = resource.get("PhysicalResourceId", "")
    client = deployed.account.client
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


@check(
    assumed="DELETE_COMPLETE; running executions do not prevent it, and delay it at most until they end",
    link=_DELETE,
    emulator_lacks="it deletes at once, even if executions run",
)
def the_stack_is_deleted_while_one_waits_and_one_holds(deployed: Deployed) -> tuple[bool, str]:
    """Deletes the stack of the run."""
    took_s, left, _ = deployed.once(_deleted)
    if left:
        return False, "; ".join(left)
    return took_s < LONGEST_DELETE_S, f"deleted in {took_s:.0f} s"


@check(assumed="no table, function, log group or state machine is left", link=_POLICY)
def nothing_of_the_stack_is_left(deployed: Deployed) -> tuple[bool, str]:
    """Search for the stack's resources by their names."""
    _, left, there = deployed.once(_deleted)
    if left:
        raise NotSeen("the stack was not deleted")
    return not there, "left: " + ", ".join(there) if there else "nothing is left"
