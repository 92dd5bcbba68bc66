"""What the DynamoDB in memory has of DynamoDB's operations and parameters."""

from ticketlock.testing._parameters import OPTIONAL, REQUIRED, service_model


def operations() -> str:
    """Its operations, each with the parameters of DynamoDB that it lacks."""
    lines = ["| operation in memory | parameters that it lacks |", "|---|---|"]
    for operation, required in sorted(REQUIRED.items()):
        members = service_model().operation_model(operation).input_shape.members
        lacks = sorted(members.keys() - {*required, *OPTIONAL.get(operation, ())})
        lines.append(f"| `{operation}` | {', '.join(f'`{name}`' for name in lacks) or 'none'} |")
    return "\n".join(lines)
