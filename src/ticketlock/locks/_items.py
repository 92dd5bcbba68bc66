"""The stored items: keys, attribute names, and the items as values.

One table: ``pk`` (string), ``sk`` (string), time to live on ``expiresAt`` (whole epoch seconds). Every other time is
in epoch milliseconds and says so in its name.

    lock item   pk = entity   sk = namespace + "/"
    queue row   pk = entity   sk = namespace + "/" + ticket, 38 digits

The slash ends the namespace, so ``begins_with(sk, "ns/")`` reads the lock item first, then its rows in ticket order,
and nothing else. The sort key of a session item starts with a slash. No namespace does, so no lock's keys can equal a
session's:

    session item   pk = "session#" + execution ARN   sk = "/" + fragment of the definition

A holder is two attributes of the lock item, a map and the fencing token. They are separate because the server computes
the token in the granting update, and one expression must work whether or not the item exists.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ticketlock._checks import in_seconds, name_text, text
from ticketlock._value import value
from ticketlock.errors import InvalidLockRequest, UnsupportedFormat
from ticketlock.locks._modes import Mode, mode_of
from ticketlock.wire import Item, integer

DEFAULT_NAMESPACE = "default"
_ENTITY_BYTES = 1_024
_NAMESPACE_BYTES = 255
_OWNER_BYTES = 1_024
# Some thirty years: longer than any execution, and still exact in milliseconds.
MAX_RECORD_WAIT_MS = 10**12

_SESSION_OUTLIVES_ITS_LEASE_S = 24 * 3_600

FORMAT = 1
TICKET_DIGITS = 38
_HOLDER = "holder:"
_TOKEN = "token:"
_FORCED = "forced:"
_SESSION = "session#"


@dataclass(frozen=True, slots=True)
class LockName:
    """The name of one lock: an entity, and a namespace that lets several independent locks exist on it.

    Both are compared byte by byte: no normalisation, no trimming, no case folding.

    Attributes:
        entity: 1 to 1,024 bytes of UTF-8 text. A whole number is the text of its digits, a UUID its usual text.
        namespace: 1 to 255 bytes of UTF-8 text without ``/``.

    Raises:
        InvalidLockRequest: one of them is out of these bounds.
    """

    entity: str
    namespace: str = DEFAULT_NAMESPACE

    def __post_init__(self) -> None:
        # Equal names have one hash, so both become text of no subclass.
        object.__setattr__(self, "entity", name_text("entity", self.entity, _ENTITY_BYTES))
        object.__setattr__(self, "namespace", text("namespace", self.namespace, _NAMESPACE_BYTES))
        if "/" in self.namespace:
            raise InvalidLockRequest("namespace", self.namespace, "text without '/'")


def lock_name(value: object) -> LockName:
    """Check that ``value`` is a ``LockName``; an entity alone has no namespace."""
    if not isinstance(value, LockName):
        raise InvalidLockRequest("lock", value, "a LockName, as `lock(entity)` of a client returns it")
    return value


def owner_id(value: object) -> str:
    """Check the identity of one acquisition: 1 to 1,024 bytes of text, chosen before the first request."""
    return text("owner", value, _OWNER_BYTES)


def record_wait_ms(field: str, value: Any, infinity: str = "math.inf") -> int | None:
    """Read a record wait: seconds from 0, a ``timedelta``, or infinity, also as ``"Infinity"``.

    Args:
        infinity: how an error names an unlimited one.

    Returns:
        Milliseconds, rounded up; None for an unlimited wait, or one of more than 10^9 seconds.
    """
    if isinstance(value, str) and value == "Infinity":
        return None
    given, value = value, in_seconds(value)
    # `not value >= 0` is also true for NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidLockRequest(field, given, f"a number of seconds from 0 on, or {infinity}")
    if value * 1_000 > MAX_RECORD_WAIT_MS:
        return None
    return math.ceil(value * 1_000)


def lock_key(lock: LockName) -> dict[str, Any]:
    """The key of a lock's item."""
    return {"pk": {"S": lock.entity}, "sk": {"S": lock.namespace + "/"}}


def lock_prefix(lock: LockName) -> tuple[dict[str, Any], dict[str, Any]]:
    """The partition key of a lock, and the prefix of the sort keys of its item and its rows."""
    key = lock_key(lock)
    return {"pk": key["pk"]}, {"sk": key["sk"]}


def row_key(lock: LockName, ticket: int) -> dict[str, Any]:
    """The key of a queue row."""
    digits = str(ticket)
    if len(digits) > TICKET_DIGITS:
        raise OverflowError(f"ticket {digits} has more than {TICKET_DIGITS} digits: the lock item was tampered with")
    return {"pk": {"S": lock.entity}, "sk": {"S": f"{lock.namespace}/{digits.zfill(TICKET_DIGITS)}"}}


def holder_attribute(owner: str) -> str:
    """The attribute of the lock item that holds an owner's grant."""
    return _HOLDER + _owner_hash(owner)


def token_attribute(owner: str) -> str:
    """The attribute of the lock item that holds the fencing token of an owner's grant."""
    return _TOKEN + _owner_hash(owner)


def forced_attribute(owner: str) -> str:
    """The attribute of the lock item that records that an operator took the lock from this owner."""
    return _FORCED + _owner_hash(owner)


@lru_cache(maxsize=1_024)
def _owner_hash(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Session:
    """The record of what one execution waits for, or holds, in one fragment of its definition.

    Attributes:
        execution: the execution's ARN.
        fragment: the id of the fragment.
    """

    execution: str
    fragment: str

    def key(self) -> dict[str, Any]:
        """The session item's key."""
        return {"pk": {"S": _SESSION + self.execution}, "sk": {"S": "/" + self.fragment}}

    @classmethod
    def of_key(cls, item: Item) -> "Session":
        """The session with this key; an item will do."""
        return cls(item["pk"]["S"].removeprefix(_SESSION), item["sk"]["S"].removeprefix("/"))


@value(frozen=True, slots=True)
class Holder:
    """One unreleased grant, as stored in the lock item.

    Attributes:
        owner: the identity of the acquisition.
        fencing_token: the grant's.
        lease_until_ms: the end of the lease, table time.
        lease_ms: the length of the lease that was last written.
        since_ms: about when the lock was granted, table time.
        data: what is shown beside the holder.
        shared: whether it shares the lock.
        suspended: whether its durable execution is suspended: nothing of it runs.
        invocation_ends_ms: when the last invocation of that execution that has resumed it ends at the latest.
        invocation: the identity of that invocation.
    """

    owner: str
    fencing_token: int
    lease_until_ms: int
    lease_ms: int
    since_ms: int
    data: str | None
    shared: bool = False
    suspended: bool = False
    invocation_ends_ms: int | None = None
    invocation: str | None = None

    @property
    def renewed_ms(self) -> int:
        """When the lease was last written, by the grant or by a renewal: the upper bound of table time then."""
        return self.lease_until_ms - self.lease_ms

    @property
    def mode(self) -> Mode:
        """Whether it holds the lock exclusively or shared."""
        return mode_of(shared=self.shared)


@value(frozen=True, slots=True)
class LastRelease:
    """The last release of a lock.

    Attributes:
        fencing_token: that of the released grant.
        by: the identity of the call that released it; distinguishes two releases of one grant.
        at_ms: when, in table time.
    """

    fencing_token: int
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Forced:
    """A grant that an operator ended by force.

    Attributes:
        attribute: the attribute of the lock item that records it.
        fencing_token: that of the grant.
        by: the identity of the operator's call.
        lease_until_ms: the end of the grant's lease: until then its owner may not have noticed.
    """

    attribute: str
    fencing_token: int
    by: str
    lease_until_ms: int


@dataclass(frozen=True, slots=True)
class Decided:
    """What the lock item keeps of an operator's decision.

    Attributes:
        by: who decided.
        why: for what reason; empty if none was given.
        at_ms: about when it was written, table time.
    """

    by: str
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class LimitSet(Decided):
    """The decision that set the limit.

    Attributes:
        permits: the limit.
    """

    permits: int


@dataclass(frozen=True, slots=True)
class ForcedRelease(Decided):
    """The decision that took the lock from a holder.

    Attributes:
        owner, fencing_token: the holder's.
    """

    owner: str
    fencing_token: int


@value(frozen=True, slots=True)
class LockItem:
    """The lock item as a value.

    Attributes:
        permits_kept_until_s: until when an operator's limit is kept; each new limit is kept one second longer than the
            one before, so the value also identifies it. None without a limit.
        permits_were_kept_until_s: that of the last limit, if it was unset.
        permits_since_ms: when the execution started whose deployment's number of permits the lock has; 0 if that is not
            known; None if the users ask for their own number.
        permits_of_users: what the users asked for before the limit was set; None without a limit, or if the lock had
            no users before.
        data_left: the data that the last holder left for the next.
        now_serving: the ticket of the last grant that came out of the queue; a hint.
        last_release: None before the first one.
        forced: the grants that were ended by force, until their leases end.
        tokens_after: every grant of this item has a greater fencing token; a grant with another one is of an item that
            was deleted since. 0 if that is not known.
        limit_set: who set the last limit, when and why; kept after it was unset. None before the first limit.
        limit_unset: who unset it, when and why; None while it is set, or before the first limit.
        last_forced: who last took the lock from a holder by force, when and why; None before the first time.
        expires_at_s: from when on time to live may delete the item.
    """

    issued: int
    waiting: int
    ticket_at_ms: int
    void_up_to: int
    fencing_token: int
    permits: int
    held: int
    mean_hold_ms: int | None
    holders: tuple[Holder, ...]
    permits_kept_until_s: int | None = None
    data_left: str | None = None
    now_serving: int | None = None
    permits_were_kept_until_s: int | None = None
    permits_of_users: int | None = None
    last_release: LastRelease | None = None
    forced: tuple[Forced, ...] = ()
    permits_since_ms: int | None = None
    tokens_after: int = 0
    limit_set: LimitSet | None = None
    limit_unset: Decided | None = None
    last_forced: ForcedRelease | None = None
    expires_at_s: int | None = None

    @classmethod
    def parse(cls, item: Item) -> "LockItem":
        """Read the item; refuse that of a newer version."""
        found = integer(item["format"])
        if found != FORMAT:
            raise UnsupportedFormat(found, FORMAT)
        records = [(name, value["M"]) for name, value in item.items() if "M" in value]
        holders = [
            Holder(
                owner=stored["owner"]["S"],
                fencing_token=integer(item[_TOKEN + name.removeprefix(_HOLDER)]),
                lease_until_ms=integer(stored["leaseUntilMs"]),
                lease_ms=integer(stored["leaseMs"]),
                since_ms=integer(stored["sinceMs"]),
                data=stored["data"]["S"] if "data" in stored else None,
                shared="shared" in stored,
                suspended="suspended" in stored,
                invocation_ends_ms=integer_if_there(stored, "invocationEndsMs"),
                invocation=stored["invocation"]["S"] if "invocation" in stored else None,
            )
            for name, stored in records
            if name.startswith(_HOLDER)
        ]
        return cls(
            issued=integer(item["issued"]),
            waiting=integer(item["waiting"]),
            ticket_at_ms=integer(item["ticketAtMs"]),
            void_up_to=integer(item["voidUpTo"]),
            fencing_token=integer(item["fencingToken"]),
            permits=integer(item["permits"]),
            held=integer(item["held"]),
            mean_hold_ms=integer_if_there(item, "meanHoldMs"),
            holders=tuple(sorted(holders, key=lambda holder: holder.fencing_token)),
            permits_kept_until_s=integer_if_there(item, "permitsKeptUntil"),
            permits_were_kept_until_s=integer_if_there(item, "permitsWereKeptUntil"),
            permits_of_users=integer_if_there(item, "permitsOfUsers"),
            data_left=item["dataLeft"]["S"] if "dataLeft" in item else None,
            now_serving=integer_if_there(item, "nowServing"),
            last_release=_last_release(item),
            forced=tuple(
                Forced(name, integer(stored["token"]), stored["by"]["S"], integer(stored["leaseUntilMs"]))
                for name, stored in records
                if name.startswith(_FORCED)
            ),
            permits_since_ms=integer_if_there(item, "permitsSinceMs"),
            tokens_after=_tokens_after(item),
            limit_set=_limit_set(item),
            limit_unset=_limit_unset(item),
            last_forced=_last_forced(item),
            expires_at_s=integer_if_there(item, "expiresAt"),
        )

    @classmethod
    def parse_for(cls, owner: str, item: Item) -> "LockItem":
        """Read the item for who holds the lock, or waits for it, and renews, releases or leaves.

        Of the item of a newer version only what these requests write counts, which a new format keeps: the owner's own
        grant, and the records of releases. Nobody else gets the lock by it.
        """
        if integer(item["format"]) == FORMAT:
            return cls.parse(item)
        own = {name: item[name] for name in (holder_attribute(owner), token_attribute(owner)) if name in item}
        kept = {name: item[name] for name in _KEPT_BY_NEW_FORMATS if name in item}
        forced = {name: value for name, value in item.items() if name.startswith(_FORCED)}
        return cls.parse({**_UNKNOWN, **kept, **forced, **(own if len(own) == 2 else {})})

    @property
    def ahead_of_the_last(self) -> int:
        """How many waiters are before the last ticket: an upper bound from the item alone; exact only with one permit.

        ``waiting`` alone is too high: waiters that crashed remain counted until the queue is empty.
        """
        counted = max(0, self.waiting - 1)
        return counted if self.now_serving is None else min(counted, max(0, self.issued - self.now_serving - 1))

    def room(self, mode: Mode, *, without: Sequence[Holder] = ()) -> int:
        """How many more may hold the lock in this mode once the given holders are removed."""
        others = [holder for holder in self.holders if holder not in without]
        if not all(mode.fits_beside(holder.mode) for holder in others):
            return 0
        return mode.capacity(self.permits) - len(others)

    def leaves_room(self, mode: Mode) -> bool:
        """Whether there are waiters, and room for another holder in this mode."""
        return self.waiting > 0 and self.room(mode) > 0

    @property
    def permits_are_set(self) -> bool:
        """Whether an operator has set the limit; it then replaces the number of permits that the users ask for."""
        return self.permits_kept_until_s is not None

    def freed_by(self, fencing_token: int) -> str | None:
        """The identity of the call that released a grant; None if the item does not say.

        Each release overwrites the record of the one before. A forced release is recorded separately and kept.
        """
        last = self.last_release
        if last is not None and last.fencing_token == fencing_token:
            return last.by
        return next((each.by for each in self.forced if each.fencing_token == fencing_token), None)

    def holder(self, owner: str) -> Holder | None:
        """The grant of ``owner``, if it has one."""
        return next((holder for holder in self.holders if holder.owner == owner), None)


_KEPT_BY_NEW_FORMATS = ("lastRelease", "tokensAfter", "fencingToken", "meanHoldMs", "dataLeft")
# No one waits and no permit is free, so nothing is concluded from it.
_UNKNOWN: Item = {
    "format": {"N": str(FORMAT)},
    **{name: {"N": "0"} for name in ("issued", "waiting", "ticketAtMs", "voidUpTo", "fencingToken", "permits", "held")},
}


@value(frozen=True, slots=True)
class Row:
    """A queue row as a value.

    Attributes:
        session: where a waiter that parks stores its task token; None for a waiter that only polls.
        shared: whether it will share the lock.
        permits: the number of permits that it asks for; None if an earlier version has written the row.
        permits_since_ms: None if that is its own number; of a deployment's, as in ``Claim``.
    """

    ticket: int
    owner: str
    lease_until_ms: int
    created_at_ms: int
    session: Session | None = None
    shared: bool = False
    permits: int | None = None
    permits_since_ms: int | None = None

    @property
    def mode(self) -> Mode:
        """Whether it will hold the lock exclusively or shared."""
        return mode_of(shared=self.shared)

    @classmethod
    def parse(cls, item: Item) -> "Row":
        """Read a queue row."""
        return cls(
            ticket=int(item["sk"]["S"].rpartition("/")[2]),
            owner=item["owner"]["S"],
            lease_until_ms=integer(item["leaseUntilMs"]),
            created_at_ms=integer(item["createdAtMs"]),
            session=Session.of_key(item["session"]["M"]) if "session" in item else None,
            shared="shared" in item,
            permits=integer_if_there(item, "permits"),
            permits_since_ms=integer_if_there(item, "permitsSinceMs"),
        )


def _tokens_after(item: Item) -> int:
    after = integer_if_there(item, "tokensAfter") or 0
    # An item that was created without it gets it at a later use: then it is the time of that use, and says nothing.
    return after if after <= integer(item["fencingToken"]) else 0


def _last_release(item: Item) -> LastRelease | None:
    if "lastRelease" not in item:
        return None
    stored = item["lastRelease"]["M"]
    return LastRelease(integer(stored["token"]), stored["by"]["S"], integer(stored["atMs"]))


def _limit_set(item: Item) -> LimitSet | None:
    if "limitSet" not in item:
        return None
    stored = item["limitSet"]["M"]
    return LimitSet(**_decided(stored), permits=integer(stored["permits"]))


def _limit_unset(item: Item) -> Decided | None:
    return Decided(**_decided(item["limitUnset"]["M"])) if "limitUnset" in item else None


def _last_forced(item: Item) -> ForcedRelease | None:
    if "lastForced" not in item:
        return None
    stored = item["lastForced"]["M"]
    return ForcedRelease(**_decided(stored), owner=stored["owner"]["S"], fencing_token=integer(stored["token"]))


def _decided(stored: Item) -> dict[str, Any]:
    return {"by": stored["by"]["S"], "why": stored["why"]["S"], "at_ms": integer(stored["atMs"])}


def is_lock_item(item: Item) -> bool:
    """Whether an item of a lock is the lock item, not a queue row."""
    return bool(item["sk"]["S"].endswith("/"))


def integer_if_there(item: Item, name: str) -> int | None:
    """A number of an item; None if it does not have it."""
    return integer(item[name]) if name in item else None


def session_expires_at_s(lease_until_ms: int) -> int:
    """When time to live may delete the session of a lease, in seconds since the epoch."""
    return lease_until_ms // 1_000 + _SESSION_OUTLIVES_ITS_LEASE_S
