"""What the policies of a template grant, beside what docs/units-table.md says."""

import json
from typing import Any

from kit.pages import blocks


def page(sid: str) -> set[str]:
    """The actions of a statement of docs/units-table.md."""
    documents = [json.loads(block) for block in blocks("docs/units-table.md", "json")]
    return {
        action
        for each in documents
        if isinstance(each, list)
        for statement in each
        if statement["Sid"] == sid
        for action in statement["Action"]
    }


def on_table(found: Any, construct: Any, table: Any) -> set[str]:
    """The actions on a table that the policies of a role, or a function, have."""
    arn = {"Fn::GetAtt": [found.id_of(table), "Arn"]}
    statements = [one for one in found.statements(construct) if arn in as_list(one["Resource"])]
    return {action for one in statements for action in as_list(one["Action"])}


def as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]
