"""The reads of the protocol, each under the name of what it is read for."""

from dataclasses import replace

from ticketlock.locks import _conditions as only_if
from ticketlock.locks._claim import Claim
from ticketlock.locks._items import Session, lock_prefix
from ticketlock.locks._names import LockName
from ticketlock.wire._attributes import Item
from ticketlock.wire._requests import Attributes, Read, ReadItems, Scan, TimeCheck

# What `TicketLock.grant_read` lets a list read: no task tokens, and no holders, whose names nobody can tell beforehand.
LISTED = (
    "pk",
    "sk",
    "fencingToken",
    "held",
    "heldShared",
    "issued",
    "meanHoldMs",
    "permits",
    "permitsKeptUntil",
    "waiting",
)

TIME_CHECK = TimeCheck({"pk": {"S": "now"}, "sk": {"S": "/"}})
"""Its key is nobody's: not a lock's, since no namespace is empty, nor a session's, which operators may not read."""


FIRST_CONTACT = replace(TIME_CHECK, patience_ms=0)
"""The same, asked once: for a process that has nothing to do yet, and would rather not wait."""


def read_front(claim: Claim, patience_ms: int | None = None) -> Read:
    """The lock item and one row more than there are permits: the same few items at any depth of the queue."""
    return Read(*lock_prefix(claim.lock), limit=claim.permits + 2, patience_ms=patience_ms)


def read_first(lock: LockName) -> Read:
    """The lock item and the first row of its queue."""
    return Read(*lock_prefix(lock), limit=2)


def read_whole(lock: LockName) -> Read:
    """The lock item and its whole queue, a page at a time."""
    return Read(*lock_prefix(lock), limit=None)


def read_session(session: Session, patience_ms: int | None = None, attributes: tuple[str, ...] = ()) -> Read:
    """One session item, or only these of its attributes; ``session_in`` finds it in the reply."""
    key = session.key()
    return Read({"pk": key["pk"]}, {"sk": key["sk"]}, limit=1, patience_ms=patience_ms, attributes=attributes)


def read_items(*keys: Attributes) -> ReadItems:
    """Items by their keys, in one request; a key that is named twice is read once."""
    return ReadItems(tuple(key for position, key in enumerate(keys) if key not in keys[:position]))


def session_in(found: Item | None, session: Session) -> Item | None:
    """The session's item, of the first one with its prefix: perhaps another fragment's, whose name is longer."""
    return found if found is not None and found["sk"] == session.key()["sk"] else None


def read_sessions(execution: str) -> Read:
    """All sessions of an execution, a page at a time."""
    return Read({"pk": Session(execution, "").key()["pk"]}, {"sk": {"S": "/"}}, limit=None)


def list_page(after: Attributes | None = None) -> Scan:
    """A page of the lock items of the whole table, as far as a list shows them."""
    return Scan(only_if.A_LOCK_ITEM, LISTED, after)
