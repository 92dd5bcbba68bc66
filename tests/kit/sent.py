"""Recognises the requests of a client, by the text of their expressions."""

from ticketlock.testing import Sent


def is_renewal(sent: Sent) -> bool:
    """Whether it renews a holder's lease."""
    return str(sent.parameters.get("UpdateExpression")).startswith("SET #me.leaseUntilMs")


def is_release(sent: Sent) -> bool:
    """Whether it releases a lock."""
    return str(sent.parameters.get("UpdateExpression")).startswith("SET held = held - :one")


def is_grant(sent: Sent) -> bool:
    """Whether it would make its sender a holder."""
    return "#my_token = " in str(sent.parameters)


def is_ticket(sent: Sent) -> bool:
    """Whether it takes a ticket."""
    return "ticketAtMs = :now" in str(sent.parameters)


def is_row(sent: Sent) -> bool:
    """Whether it puts a queue row."""
    return sent.operation == "PutItem"


def is_leave(sent: Sent) -> bool:
    """Whether it leaves the queue."""
    return sent.operation == "TransactWriteItems" and not is_grant(sent)
