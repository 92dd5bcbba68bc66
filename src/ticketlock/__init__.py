"""FIFO locks with fencing tokens for DynamoDB.

    locks = LockClient("locks")
    with locks.acquire("order-42") as lease:
        ...

``LockClient`` is for threads, ``ticketlock.aio.LockClient`` for tasks; ``LockTable`` performs the protocol below them,
one verb a method. ``ticketlock.units`` has transactions over items of any tables. Every error is a ``TicketLockError``
(``ticketlock.errors`` draws the tree).
"""

from ticketlock._version import __version__ as __version__
from ticketlock.client._client import LockClient
from ticketlock.client._lease import Lease, LeaseGroup
from ticketlock.client._lock import Lock
from ticketlock.client._pessimistic import Pessimistic, pessimistic
from ticketlock.errors import (
    AlreadyHeld,
    ClientClosed,
    CommittedUnfinished,
    ConditionFailed,
    EventBudgetExceeded,
    InvalidLockRequest,
    InvalidUnitRequest,
    ItemTooLarge,
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
    UnitChanged,
    UnitConflict,
    UnitContended,
    UnitError,
    UnitFinished,
    UnitForgotten,
    UnitRolledBack,
    UnitTooLarge,
    UnsupportedFormat,
)
from ticketlock.locks._fencing import Fence
from ticketlock.locks._items import LockName
from ticketlock.locks._lock_table import LockTable, create_table
from ticketlock.locks._operators import LockSummary
from ticketlock.locks._outcomes import Claim, Grant, LockState, Place, Position, Released
from ticketlock.wire._sdk import client_config

__all__ = [
    "AlreadyHeld",
    "Claim",
    "ClientClosed",
    "CommittedUnfinished",
    "ConditionFailed",
    "EventBudgetExceeded",
    "Fence",
    "Grant",
    "InvalidLockRequest",
    "InvalidUnitRequest",
    "ItemTooLarge",
    "Lease",
    "LeaseGroup",
    "Lock",
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
    "UnitChanged",
    "UnitConflict",
    "UnitContended",
    "UnitError",
    "UnitFinished",
    "UnitForgotten",
    "UnitRolledBack",
    "UnitTooLarge",
    "UnsupportedFormat",
    "client_config",
    "create_table",
    "pessimistic",
]
