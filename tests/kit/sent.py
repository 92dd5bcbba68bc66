"""What a request of a client means, by the text of its expressions."""

from ticketlock.testing import Sent


def is_renewal(sent: Sent) -> bool:
    """Whether it renews a holder's lease."""
    return str(sent.parameters.get("UpdateExpression")).startswith("SET #me.leaseUntilMs")


def is_release(sent: Sent) -> bool:
    """Whether it gives a lock back."""
    return str(sent.parameters.get("UpdateExpression")).startswith("SET held = held - :one")


def is_grant(sent: Sent) -> bool:
    """Whether it would make its sender a holder."""
    return "#my_token = " in str(sent.parameters)


def is_ticket(sent: Sent) -> bool:
    """Whether it takes a number."""
    return "ticketAtMs = :now" in str(sent.parameters)


def is_row(sent: Sent) -> bool:
    """Whether it stands in the queue."""
    return sent.operation == "PutItem"


def is_leave(sent: Sent) -> bool:
    """Whether it gives up a place in the queue."""
    return sent.operation == "TransactWriteItems" and not is_grant(sent)
