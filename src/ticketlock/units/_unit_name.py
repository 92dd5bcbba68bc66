"""The name of a unit that a workflow's state commits: the same at each retry, and different for each state."""

import json

from ticketlock._checks import text
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._outcomes import NAME_BYTES

# https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html
_EXECUTION = "the ARN of an execution, `$$.Execution.Id` of the context object"
_STATE = "the name of a state, `$$.State.Name` of the context object"


def unit_name(execution: str, state: str, *item: str | int) -> str:
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
    text("execution", execution, NAME_BYTES, InvalidUnitRequest)
    if not execution.startswith("arn:"):
        raise InvalidUnitRequest("execution", execution, _EXECUTION)
    if not isinstance(state, str) or not state:
        raise InvalidUnitRequest("state", state, _STATE)
    for number, each in enumerate(item):
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise InvalidUnitRequest(f"item[{number}]", each, "text or a whole number")
    # JSON of a list, so that different lists never give the same name.
    name = json.dumps([execution, state, *map(str, item)], ensure_ascii=False, separators=(",", ":"))
    return text("name", name, NAME_BYTES, InvalidUnitRequest)
