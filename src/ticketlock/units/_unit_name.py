"""What a state of a workflow calls its units: a name that is the same at each retry, and an owner that ends with it."""

import json

from ticketlock._checks import text, whole_number
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._outcomes import NAME_BYTES

# https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html
_EXECUTION = "the ARN of an execution, which the context object has as $$.Execution.Id"
# Far above https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html
_MOST_REDRIVES = 10**9
_STATE = "the name of a state, which the context object has as $$.State.Name"


def unit_name(execution: str, state: str, *item: str | int) -> str:
    """The name of the unit that a state of an execution commits, once however often it is retried or redriven.

        units.begin(name=unit_name(event["execution"], event["state"]))

    Args:
        execution: its ARN: ``$$.Execution.Id``. A retry and a redrive have the same; a new execution has another.
        state: ``$$.State.Name``.
        item: what tells the units of one state apart: in a Map the item's own id, or ``$$.Map.Item.Index``; in a loop
            the number of the round, from the payload; in a task with several units a word for each.

    Returns:
        Text for ``begin(name=...)`` and ``outcome(name=...)``. Other arguments make another name.

    Raises:
        InvalidUnitRequest: an argument is something else, or all together are longer than a name may be.
    """
    _check_execution(execution)
    if not isinstance(state, str) or not state:
        raise InvalidUnitRequest("state", state, _STATE)
    for number, each in enumerate(item):
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise InvalidUnitRequest(f"item[{number}]", each, "text or a whole number")
    return _joined("name", execution, state, *map(str, item))


def unit_owner(execution: str, redrives: int) -> str:
    """The owner of the units that an execution saves, until it ends.

        unit.save(owner=unit_owner(event["execution"], event["redrives"]))

    An execution that is redriven begins another life under the same ARN: the units of the life before are rolled back,
    and those of the new one have another owner.

    Args:
        execution: its ARN: ``$$.Execution.Id``.
        redrives: how many times it was redriven: ``$$.Execution.RedriveCount``.

    Returns:
        Text for ``Unit.save(owner=...)`` and ``Units.end_owner``.

    Raises:
        InvalidUnitRequest: an argument is something else, or both together are longer than an owner may be.
    """
    _check_execution(execution)
    whole_number("redrives", redrives, 0, _MOST_REDRIVES, InvalidUnitRequest)
    return _joined("owner", execution, redrives)


def _check_execution(execution: str) -> None:
    text("execution", execution, NAME_BYTES, InvalidUnitRequest)
    if not execution.startswith("arn:"):
        raise InvalidUnitRequest("execution", execution, _EXECUTION)


def _joined(field: str, *parts: str | int) -> str:
    # A list, so that no two lists of parts make one text.
    joined = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return text(field, joined, NAME_BYTES, InvalidUnitRequest)
