"""What the DynamoDB in memory has of DynamoDB's operations and parameters."""

from collections.abc import Iterable
from textwrap import fill

from ticketlock.testing._parameters import OPTIONAL, REQUIRED, service_model


def operations() -> str:
    """Its operations; those that lack parameters of DynamoDB's, with these."""
    whole, lacking = [], []
    for operation, required in sorted(REQUIRED.items()):
        members = service_model().operation_model(operation).input_shape.members
        lacks = sorted(members.keys() - {*required, *OPTIONAL.get(operation, ())})
        if lacks:
            lacking.append(f"- `{operation}`, without {_code(lacks)}")
        else:
            whole.append(operation)
    lines = [f"`MemoryDynamoDB` has {_code(whole)}, each with all parameters, and:", "", *lacking]
    lines += ["", "It has neither other operations nor streams."]
    return "\n".join(fill(line, 120, subsequent_indent="  " * (line[:1] == "-")) for line in lines)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
