"""What the policies of a template grant."""

from typing import Any


def on_table(found: Any, construct: Any, table: Any) -> set[str]:
    """The actions on a table that the policies of a role, or a function, have."""
    arn = {"Fn::GetAtt": [found.id_of(table), "Arn"]}
    statements = [one for one in found.statements(construct) if arn in as_list(one["Resource"])]
    return {action for one in statements for action in as_list(one["Action"])}


def as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]
