"""What a workflow's state gives its units: a name that is the same at each retry, and an owner that ends with it."""

import json
import re

from ticketlock._checks import text, whole_number
from ticketlock._names import AnyName, allowed_instead, text_of
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._statements import NAME_BYTES

# https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html
_EXECUTION = "the ARN of an execution, `$$.Execution.Id` of the context object"
# As AWS's runner for tests of durable functions names them.
_OF_A_LOCAL_RUNNER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/inv-")
# Far above https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html
_MOST_REDRIVES = 10**9
_STATE = "the name of a state, `$$.State.Name` of the context object"


def unit_name(execution: str, state: str, *item: AnyName) -> str:
    """The name of the unit that a state of an execution commits, once, even if it is retried or redriven.

        units.begin(name=unit_name(event["execution"], event["state"]))

    Args:
        execution: its ARN: ``$$.Execution.Id``. Retries and redrives have the same one; a new execution has another.
        state: ``$$.State.Name``.
        item: distinguishes the units of one state: in a Map the item's own id, or ``$$.Map.Item.Index``; in a loop the
            number of the round, from the payload; in a task with several units a word for each.

    Returns:
        Text for ``begin(name=...)`` and ``outcome(name=...)``. Different arguments give different names.

    Raises:
        InvalidUnitRequest: an argument is of another type, or all of them together are longer than a name may be.
    """
    _check_execution(execution)
    if not isinstance(state, str) or not state:
        raise InvalidUnitRequest("state", state, _STATE)
    for number, each in enumerate(item):
        if text_of(each) is None:
            raise InvalidUnitRequest(f"item[{number}]", each, allowed_instead(each))
    return _joined("name", execution, state, *(text_of(each) or "" for each in item))


def unit_owner(execution: str, redrives: int) -> str:
    """The owner of the units that an execution saves, until it ends.

        unit.save(owner=unit_owner(event["execution"], event["redrives"]))

    A redriven execution runs again under the same ARN: the units that it saved before are rolled back, and those that
    it saves from then on have another owner.

    Args:
        execution: its ARN: ``$$.Execution.Id``.
        redrives: how many times it was redriven: ``$$.Execution.RedriveCount``.

    Returns:
        Text for ``Unit.save(owner=...)`` and ``Units.end_owner``.

    Raises:
        InvalidUnitRequest: an argument is of another type, or both together are longer than an owner may be.
    """
    _check_execution(execution)
    whole_number("redrives", redrives, 0, _MOST_REDRIVES, InvalidUnitRequest)
    return _joined("owner", execution, redrives)


def _check_execution(execution: str) -> None:
    text("execution", execution, NAME_BYTES, InvalidUnitRequest)
    if not execution.startswith("arn:") and _OF_A_LOCAL_RUNNER.match(execution) is None:
        raise InvalidUnitRequest("execution", execution, _EXECUTION)


def _joined(field: str, *parts: str | int) -> str:
    # JSON of a list, so that different lists never give the same text.
    joined = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return text(field, joined, NAME_BYTES, InvalidUnitRequest)
