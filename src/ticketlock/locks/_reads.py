"""The reads of the protocol; each is named after its purpose."""

from dataclasses import replace

from ticketlock.locks._items import LockName, Session, lock_prefix
from ticketlock.locks._outcomes import Claim
from ticketlock.wire import GetMany, Item, Read, Scan, TimeCheck, number

# The attributes that `TicketLock.grant_read` lets a list read: no task tokens, and no holders, whose attribute names
# a policy cannot know.
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

_IS_A_LOCK_ITEM = "attribute_exists(issued)"
# A newer version may have other counts: then the lock is read.
_MAY_BE_BUSY = f"{_IS_A_LOCK_ITEM} AND (NOT held = :zero OR NOT waiting = :zero)"

TIME_CHECK = TimeCheck({"pk": {"S": "now"}, "sk": {"S": "/"}})
"""No item has its key: not a lock's, since no namespace is empty, nor a session's, which operators may not read."""

FIRST_CONTACT = replace(TIME_CHECK, patience_ms=0)
"""The same without retries: for a process that starts and should not wait for the table."""


def read_front(claim: Claim, patience_ms: int | None = None) -> Read:
    """The lock item and one row more than there are permits: the same few items, however long the queue is."""
    return Read(*lock_prefix(claim.lock), limit=claim.permits + 2, patience_ms=patience_ms)


def read_first(lock: LockName, rows: int = 1) -> Read:
    """The lock item and the first rows of its queue."""
    return Read(*lock_prefix(lock), limit=1 + rows)


def read_whole(lock: LockName) -> Read:
    """The lock item and its whole queue, a page at a time."""
    return Read(*lock_prefix(lock), limit=None)


def read_session(session: Session, patience_ms: int | None = None, attributes: tuple[str, ...] = ()) -> Read:
    """One session item, or only the given attributes of it; ``session_in`` extracts it from the reply."""
    key = session.key()
    return Read({"pk": key["pk"]}, {"sk": key["sk"]}, limit=1, patience_ms=patience_ms, attributes=attributes)


def read_items(*keys: Item) -> GetMany:
    """Items by their keys, in one request; a duplicate key is read once."""
    return GetMany(tuple((None, key) for position, key in enumerate(keys) if key not in keys[:position]))


def session_in(found: Item | None, session: Session) -> Item | None:
    """``found`` if it is the item of ``session``; it may be that of a fragment whose id begins with the same text."""
    return found if found is not None and found["sk"] == session.key()["sk"] else None


def read_sessions(execution: str) -> Read:
    """All sessions of an execution, a page at a time."""
    return Read({"pk": Session(execution, "").key()["pk"]}, {"sk": {"S": "/"}}, limit=None)


def list_page(after: Item | None = None, *, busy: bool = False, limit: int | None = None) -> Scan:
    """A page of the table's lock items, with the attributes of a list; or of those that may be busy."""
    if not busy:
        return Scan(_IS_A_LOCK_ITEM, LISTED, after, limit=limit)
    return Scan(_MAY_BE_BUSY, LISTED, after, values={":zero": number(0)}, limit=limit)
