"""Processes that are killed at one of their requests, and send nothing more, from other threads either."""

from kit.units import Lost, Party


def crashes(party: Party, number: int, operation: str = "UpdateItem", *, is_sent: bool) -> None:
    """Kill a process at its n-th request of an operation from now on.

    Args:
        is_sent: whether it is killed before its reply is read; otherwise before the request is sent.
    """
    party.loses(Lost.KILLED_AFTER if is_sent else Lost.KILLED_BEFORE, number, operation=operation)
