"""A client's defaults, and the arguments of each acquisition, checked and completed. No I/O."""

import math
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, fields
from secrets import token_hex
from typing import Any, Generic, TypedDict, TypeVar

from ticketlock._checks import Refusals, Seconds, boolean, callback, duration_ms, text
from ticketlock._decorating import Decorator, runs_when_called
from ticketlock._names import AnyName, text_of
from ticketlock._value import value
from ticketlock.client._pace import PaceBounds
from ticketlock.errors import InvalidLockRequest
from ticketlock.locks import MAX_LEASE_MS, MIN_LEASE_MS, Claim, LockName, Position, owner_id, record_wait_ms
from ticketlock.wire import briefly

L = TypeVar("L")

Told = Callable[[Any], object]
Entity = AnyName | LockName
"""What to lock: text, or an id with one text (a whole number is its digits); or the name of a lock."""
EntityKey = str | Callable[..., Entity]

_OWNER_NAME_BYTES = 512
_HOUR_MS = 3_600_000
_NO_LISTS = (str, memoryview, Mapping)
_WAIT = "record_wait is how many seconds to wait at most, 0 not to wait"
_LEASE = "lease is for how many seconds a lock outlives a holder that does not renew it"
_OF_OTHER_LOCKS = {
    **dict.fromkeys(("blocking", "blocking_timeout", "retry_timeout", "wait", "wait_timeout"), _WAIT),
    **dict.fromkeys(("auto_release_time", "expire", "lease_duration", "ttl"), _LEASE),
    **dict.fromkeys(("auto_renewal", "auto_extend"), "heartbeat is whether the lease is renewed in the background"),
    **dict.fromkeys(("poll_interval", "sleep"), "check_every of the client is how often a waiter polls"),
    **dict.fromkeys(("identifier", "token"), "data is what others see of a holder; fencing_token tells holders apart"),
    "max_leases": "permits is how many may hold a lock at once",
    "timeout": f"{_WAIT}; {_LEASE}",
}


def _entity_of(given: Any) -> str | LockName | None:
    return given if isinstance(given, LockName) else text_of(given)


SERIALIZED: Decorator[str | LockName] = Decorator(
    name="serialized",
    key="key",
    key_of=_entity_of,
    refused=InvalidLockRequest,
    for_threads="ticketlock.LockClient",
    for_tasks="ticketlock.aio.LockClient",
    by_hand="acquire",
    run="without the lock",
)


class AcquireOptions(TypedDict, Generic[L], total=False):
    """The options of all that acquires; ``LockClient.acquire`` says what they mean.

    For functions of your own that pass them on: ``**options: Unpack[AcquireOptions[Lease]]``.
    """

    lease: Seconds | None
    data: str | None
    permits: int
    shared: bool
    reentrant: bool
    heartbeat: bool | None
    on_lost: Callable[[L], object] | None
    on_danger: Callable[[L], object] | None
    danger: Seconds | None
    on_wait: Callable[[Position], object] | None
    wait_if_closed: bool
    hold_at_least: Seconds | None


class SerializedOptions(AcquireOptions[L], Generic[L], total=False):
    """Those of ``serialized``."""

    namespace: str | None
    record_wait: Seconds | None


@value(frozen=True, slots=True)
class Acquisition:
    """One acquisition: the caller's arguments, checked and completed.

    Attributes:
        claim: the claim.
        has_own_identity: whether the client generated its owner, so that no earlier request has used it.
        record_wait_ms: None waits for ever.
        danger_ms: how long before the deadline ``on_danger`` is called; None for a quarter of the lease.
        waits_if_closed: whether it waits for a lock that an operator has closed.
        hold_at_least_ms: for how long the lock stays held after its grant, if it is released earlier.
        heartbeat: whether its lease is renewed in the background.
        on_lost, on_danger, on_wait: the caller's callbacks.
    """

    claim: Claim
    _: KW_ONLY
    has_own_identity: bool
    record_wait_ms: int | None = None
    waits_if_closed: bool = False
    danger_ms: int | None = None
    hold_at_least_ms: int = 0
    heartbeat: bool = False
    on_lost: Told | None = None
    on_danger: Told | None = None
    on_wait: Told | None = None


@value(frozen=True, slots=True, kw_only=True)
class AcquireArguments:
    """The arguments of one acquisition, as the caller passed them."""

    record_wait: Seconds | None = None
    lease: Seconds | None = None
    data: str | None = None
    permits: int = 1
    shared: bool = False
    owner: str | None = None
    heartbeat: bool | None = None
    on_lost: Told | None = None
    on_danger: Told | None = None
    danger: Seconds | None = None
    reentrant: bool = False
    on_wait: Told | None = None
    wait_if_closed: bool = False
    hold_at_least: Seconds | None = None


_OPTIONS = frozenset({"namespace", *(each.name for each in fields(AcquireArguments))})


class Defaults:
    """The client's defaults."""

    def __init__(
        self,
        *,
        namespace: str,
        lease: Seconds,
        record_wait: Seconds,
        owner_name: str | None,
        heartbeat: bool,
        check_every: tuple[Seconds, Seconds],
        on_wait: Told | None,
        awaits_callbacks: bool = False,
    ) -> None:
        refusals = Refusals()
        self._namespace = refusals.of(_namespace, namespace)
        self._lease_ms = refusals.of(duration_ms, "lease", lease, MIN_LEASE_MS, MAX_LEASE_MS)
        self._record_wait_ms = refusals.of(record_wait_ms, "record_wait", record_wait)
        self.bounds = refusals.of(_bounds, check_every)
        name = owner_name if owner_name is not None else f"{socket.gethostname()}:{os.getpid()}"
        self.owner_name = refusals.of(text, "owner_name", name, _OWNER_NAME_BYTES)
        self._heartbeat = refusals.of(boolean, "heartbeat", heartbeat)
        self._told = callback if awaits_callbacks else _plain
        self._on_wait = refusals.of(_plain, "on_wait", on_wait)
        refusals.raise_all()

    def lock(self, entity: Entity, namespace: str | None) -> LockName:
        """The name of a lock."""
        if isinstance(entity, LockName):
            if namespace is not None:
                raise InvalidLockRequest("namespace", namespace, "no namespace: the LockName has one")
            return entity
        given: Any = entity
        try:
            return LockName(given, self._namespace if namespace is None else namespace)
        except InvalidLockRequest as error:
            raise briefly(error)  # noqa: B904  # the same error

    def lease_ms(self, lease: Seconds | None) -> int:
        """The length of a lease, in milliseconds."""
        return self._lease_ms if lease is None else duration_ms("lease", lease, MIN_LEASE_MS, MAX_LEASE_MS)

    def wait_ms(self, record_wait: Seconds | None) -> int | None:
        """The length of a record wait, in milliseconds; None for ever."""
        return self._record_wait_ms if record_wait is None else record_wait_ms("record_wait", record_wait)

    def ask(self, lock: LockName, asked: AcquireArguments) -> Acquisition:
        """Check and complete one acquisition."""
        try:
            lease_ms = self.lease_ms(asked.lease)
            boolean("reentrant", asked.reentrant)
            heartbeat = self._heartbeat if asked.heartbeat is None else boolean("heartbeat", asked.heartbeat)
            claim = Claim(
                lock,
                owner_id(asked.owner) if asked.owner is not None else f"{self.owner_name}/{token_hex(16)}",
                lease_ms,
                permits=asked.permits,
                data=asked.data,
                shared=asked.shared,
            )
            return Acquisition(
                claim,
                has_own_identity=asked.owner is None,
                record_wait_ms=self.wait_ms(asked.record_wait),
                waits_if_closed=boolean("wait_if_closed", asked.wait_if_closed),
                danger_ms=None if asked.danger is None else _danger_ms(asked.danger, lease_ms, heartbeat=heartbeat),
                hold_at_least_ms=0 if asked.hold_at_least is None else _hold_ms(asked.hold_at_least, lease_ms),
                heartbeat=heartbeat,
                on_lost=self._told("on_lost", asked.on_lost),
                on_danger=self._told("on_danger", asked.on_danger),
                on_wait=_plain("on_wait", asked.on_wait) or self._on_wait,
            )
        except InvalidLockRequest as error:
            raise briefly(error)  # noqa: B904  # the same error

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options of ``acquire`` before it is called with them."""
        refuse_unknown(options)
        lock = self.lock("-", options.get("namespace"))
        self.ask(lock, AcquireArguments(**{name: value for name, value in options.items() if name != "namespace"}))

    def in_one_order(self, entities: Iterable[Entity], namespace: str | None) -> list[LockName]:
        """The names of several locks, in the order in which all callers take them."""
        # Bytes would be a list of numbers, and of a mapping only the keys would be locked.
        if isinstance(entities, _NO_LISTS) or not isinstance(entities, Iterable) or _is_of_bytes(entities):
            raise InvalidLockRequest("entities", entities, "a list of entities")
        locks = []
        # No comprehension, which would be a frame of tracebacks.
        for each in entities:
            locks.append(self.lock(each, None if isinstance(each, LockName) else namespace))
        locks.sort(key=lambda lock: (lock.entity.encode(), lock.namespace.encode()))
        if not locks or len(set(locks)) < len(locks):
            raise InvalidLockRequest("entities", [lock.entity for lock in locks], "at least one, each once")
        return locks


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Refuse keyword arguments that ``acquire`` does not have.

    Raises:
        TypeError: there is one; it names ours: what other locks call so, or the one that is spelt most alike.
    """
    for name in sorted(options.keys() - _OPTIONS):
        # Few programs need it.
        from difflib import get_close_matches

        alike = [f"did you mean {each!r}?" for each in get_close_matches(name, _OPTIONS, 1)]
        ours = [_OF_OTHER_LOCKS[name]] if name in _OF_OTHER_LOCKS else alike
        raise TypeError("; ".join([f"acquire() got an unexpected keyword argument {name!r}", *ours]))


def check_does_not_wait(options: Mapping[str, Any]) -> None:
    """Refuse a record wait for ``try_acquire``.

    Raises:
        TypeError: there is one.
    """
    if "record_wait" in options:
        raise TypeError("try_acquire() does not wait, and takes no record_wait: acquire(record_wait=...) waits")


def rest_s(record_wait_ms: int | None, waited_ms: int) -> float:
    """The remaining record wait, in seconds."""
    return math.inf if record_wait_ms is None else max(0, record_wait_ms - waited_ms) / 1_000


def check_arguments(key: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that would give each call its own lock, or let all calls run at once; for ``serialized`` only."""
    SERIALIZED.check_key(key)
    check_no_owner(options)


def check_no_owner(options: Mapping[str, Any]) -> None:
    """Refuse an owner for what is acquired again and again."""
    if options.get("owner") is not None:
        allowed = "none: calls with one owner are one acquisition, and would run at once; each gets an owner of its own"
        raise InvalidLockRequest("owner", options["owner"], allowed)


def close_wait_s(name: str, given: Seconds) -> float:
    """For how long a client that is closed waits for open blocks, in seconds."""
    wait_ms = record_wait_ms(name, given)
    return math.inf if wait_ms is None else wait_ms / 1_000


def _namespace(given: str) -> str:
    return LockName("-", given).namespace


def _bounds(check_every: Any) -> PaceBounds:
    if not isinstance(check_every, tuple | list) or len(check_every) != 2:
        raise InvalidLockRequest("check_every", check_every, "two durations, the shortest and the longest")
    shortest, longest = (duration_ms("check_every", each, 1, _HOUR_MS) for each in check_every)
    return PaceBounds(shortest, max(shortest, longest))


def _danger_ms(danger: Seconds, lease_ms: int, *, heartbeat: bool) -> int:
    danger_ms = duration_ms("danger", danger, 0, lease_ms)
    most_ms = lease_ms * 3 // 4
    if heartbeat and danger_ms > most_ms:
        allowed = f"up to {most_ms / 1_000} s, three quarters of the lease: the heartbeat renews it before that"
        raise InvalidLockRequest("danger", danger, allowed)
    return danger_ms


def _hold_ms(hold_at_least: Seconds, lease_ms: int) -> int:
    # A lease is never shortened: a shorter time would be as long as the lease.
    return duration_ms("hold_at_least", hold_at_least, lease_ms, MAX_LEASE_MS)


def _is_of_bytes(given: Any) -> bool:
    """Whether it has a buffer of single bytes, as bytes and some arrays have."""
    try:
        with memoryview(given) as buffer:
            return buffer.itemsize == 1
    except (BufferError, TypeError, ValueError):
        return False


def _plain(name: str, given: Any) -> Told | None:
    """Check a callback that no one awaits."""
    if given is not None and not runs_when_called(given):
        raise InvalidLockRequest(name, given, "a plain function: no one awaits what it returns")
    checked: Told | None = callback(name, given)
    return checked
