"""FIFO locks with fencing tokens for DynamoDB.

``LockTable`` performs the protocol over boto3, one verb a method. Every error is a ``TicketLockError``
(``ticketlock.errors`` draws the tree).
"""

from ticketlock._names import LockName
from ticketlock._outcomes import Grant, LockState, Place, Position, Released
from ticketlock._table import LockTable
from ticketlock._writes import Claim
from ticketlock.errors import (
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
    "Claim",
    "EventBudgetExceeded",
    "Grant",
    "InvalidLockRequest",
    "LockLost",
    "LockName",
    "LockState",
    "LockTable",
    "OutcomeUnknown",
    "PermitsMismatch",
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
]
