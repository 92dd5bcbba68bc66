"""Parameters beside the SDK's model of the API: what a client of the SDK refuses and encodes before it sends it."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError
from botocore.validate import ParamValidator

from ticketlock.testing._parameters import REQUIRED, check_known, known_of, shape_of

_Usual = tuple[type | None, Callable[[Any], bool] | None]
"""The type that a value usually has, None for one that is not of these; and what else is checked, if anything is."""

_TYPES: Mapping[str, type] = {
    "blob": bytes,
    "boolean": bool,
    "integer": int,
    "list": list,
    "long": int,
    "map": dict,
    "string": str,
    "structure": dict,
}
_COUNTS = ("Limit", "Segment", "TotalSegments")
_OF_LENGTH = ("Invalid length", "Invalid value")


class TooShort(ParamValidationError, ClientError):
    """What a client of the SDK does not send, since a part is too short, and what the service refuses from others.

    It is both errors: a test of what is refused need not know by whom.
    """

    def __init__(self, report: str, operation: str) -> None:
        ParamValidationError.__init__(self, report=report)
        self.response = {"Error": {"Code": "ValidationException", "Message": report}}
        self.operation_name = operation

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.response["Error"]["Message"], self.operation_name)


def sendable(operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters as a client of the SDK sends them.

    Raises:
        NotImplementedError: the service in memory does not know the operation, or a parameter.
        ParamValidationError: the client does not send them.
    """
    if _are_usual(operation, parameters):
        return parameters
    _check(operation, parameters)
    encoded: Mapping[str, Any] = _encoded(parameters, shape_of(operation))
    return encoded


def check_received(operation: str, parameters: Mapping[str, Any]) -> None:
    """The same of parameters from the wire, whose lengths the service refuses in its own words."""
    if not _are_usual(operation, parameters):
        _check(operation, parameters, except_for=_OF_LENGTH)


def _check(operation: str, parameters: Mapping[str, Any], except_for: tuple[str, ...] = ()) -> None:
    check_known(operation, parameters)
    report = ParamValidator().validate(parameters, shape_of(operation)).generate_report()
    found = [each for each in report.splitlines() if not each.startswith(except_for)]
    # For the SDK `True` is a number, too; the service reads no such number.
    found += [f"Invalid type for parameter {name}, value: True" for name in _COUNTS if parameters.get(name) is True]
    if not found:
        return
    said = "\n".join(found)
    if all(each.startswith(_OF_LENGTH) for each in found):
        raise TooShort(said, operation)
    raise ParamValidationError(report=said)


def _are_usual(operation: str, parameters: Mapping[str, Any]) -> bool:
    """Whether parameters are certainly known and valid.

    Nearly all are, which is seen in a fraction of the time that the SDK takes. Simulated worlds send millions.
    """
    if operation not in REQUIRED or not parameters.keys() <= known_of(operation):
        return False
    return _is(parameters, _usual_of(operation))


@cache
def _usual_of(operation: str) -> _Usual:
    return _usual(shape_of(operation), {})


def _is(value: Any, usual: _Usual) -> bool:
    kind, check = usual
    return type(value) is kind and (check is None or bool(check(value)))


def _usual(shape: Any, known: dict[str, _Usual]) -> _Usual:
    """What a value of a shape usually is.

    Args:
        known: the shapes so far, since values are within values.
    """
    if shape.name in known:
        return known[shape.name]
    parts: dict[str, _Usual] = {}
    required = frozenset(shape.metadata.get("required", ()))
    is_of_attributes = shape.type_name == "map" and shape.value.name == "AttributeValue"
    least: int = shape.metadata.get("min", 0)

    # Both loops are `_is` without its call: nothing is done more often.
    def are_members(value: Any) -> bool:
        for name, member in value.items():
            if name not in parts:
                return False
            kind, check = parts[name]
            if type(member) is not kind or (check is not None and not check(member)):
                return False
        return bool(required <= value.keys())

    def are_values(value: Any) -> bool:
        usual: Any = parts["value"]
        kind, check = usual
        for name, member in value.items():
            if type(member) is not kind or type(name) is not str or not name:
                return False
            # Texts and numbers, which most attributes are.
            if is_of_attributes and len(member) == 1 and type(member.get("S") or member.get("N")) is str:
                continue
            if check is not None and not check(member):
                return False
        return True

    def are_elements(value: Any) -> bool:
        return len(value) >= least and all(_is(each, parts["member"]) for each in value)

    def is_long_enough(value: Any) -> bool:
        return len(value) >= least

    def is_large_enough(value: Any) -> bool:
        return bool(value >= least)

    check: Callable[[Any], bool] | None = None
    within: Mapping[str, Any] = {}
    match shape.type_name:
        case "structure":
            check, within = are_members, shape.members
        case "map":
            check, within = are_values, {"value": shape.value}
        case "list":
            check, within = are_elements, {"member": shape.member}
        case "string" if least:
            check = is_long_enough
        case "integer" | "long" if "min" in shape.metadata:
            check = is_large_enough
    known[shape.name] = found = _TYPES.get(shape.type_name), check
    parts |= {name: _usual(part, known) for name, part in within.items()}
    return found


def _encoded(value: Any, shape: Any) -> Any:
    """The same with bytes for the texts that the SDK encodes. A file it cannot encode, in this service's protocol."""
    match shape.type_name:
        case "structure":
            return {name: _encoded(member, shape.members[name]) for name, member in value.items()}
        case "map":
            return {name: _encoded(member, shape.value) for name, member in value.items()}
        case "list":
            return [_encoded(each, shape.member) for each in value]
        case "blob":
            return value.encode() if isinstance(value, str) else bytes(memoryview(value))
        case _:
            return value
