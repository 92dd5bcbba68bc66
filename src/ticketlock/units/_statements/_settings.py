"""What a unit begins with: its terms, checked once for threads and tasks; how it is saved, and its steps.

A step that is retried after its save adds nothing: the conditional write that saves the unit records its steps too, so
a step is in the record exactly if its statements are.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, get_args

from ticketlock._checks import Refusals, boolean, duration_ms, name_text
from ticketlock.errors import InvalidLockRequest, InvalidUnitRequest, all_at_once
from ticketlock.units._records import Marks, Payload, UnitRecord, new_id
from ticketlock.units._statements._reading import LEVELS, READ_LOCK, SERIALIZABLE, Isolation
from ticketlock.wire import Clocks

NAME_BYTES = 1_024
"""The longest name of a unit, of a step and of an owner."""
NAMES_ARE_KEPT_S = 30 * 24 * 3_600
MOST_STEPS = 100
"""Steps that the record of a unit keeps at most."""
_DIGEST_BYTES = 16

Engine = Literal["native", "marked"]

_LONGEST_TIMEOUT_MS = 900_000
_SHORTEST_KEEP_MS = 1_000
_DAY_S = 24 * 3_600
_LONGEST_KEEP_MS = 366 * _DAY_S * 1_000


@dataclass(frozen=True, slots=True)
class SavedStep:
    """What one process adds to a saved unit, for example a state of a workflow; each retry is the same step."""

    name: str

    @property
    def digest(self) -> bytes:
        """128 bits for the record, whatever the length of the name."""
        return hashlib.sha256(self.name.encode()).digest()[:_DIGEST_BYTES]


def with_step(saved: frozenset[bytes], step: SavedStep | None) -> frozenset[bytes]:
    return saved if step is None else saved | {step.digest}


def check_room(saved: frozenset[bytes], step: SavedStep | None) -> None:
    """Refuse one step too many: to drop an earlier one would let its retry count twice."""
    if step is not None and len(with_step(saved, step)) > MOST_STEPS:
        allowed = f"one of the unit's {MOST_STEPS} steps: it records no more; resume it without a step"
        raise InvalidUnitRequest("step", step.name, allowed)


class HeldLock(Protocol):
    """What a unit is committed under: a lease of ``ticketlock``, for example."""

    def condition_check(self) -> dict[str, Any]: ...


Under = Callable[..., HeldLock]
"""Makes the lock of a call from the arguments of the call."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms with which a unit begins.

    Attributes:
        born_ms: when its first try began, by a wall clock; later tries keep it.
        name: only one unit of a name is ever committed.
        engine: how it is committed; None: natively if it fits.
        saved: the record of the saved unit that it continues; None for a new unit.
        step: which step of that unit it is; None for none.
        names_kept_s: for how long the receipt of its name is kept.
        marks_together: whether it marks, and finishes, its items in transactions.
        is_outside: of a read outside of units, which has no end.
        payload: what must be the same in each call of its name; None to compare nothing.
    """

    unit: str
    born_ms: int
    timeout_ms: int
    isolation: Isolation = SERIALIZABLE
    name: str | None = None
    under: HeldLock | None = None
    engine: Engine | None = None
    saved: UnitRecord | None = None
    step: SavedStep | None = None
    names_kept_s: int = NAMES_ARE_KEPT_S
    marks_together: bool = False
    is_outside: bool = False
    payload: Payload | None = None

    @property
    def id(self) -> str:
        """The id that users know: the same for every process that resumes the unit."""
        return self.unit if self.saved is None else self.saved.unit

    @property
    def repeats_step(self) -> bool:
        """Whether its step was saved before, and the unit is still pending."""
        record, step = self.saved, self.step
        return record is not None and record.state == "pending" and step is not None and step.digest in record.steps

    @property
    def beside(self) -> int:
        """How many actions its commit has in addition to those of its items."""
        return (self.name is not None) + (self.saved is not None) + (self.under is not None)


def check_of(under: HeldLock) -> Mapping[str, Any]:
    """The check that a lock is held, made by the lock."""
    found: Any = under.condition_check()
    only = found.get("ConditionCheck") if isinstance(found, Mapping) and len(found) == 1 else None
    wanted = {"TableName": str, "Key": Mapping, "ConditionExpression": str}
    if not isinstance(only, Mapping) or not all(isinstance(only.get(name), kind) for name, kind in wanted.items()):
        allowed = "a held lock, whose `condition_check()` is the ConditionCheck of a TransactWriteItems"
        raise InvalidUnitRequest("under", found, allowed)
    check: Mapping[str, Any] = found
    return check


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """How a unit is saved.

    Attributes:
        ms: for how long; afterwards any process may roll it back.
        owner: the owner with whose end the unit is rolled back; None for none.
        tries: how many times its coordinator has tried to save it, this one included.
    """

    ms: int
    owner: str | None = None
    tries: int = 1

    @classmethod
    def of(cls, keep_for: Any, owner: Any) -> "SaveOptions":
        """From the arguments of a save."""
        keep_ms = duration_ms("keep_for", keep_for, _SHORTEST_KEEP_MS, _LONGEST_KEEP_MS, InvalidUnitRequest)
        return cls(keep_ms, None if owner is None else check_owner(owner))


def check_owner(owner: Any) -> str:
    return name_text("owner", owner, NAME_BYTES, InvalidUnitRequest)


@contextmanager
def as_a_unit_request() -> Iterator[None]:
    """Within the block a setting may be refused: ``InvalidUnitRequest`` replaces ``InvalidLockRequest``."""
    try:
        yield
    except InvalidLockRequest as error:
        raise all_at_once(InvalidUnitRequest, [error]) from error.__cause__


@dataclass(frozen=True, slots=True)
class UnitsSettings:
    """The arguments of a ``Units``; the time-out is for units that have none of their own, in seconds."""

    units_table: str
    marks: Marks
    timeout: Any
    names_kept_s: int = NAMES_ARE_KEPT_S
    mark_together: bool = False
    finish_behind: bool = False

    @classmethod
    def of(
        cls, refusals: Refusals, units_table: str, prefix: Any, timeout: Any, keep_names_for: Any, **choices: bool
    ) -> "UnitsSettings":
        """From the arguments of a ``Units``."""
        marks, kept_s = refusals.of(Marks, prefix), refusals.of(keeping_names, keep_names_for)
        return refusals.of(cls, units_table, marks, timeout, kept_s, **choices)

    def __post_init__(self) -> None:
        refusals = Refusals()
        refusals.of(_timeout_ms, self.timeout)
        for field in ("mark_together", "finish_behind"):
            refusals.of(boolean, field, getattr(self, field), InvalidUnitRequest)
        refusals.raise_all(InvalidUnitRequest)

    def terms(
        self,
        clocks: Clocks,
        *,
        name: Any = None,
        isolation: Any = SERIALIZABLE,
        under: Any = None,
        timeout: Any = None,
        engine: Any = None,
        step: Any = None,
    ) -> Terms:
        """The terms of a new unit, or of a new coordinator of a saved one."""
        if name is not None:
            name = name_text("name", name, NAME_BYTES, InvalidUnitRequest)
        if not isinstance(isolation, Isolation):
            raise InvalidUnitRequest("isolation", isolation, LEVELS)
        if under is not None and not callable(getattr(under, "condition_check", None)):
            raise InvalidUnitRequest("under", under, "a held lock: a Lease or a Fence of ticketlock, for example")
        if engine not in (None, *get_args(Engine)):
            raise InvalidUnitRequest("engine", engine, '"native", "marked", or None')
        if engine == "native" and isolation is READ_LOCK:
            raise InvalidUnitRequest("engine", engine, '"marked" or None with READ_LOCK')
        timeout_ms = _timeout_ms(self.timeout if timeout is None else timeout)
        born_ms = clocks.read().wall_ms
        return Terms(
            unit=new_id(born_ms),
            born_ms=born_ms,
            timeout_ms=timeout_ms,
            isolation=isolation,
            name=name,
            under=under,
            engine=engine,
            step=None if step is None else SavedStep(name_text("step", step, NAME_BYTES, InvalidUnitRequest)),
            names_kept_s=self.names_kept_s,
            marks_together=self.mark_together,
        )

    def terms_outside(self, clocks: Clocks, isolation: Any) -> Terms:
        """Those of a read outside units, which has no end that would take marks off."""
        if isolation is READ_LOCK:
            raise InvalidUnitRequest("isolation", isolation, "another level outside a unit")
        return replace(self.terms(clocks, isolation=isolation), is_outside=True)

    def until_ms(self, clocks: Clocks, timeout: Any) -> int | None:
        """When a time-out ends, by the local clock; None for none."""
        return None if timeout is None else clocks.read().local_ms + _timeout_ms(timeout)


def keeping_names(keep_names_for: Any) -> int:
    """For how many seconds the receipts of names are kept: a day at least, since TTL may delete days later anyway."""
    least_ms = _DAY_S * 1_000
    return duration_ms("keep_names_for", keep_names_for, least_ms, _LONGEST_KEEP_MS, InvalidUnitRequest) // 1_000


_timeout_ms: Callable[[Any], int] = partial(
    duration_ms, "timeout", least_ms=0, most_ms=_LONGEST_TIMEOUT_MS, refused=InvalidUnitRequest
)
