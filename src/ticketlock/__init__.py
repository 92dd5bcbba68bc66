"""FIFO locks with fencing tokens for DynamoDB.

    locks = LockClient("locks")
    with locks.acquire("order-42") as lease:
        ...

``LockClient`` is for threads, ``ticketlock.aio.LockClient`` for tasks; ``LockTable`` performs the protocol below them,
one verb a method. ``ticketlock.units`` has transactions over items of any tables. Every error is a ``TicketLockError``
(``ticketlock.errors`` draws the tree).
"""

from ticketlock._version import __version__ as __version__
from ticketlock.client import Lease, LeaseGroup, Lock, LockClient, Pessimistic, pessimistic
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
from ticketlock.locks import (
    Claim,
    Fence,
    Grant,
    LockName,
    LockState,
    LockSummary,
    LockTable,
    Place,
    Position,
    Released,
    create_table,
)
from ticketlock.wire import client_config

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
