"""What stands in the table: keys, attribute names, and the items as values.

One table: ``pk`` (string), ``sk`` (string), time to live on ``expiresAt`` (whole epoch seconds). Every other time is
in epoch milliseconds and says so in its name.

    lock item   pk = entity   sk = namespace + "/"
    queue row   pk = entity   sk = namespace + "/" + ticket, 38 digits

The slash ends the namespace, so that ``begins_with(sk, "ns/")`` reads the lock item first, then its rows in ticket
order, and nothing else. Session items have a sort key that starts with a slash, which no namespace does, so no entity
name reaches them:

    session item   pk = "session#" + execution ARN   sk = "/" + fragment of the definition

A holder is two attributes of the lock item, so that one expression works whether the item exists or not: a map, and
beside it the fencing token, which the granting update computes on the server.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock.errors import UnsupportedFormat
from ticketlock.locks._modes import Mode, mode_of
from ticketlock.locks._names import LockName
from ticketlock.wire._attributes import Item, integer

FORMAT = 1
TICKET_DIGITS = 38
_HOLDER = "holder:"
_TOKEN = "token:"
_FORCED = "forced:"
_SESSION = "session#"


def lock_key(lock: LockName) -> dict[str, Any]:
    """The key of a lock's item."""
    return {"pk": {"S": lock.entity}, "sk": {"S": lock.namespace + "/"}}


def lock_prefix(lock: LockName) -> tuple[dict[str, Any], dict[str, Any]]:
    """The partition of a lock, and what the sort keys of its item and its rows begin with."""
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
    """The attribute of the lock item that tells an owner from whom an operator took the lock."""
    return _FORCED + _owner_hash(owner)


def _owner_hash(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Session:
    """What one execution waits for, or holds, in one of its definition's fragments.

    Attributes:
        execution: the execution's ARN.
        fragment: which of the definition's locks it is.
    """

    execution: str
    fragment: str

    def key(self) -> dict[str, Any]:
        """The session item's key."""
        return {"pk": {"S": _SESSION + self.execution}, "sk": {"S": "/" + self.fragment}}

    @classmethod
    def of_key(cls, item: Item) -> "Session":
        """The session that a key, or an item with it, belongs to."""
        return cls(item["pk"]["S"].removeprefix(_SESSION), item["sk"]["S"].removeprefix("/"))


@dataclass(frozen=True, slots=True)
class Holder:
    """One unreleased grant, as the lock item has it."""

    owner: str
    fencing_token: int
    lease_until_ms: int
    since_ms: int
    data: str | None
    shared: bool = False

    @property
    def mode(self) -> Mode:
        """How it holds the lock."""
        return mode_of(shared=self.shared)


@dataclass(frozen=True, slots=True)
class LastRelease:
    """Whose grant was released last, and by whom.

    Attributes:
        fencing_token: of the grant.
        by: the identity under which it was released: what tells a release from another one of the same grant.
    """

    fencing_token: int
    by: str


@dataclass(frozen=True, slots=True)
class Forced:
    """A grant that an operator ended by force.

    Attributes:
        attribute: where it stands in the lock item.
        fencing_token: of the grant.
        by: the identity under which the operator released it.
        lease_until_ms: until when its owner may not have learned of it.
    """

    attribute: str
    fencing_token: int
    by: str
    lease_until_ms: int


@dataclass(frozen=True, slots=True)
class LockItem:
    """The lock item as a value.

    Attributes:
        permits_kept_until_s: until when an operator's limit is kept, one second longer with each that is set; None
            where none was set.
        permits_were_kept_until_s: the same of the last limit, where it was unset.
        permits_of_users: what the users asked for before the limit was set; None where none was set, or none had asked.
        data_left: what the last holder left for the next.
        now_serving: the ticket of the last grant that came out of the queue; advice.
        last_release: None before the first one.
        forced: the grants that were ended by force, as long as their leases run.
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

    @classmethod
    def parse(cls, item: Item) -> "LockItem":
        """Read the item.

        Raises:
            UnsupportedFormat: a newer version wrote it.
        """
        stored = integer(item["format"])
        if stored != FORMAT:
            raise UnsupportedFormat(stored, FORMAT)
        holders = [
            Holder(
                owner=value["M"]["owner"]["S"],
                fencing_token=integer(item[_TOKEN + name.removeprefix(_HOLDER)]),
                lease_until_ms=integer(value["M"]["leaseUntilMs"]),
                since_ms=integer(value["M"]["sinceMs"]),
                data=value["M"]["data"]["S"] if "data" in value["M"] else None,
                shared="shared" in value["M"],
            )
            for name, value in item.items()
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
            mean_hold_ms=_integer_if_there(item, "meanHoldMs"),
            holders=tuple(sorted(holders, key=lambda holder: holder.fencing_token)),
            permits_kept_until_s=_integer_if_there(item, "permitsKeptUntil"),
            permits_were_kept_until_s=_integer_if_there(item, "permitsWereKeptUntil"),
            permits_of_users=_integer_if_there(item, "permitsOfUsers"),
            data_left=item["dataLeft"]["S"] if "dataLeft" in item else None,
            now_serving=_integer_if_there(item, "nowServing"),
            last_release=_last_release(item),
            forced=tuple(
                Forced(name, integer(value["M"]["token"]), value["M"]["by"]["S"], integer(value["M"]["leaseUntilMs"]))
                for name, value in item.items()
                if name.startswith(_FORCED)
            ),
        )

    @property
    def ahead_of_the_last(self) -> int:
        """How many stand before the last ticket, as far as the item tells; no fewer than there are, but for permits.

        The count alone would not do: it keeps those that died in the queue until nobody waits any more.
        """
        counted = max(0, self.waiting - 1)
        return counted if self.now_serving is None else min(counted, max(0, self.issued - self.now_serving - 1))

    def room(self, mode: Mode, *, without: Sequence[Holder] = ()) -> int:
        """How many more may hold it in this mode, once the given holders are removed."""
        others = [holder for holder in self.holders if holder not in without]
        if not all(mode.fits_beside(holder.mode) for holder in others):
            return 0
        return mode.capacity(self.permits) - len(others)

    @property
    def permits_are_set(self) -> bool:
        """Whether an operator has set the limit: then it does not matter what the users ask for."""
        return self.permits_kept_until_s is not None

    def freed_by(self, fencing_token: int) -> str | None:
        """Under which identity a grant was released, as far as that is told.

        Each release leaves a trace, until the next one does; force leaves another one, which stays.
        """
        last = self.last_release
        if last is not None and last.fencing_token == fencing_token:
            return last.by
        return next((each.by for each in self.forced if each.fencing_token == fencing_token), None)

    def holder(self, owner: str) -> Holder | None:
        """The grant of ``owner``, if it has one."""
        return next((holder for holder in self.holders if holder.owner == owner), None)


@dataclass(frozen=True, slots=True)
class Row:
    """A queue row as a value.

    Attributes:
        session: where a waiter that can be called leaves its callback task's token; None of any other.
        shared: whether it waits to share the lock.
    """

    ticket: int
    owner: str
    lease_until_ms: int
    created_at_ms: int
    session: Session | None = None
    shared: bool = False

    @property
    def mode(self) -> Mode:
        """How it is to hold the lock."""
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
        )


def _last_release(item: Item) -> LastRelease | None:
    if "lastRelease" not in item:
        return None
    stored = item["lastRelease"]["M"]
    return LastRelease(integer(stored["token"]), stored["by"]["S"])


def is_lock_item(item: Item) -> bool:
    """Whether an item of a lock's partition is the lock item, not a row."""
    return bool(item["sk"]["S"].endswith("/"))


def _integer_if_there(item: Item, name: str) -> int | None:
    return integer(item[name]) if name in item else None
