"""Checks the caller's permissions: tries each action with a request that writes nothing and reads no lock.

A write has a condition that never holds: it is refused for the condition, or for a missing permission.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from ticketlock.cli._finding import Finding
from ticketlock.locks._reads import TIME_CHECK, list_page
from ticketlock.wire._requests import Read

_KEY = {"pk": {"S": "ticketlock doctor"}, "sk": {"S": "ticketlock doctor/"}}
_NEVER = "attribute_exists(pk) AND attribute_not_exists(pk)"
_PERMITTED = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException"})
_TO_USE = "to take and free locks"
_TO_LIST = "for `ticketlock ls`"


def trial_findings(client: Any, table_name: str) -> Iterator[Finding]:
    """Try every action on the table."""
    table = {"TableName": table_name}
    write: Mapping[str, Any] = {**table, "ConditionExpression": _NEVER}
    key: Mapping[str, Any] = {"Key": _KEY}
    check = {"ConditionCheck": {**write, **key}}
    other = {"Delete": {**write, "Key": {**_KEY, "sk": {"S": "ticketlock doctor/0"}}}}
    read = Read({"pk": {"S": "ticketlock doctor"}}, {"sk": {"S": "-"}}, limit=1)
    scan = {**list_page().parameters(table_name), "Limit": 1}
    trials: list[tuple[str, str, Callable[[], Any]]] = [
        ("GetItem", _TO_USE, lambda: client.get_item(**TIME_CHECK.parameters(table_name))),
        ("Query", _TO_USE, lambda: client.query(**read.parameters(table_name))),
        ("PutItem", _TO_USE, lambda: client.put_item(**write, Item=_KEY)),
        ("UpdateItem", _TO_USE, lambda: client.update_item(**write, **key)),
        ("DeleteItem", _TO_USE, lambda: client.delete_item(**write, **key)),
        ("ConditionCheckItem", _TO_USE, lambda: client.transact_write_items(TransactItems=[check, other])),
        ("Scan", _TO_LIST, lambda: client.scan(**scan)),
    ]
    for action, purpose, trial in trials:
        yield _tried(f"dynamodb:{action}", purpose, trial)


def _tried(action: str, purpose: str, trial: Callable[[], Any]) -> Finding:
    try:
        trial()
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        if code not in _PERMITTED:
            return Finding("bad", action, f"needed {purpose}; {code}: {message}")
    return Finding("good", action, "permitted")
