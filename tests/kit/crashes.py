"""Processes that are killed at one of their requests, and send nothing more; and what others do before one."""

from collections.abc import Callable
from typing import Any

from kit.units import Lost, Party


def crashes(party: Party, number: int, operation: str = "UpdateItem", *, is_sent: bool) -> None:
    """Kill a process at its n-th request of an operation from now on.

    Args:
        is_sent: whether it is killed before its reply is read; otherwise before the request is sent.
    """
    party.loses(Lost.KILLED_AFTER if is_sent else Lost.KILLED_BEFORE, number, operation=operation)


def before_the_nth(party: Party, number: int, do: Callable[[], object], operation: str | None = None) -> None:
    """Run something before a process sends its n-th request from now on; of an operation, or of all."""
    seen = 0

    def before(model: Any, **_: object) -> None:
        nonlocal seen
        seen += operation in (None, model.name)
        if seen == number and operation in (None, model.name):
            do()

    party.client.meta.events.register_first("before-call.dynamodb", before)
