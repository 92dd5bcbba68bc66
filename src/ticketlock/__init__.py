"""FIFO locks with fencing tokens for DynamoDB.

    locks = LockClient("locks")
    with locks.acquire("order-42") as lease:
        ...

``LockClient`` is for threads, ``ticketlock.aio.LockClient`` for tasks; ``LockTable`` performs the protocol below them,
one verb a method. Every error is a ``TicketLockError`` (``ticketlock.errors`` draws the tree).
"""

from ticketlock._client import LockClient
from ticketlock._held import Lease, LeaseGroup
from ticketlock._listing import LockSummary
from ticketlock._names import LockName
from ticketlock._outcomes import Grant, LockState, Place, Position, Released
from ticketlock._pessimistic import Pessimistic, pessimistic
from ticketlock._provision import create_table
from ticketlock._table import LockTable
from ticketlock._writes import Claim
from ticketlock.errors import (
    AlreadyHeld,
    ClientClosed,
    EventBudgetExceeded,
    InvalidLockRequest,
    LockLost,
    OutcomeUnknown,
    PermitsMismatch,
    RecordWaitExceeded,
    RequestNotApplied,
    TableError,
    TableNotFound,
    TableRefused,
    TaskNotAllowed,
    TicketLockError,
    UnsupportedFormat,
)

__version__ = "0.1.0"

__all__ = [
    "AlreadyHeld",
    "Claim",
    "ClientClosed",
    "EventBudgetExceeded",
    "Grant",
    "InvalidLockRequest",
    "Lease",
    "LeaseGroup",
    "LockClient",
    "LockLost",
    "LockName",
    "LockState",
    "LockSummary",
    "LockTable",
    "OutcomeUnknown",
    "PermitsMismatch",
    "Pessimistic",
    "Place",
    "Position",
    "RecordWaitExceeded",
    "Released",
    "RequestNotApplied",
    "TableError",
    "TableNotFound",
    "TableRefused",
    "TaskNotAllowed",
    "TicketLockError",
    "UnsupportedFormat",
    "create_table",
    "pessimistic",
]
