"""The errors of ticketlock, one tree.

    TicketLockError
    ├── InvalidLockRequest (ValueError)     the request is malformed; nothing was written
    ├── TaskNotAllowed                      the work named in the request is not one of the targets
    ├── PermitsMismatch                     the lock exists with another number of permits
    ├── UnsupportedFormat                   a newer version wrote the lock, or the record
    ├── RecordWaitExceeded (TimeoutError)   the record wait ended before the caller got the lock
    ├── EventBudgetExceeded                 an execution came near the end of its event history
    ├── LockLost                            the lease ended, or another owner holds the lock
    ├── AlreadyHeld (RuntimeError)          the caller is in a block that holds the lock
    ├── ClientClosed (RuntimeError)         the client was closed, or belongs to another process or event loop
    ├── UnitError                           an error of a unit of work
    │   ├── InvalidUnitRequest (ValueError)  a statement, a key or a setting is malformed; nothing was written
    │   ├── ConditionFailed                 a statement's condition does not hold
    │   ├── UnitConflict                    what the unit has read has changed: run it again
    │   ├── UnitContended (TimeoutError)    another unit held an item until the time-out: run it again
    │   ├── UnitRolledBack                  it is rolled back, for example by an older unit: run it again
    │   ├── UnitTooLarge                    more statements or data than a unit may have
    │   ├── ItemTooLarge                    an item would be larger than DynamoDB allows
    │   ├── CommittedUnfinished             it is committed, and DynamoDB refuses new values: do not run it again
    │   ├── UnitFinished (RuntimeError)     the unit was used after its end
    │   ├── UnitChanged                     another process has resumed the saved unit since
    │   └── UnitForgotten                   another process has ended it, and its record is gone
    └── TableError                          the table could not be used
        ├── TableNotFound                   no such table
        ├── TableRefused                    credentials, permissions or the request were refused
        ├── RequestNotApplied               the retries have failed; nothing was written
        └── OutcomeUnknown                  the retries have failed; a request may or may not have been applied

The class names are also wire format: they are the error names of the state machine.
"""

import collections.abc
import datetime
import json
import math
import typing

__all__ = [
    "AlreadyHeld",
    "ClientClosed",
    "CommittedUnfinished",
    "ConditionFailed",
    "EventBudgetExceeded",
    "InvalidLockRequest",
    "InvalidUnitRequest",
    "ItemTooLarge",
    "LockLost",
    "OutcomeUnknown",
    "PermitsMismatch",
    "RecordWaitExceeded",
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
]

E = typing.TypeVar("E", bound="TicketLockError")

_SHOWN = 300
_HOLDERS_NAMED = 3
_ITEMS_NAMED = 5


class TicketLockError(Exception):
    """The root of every error that ticketlock raises. Each can be pickled, so it passes through pools of processes."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are unpickled by a call with `args`, which is the message alone.
        return _as_it_was, (type(self), self.args, vars(self))


class InvalidLockRequest(TicketLockError, ValueError):
    """A request is malformed: the message says which field, its value and what is allowed.

    Attributes:
        field: where in the request, for example ``task.input``; of several, the first.
        value: its value, shortened.
        allowed: the values that are allowed.
        problems: a sentence for each invalid field: a constructor tells of all its arguments at once.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, shown(value), allowed
        self._value_in_json = shown_as_json(value)
        self.problems: tuple[str, ...] = (f"{field} is {self.value}; allowed: {allowed}",)
        super().__init__(*self.problems)

    def in_json(self) -> "InvalidLockRequest":
        """This error, about a value in a JSON document."""
        self.value = self._value_in_json
        self.args = self.problems = (f"{self.field} is {self.value}; allowed: {self.allowed}",)
        return self


class TaskNotAllowed(TicketLockError):
    """The work named in the request is not one of the targets that were allowed at deploy time.

    Attributes:
        field: where in the request, for example ``task.functionArn``.
        value: the ARN in the request, shortened.
        allowed: the ARNs that are allowed.
    """

    def __init__(self, field: str, value: object, allowed: tuple[str, ...]) -> None:
        self.field = field
        self.value = shown(value)
        self.allowed = allowed
        targets = ", ".join(allowed) or "none (the construct's `targets` is empty)"
        super().__init__(f"{field} is {self.value}; allowed targets: {targets}")


class PermitsMismatch(TicketLockError):
    """The lock exists with another number of permits than the caller asked for.

    Attributes:
        asked: the caller's number.
        stored: the lock's number.
        entity: what the lock is on.
    """

    def __init__(self, asked: int, stored: int, entity: str) -> None:
        self.asked = asked
        self.stored = stored
        self.entity = entity
        permits = "1 permit" if stored == 1 else f"{stored} permits"
        super().__init__(
            f"the lock on {entity!r} has {permits}, not {asked}: all its users must ask for the same number"
        )


class UnsupportedFormat(TicketLockError):
    """A lock, or a row of the units table, was written in a data format that this version does not know.

    Attributes:
        stored: the number of the format that was found.
    """

    def __init__(self, stored: int, known: int, what: str = "the lock") -> None:
        self.stored = stored
        super().__init__(f"{what} is in data format {stored}, but this version only knows {known}: upgrade ticketlock")


class RecordWaitExceeded(TicketLockError, TimeoutError):
    """The record wait ended before the caller got the lock; the caller has left the queue.

    Attributes:
        holders: who held the lock at the last poll: owner, since when, and until when the lease runs, by table time
            in UTC. Empty if there was no holder, or the item was not read.
        is_closed: whether an operator has closed the lock by setting its limit to 0.
        is_held_here: whether a client of this process was one of the holders.
    """

    is_held_here = False

    def __init__(
        self, why: str = "", holders: collections.abc.Iterable[tuple[str, int, int]] = (), *, is_closed: bool = False
    ) -> None:
        self.holders = tuple((owner, _utc(since_ms), _utc(until_ms)) for owner, since_ms, until_ms in holders)
        self.is_closed = is_closed
        named = [
            f"held by {shown(owner)} since {_second(since)}, its lease runs until {_second(until)}"
            for owner, since, until in self.holders[:_HOLDERS_NAMED]
        ]
        more = len(self.holders) - len(named)
        facts = [
            why,
            *(["closed: an operator has set its limit to 0"] if is_closed else []),
            *named,
            *([f"and by {more} more"] if more else []),
        ]
        super().__init__("; ".join(fact for fact in facts if fact))

    def note_held_here(self) -> None:
        """Say that this process holds the lock."""
        self.is_held_here = True
        self.args = (f"{self}; this very process holds it",)


class EventBudgetExceeded(TicketLockError):
    """An execution is about to reach the limit of its event history, at which Step Functions would fail it."""


class LockLost(TicketLockError):
    """The lease ended before it was renewed or released, or the lock is no longer the caller's.

    For operators: there is no such holder or waiter.
    """


class AlreadyHeld(TicketLockError, RuntimeError):
    """This thread or task is inside of a block that holds the lock, and would wait for itself: pass
    ``reentrant=True``. Of a durable execution: use the lease of that block.
    """


class ClientClosed(TicketLockError, RuntimeError):
    """The client was closed, or was made in the process that this one was forked from, or in another event loop."""


class UnitError(TicketLockError):
    """The root of the errors of units of work."""


class InvalidUnitRequest(UnitError, ValueError):
    """A statement, a key or a setting of units is malformed; nothing was written.

    Attributes:
        field: which, for example ``key.id``; of several, the first.
        value: its value, shortened.
        allowed: the values that are allowed, or what to do.
        problems: a sentence for each: a constructor tells of all its arguments at once.
        is_of_units: whether only units refuse it: DynamoDB would not.
    """

    is_of_units = False

    def __init__(self, field: str, value: object, allowed: str, reason: str = "", *, is_of_units: bool = False) -> None:
        self.field, self.value, self.allowed = field, shown(value), allowed
        if is_of_units:
            self.is_of_units = True
        given = f"{field} is {self.value}"
        self.problems: tuple[str, ...] = (f"{f'{reason} ({given})' if reason else given}; allowed: {allowed}",)
        super().__init__(*self.problems)


class ConditionFailed(UnitError):
    """A statement's condition does not hold. The statement was not added to the unit, which may continue.

    Attributes:
        table: the name of the item's table.
        key: the item's key, in Python values.
        item: the item as the unit has it, in Python values; None if there is none.
        at: of a call for many items, its position among them; None of any other statement.
    """

    def __init__(
        self,
        table: str,
        key: collections.abc.Mapping[str, object],
        condition: str,
        item: collections.abc.Mapping[str, object] | None = None,
        looks_at: collections.abc.Iterable[str] = (),
    ) -> None:
        self.at: int | None = None
        self.table = table
        self.key = dict(key)
        self.item = None if item is None else dict(item)
        found = [f"{name}={shown(self.item[name])}" for name in looks_at if self.item is not None and name in self.item]
        instead = "which does not exist" if item is None else f"which has {', '.join(found) or 'no such attribute'}"
        super().__init__(f"the condition {condition!r} does not hold for {_named(table, key)}, {instead}")


class UnitConflict(UnitError):
    """Items that the unit has read have changed; nothing was written. Run it again.

    Attributes:
        keys: the changed items that are known: for each the name of its table, and its key in Python values. For a
            guarded table also the guard of a partition, which is a row of the units table.
    """

    def __init__(
        self,
        keys: collections.abc.Iterable[tuple[str, collections.abc.Mapping[str, object]]],
        *,
        guards: collections.abc.Iterable[tuple[str, collections.abc.Mapping[str, object]]] = (),
        inserted_into: collections.abc.Iterable[str] = (),
    ) -> None:
        items, tables = [(table, dict(key)) for table, key in keys], sorted(set(inserted_into))
        self.keys = (*items, *((table, dict(key)) for table, key in guards))
        named = [_named(table, key) for table, key in items[:_ITEMS_NAMED]]
        more = len(items) - len(named)
        changed = ", ".join([*named, *([f"and {more} more"] if more else [])])
        why = [f"items that the unit has read have changed: {changed}"] if items or not tables else []
        why += [
            f"another unit inserted into a partition of {each} that this one has queried or inserts into"
            for each in tables
        ]
        super().__init__(f"{'; '.join(why)}; nothing was written, run it again")


class UnitContended(UnitError, TimeoutError):
    """Another unit held an item until the time-out, or a read of one instant met changes at each try. Run it again.

    Nothing was written.
    """


class UnitRolledBack(UnitError):
    """The unit is rolled back; nothing was written. Run it again.

    Another unit, a sweep or an operator has rolled it back; or its name was used or given up; or its owner has ended;
    or one of its requests got no answer, and it has rolled itself back.

    Attributes:
        by: the id of the unit that rolled it back; None for every other reason.
    """

    def __init__(self, why: str, by: str | None = None) -> None:
        self.by = by
        super().__init__(why)


class UnitTooLarge(UnitError):
    """The unit has too many items, or was begun with ``engine="native"`` and does not fit into one request.

    Nothing was written. Or a read of one instant, outside of units, was of more than 100 items that do not exist.
    """


class ItemTooLarge(UnitError):
    """An item would be larger than DynamoDB allows; nothing was written.

    Attributes:
        phase: ``statement``: its new value is too large; ``mark``: a unit's mark does not fit in it.
    """

    def __init__(self, why: str, phase: str) -> None:
        self.phase = phase
        super().__init__(why)


class CommittedUnfinished(UnitError):
    """The unit is committed, and DynamoDB refuses to write the new values of some of its items. Do not run it again.

    Its other items have their new values. Readers at ``COMMITTED`` see all of them; plain readers see the old values of
    these items, and units that write them fail, until an operator has corrected them.

    Attributes:
        unit: its id.
        keys: the items: for each the name of its table, and its key in Python values.
    """

    def __init__(
        self, unit: str, keys: collections.abc.Iterable[tuple[str, collections.abc.Mapping[str, object]]], why: str
    ) -> None:
        self.unit = unit
        self.keys = tuple((table, dict(key)) for table, key in keys)
        self.why = why
        named = ", ".join(_named(table, key) for table, key in self.keys[:_ITEMS_NAMED])
        more = f" and {len(self.keys) - _ITEMS_NAMED} more" if len(self.keys) > _ITEMS_NAMED else ""
        super().__init__(
            f"DynamoDB refuses what the unit {unit} writes to {named}{more} ({why}). The unit is committed: do not run "
            "it again. Until an operator ends these items with `ticketlock units correct`, plain readers see their old "
            "values, and other units cannot write them"
        )


class UnitFinished(UnitError, RuntimeError):
    """The unit was used after its end: begin another one."""


class UnitChanged(UnitError):
    """Another process has resumed the saved unit since this process did; nothing that this one did was written."""


class UnitForgotten(UnitError):
    """Another process has ended the unit and its record was deleted: whether it was committed is unknown."""


class TableError(TicketLockError):
    """The table could not be used."""


class TableNotFound(TableError):
    """There is no table of that name in this account and Region; the message has the name."""


class TableRefused(TableError):
    """The service refused the request: credentials, permissions, or a table of another shape."""


class RequestNotApplied(TableError):
    """Throttling, conflicts or an unreachable endpoint outlasted the retries; nothing was written."""


class OutcomeUnknown(TableError):
    """No answer within the retries: the request may or may not have been applied.

    You can repeat the call safely, except for a unit of work without a name: read its items first.
    """


def all_at_once(kind: type[E], refused: collections.abc.Sequence[InvalidLockRequest | InvalidUnitRequest]) -> E:
    """One error with the problems of all of them."""
    first, problems = refused[0], tuple(problem for each in refused for problem in each.problems)
    if len(refused) == 1 and isinstance(first, kind):
        return first
    message = "\n  ".join([f"{len(problems)} settings are invalid:", *problems]) if problems[1:] else problems[0]
    every = {"field": first.field, "value": first.value, "allowed": first.allowed, "problems": problems}
    return _as_it_was(kind, (message,), every)


def _as_it_was(kind: type[E], args: tuple[object, ...], attributes: collections.abc.Mapping[str, object]) -> E:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


def _named(table: str, key: collections.abc.Mapping[str, object]) -> str:
    names = ", ".join(f"{name}={_as_python_shows_it(value)}" for name, value in key.items())
    return f"{table}[{names}]"


def _utc(epoch_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(epoch_ms / 1_000, datetime.UTC)


def _second(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(value: object) -> str:
    """A value as an error message shows it: as in Python, text in double quotes, at most 300 characters."""
    if isinstance(value, str):
        return shown_as_json(value)
    return _printable(_as_python_shows_it(value))


def shown_as_json(value: object) -> str:
    """The same for a value of a JSON document."""
    try:
        return _printable(json.dumps(value, ensure_ascii=False))
    except Exception:
        return _printable(_as_python_shows_it(value))


def _printable(text: str) -> str:
    # Half a surrogate pair cannot be encoded, neither in a function's reply nor in a log.
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _as_python_shows_it(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    try:
        return repr(value)
    except Exception:
        # It nests too deeply, has more digits than Python writes, or a `__repr__` that fails.
        return f"a value of type {type(value).__name__}"
