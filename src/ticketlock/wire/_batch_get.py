"""Reads of many items by their keys."""

from collections.abc import Mapping, Sequence
from typing import Any

from ticketlock.wire._actions import Actions, Call
from ticketlock.wire._answers import BrokenReply, Unprocessed
from ticketlock.wire._attributes import Item


def batch_get(wanted: Mapping[str, Sequence[Item]], *, is_consistent: bool) -> Actions[Any]:
    """BatchGetItem, repeated until every key is processed: one reply has at most 16 MB.

    Returns:
        The last answer, with the items of all answers.

    Raises:
        BrokenReply: an answer is incomplete.
        Unprocessed: an answer has not processed any key.
    """
    left: Any = {table: {"Keys": list(keys), "ConsistentRead": is_consistent} for table, keys in wanted.items()}
    found: dict[str, list[Item]] = {table: [] for table in wanted}
    while True:
        answer = yield Call("dynamodb", "batch_get_item", {"RequestItems": left})
        if "Responses" not in answer:
            raise BrokenReply()
        for table, items in answer["Responses"].items():
            found[table] += items
        unprocessed = answer.get("UnprocessedKeys")
        if not unprocessed:
            return {**answer, "Responses": found}
        if _keys_in(unprocessed) >= _keys_in(left):
            raise Unprocessed()
        left = unprocessed


def _keys_in(wanted: Mapping[str, Any]) -> int:
    return sum(len(each["Keys"]) for each in wanted.values())
