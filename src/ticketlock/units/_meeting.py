"""What is done about another unit's mark: its record decides, and nothing else.

Nobody takes a mark off, or applies it, but who has read its unit's record in a final state, closed or gone. Of two
units that are both pending the older rolls the younger back, which waits for it otherwise (wound-wait: Rosenkrantz,
Stearns, Lewis, "System Level Concurrency Control for Distributed Database Systems", 1978): nobody waits for a younger
one, so no two wait for each other, and the oldest is never rolled back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ticketlock.errors import OutcomeUnknown, RequestNotApplied, TableError, TableRefused, UnitContended
from ticketlock.units._finishing import finish, unmark
from ticketlock.units._heads import Head, Heads, entries_in, entries_of, piece_in
from ticketlock.units._marks import Mark, Marks
from ticketlock.units._packing import Entry
from ticketlock.wire._answers import Reply
from ticketlock.wire._attributes import Item
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import ForkingSteps, Pause, Together, Write
from ticketlock.wire._table_time import Moment

GRACE_MS = 200
_FIRST_LOOK_MS = 10
_LONGEST_LOOK_MS = 400

Age = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Marked:
    """An item with somebody's mark.

    Attributes:
        table, key: which.
        key_name: the first attribute of its key.
        mark: whose.
    """

    table: str
    key: Item
    key_name: str
    mark: Mark


class Meeting:
    """What one unit does about the marks of others, or one who only reads.

    Args:
        marks: the names of our attributes.
        heads: the records of units.
        age: of the unit that meets them.
        timeout_ms: for how long it waits, all in all.
        jitter: random numbers in [0, 1).
    """

    def __init__(self, marks: Marks, heads: Heads, age: Age, timeout_ms: int, jitter: Callable[[], float]) -> None:
        self._marks = marks
        self._heads = heads
        self._age = age
        self._timeout_ms = timeout_ms
        self._jitter = jitter
        self._began_ms: int | None = None

    def resolve(self, met: Marked) -> ForkingSteps[tuple[Head, Moment] | None]:
        """Do with a marked item what its unit's record says.

        Returns:
            None once that is done; where the unit is pending its head, and the moment.
        """
        reply: Reply = yield self._heads.read(met.mark.unit)
        head = Head.of(reply.item) if reply.item is not None else None
        if head is not None and not head.is_closed:
            if head.state == "pending":
                return head, reply.now
            if head.state == "rolledBack":
                yield from self._ends(self._unmark(met))
                return None
            entries = yield from read_committed(self._heads, head)
            if entries is not None:
                yield from self._ends(finish(_entry_of(entries, head, met), head.unit, self._marks))
                return None
        # It has ended, and every item of it was as it should be: a mark that stands there yet has come late.
        again: Reply = yield Get(met.table, met.key)
        if again.item is not None and self._marks.mark_of(again.item) == met.mark:
            yield from self._ends(self._unmark(met))
        return None

    def _ends(self, request: Write) -> ForkingSteps[None]:
        """Do what another unit has left to be done: whether it happens now or comes late says nothing of this one."""
        try:
            yield request
        except OutcomeUnknown as error:
            raise RequestNotApplied(f"what another unit has left was not ended in time: {error}") from error

    def pass_by(self, met: Marked, meanwhile: Callable[[], ForkingSteps[None]] | None = None) -> ForkingSteps[None]:
        """Wait until a unit's mark is off, or roll the unit back where this one is older.

        Args:
            meanwhile: what is to be done before each look.

        Raises:
            UnitContended: the time-out is over.
        """
        first_ms: int | None = None
        look_ms: float = _FIRST_LOOK_MS
        while (pending := (yield from self.resolve(met))) is not None:
            if meanwhile is not None:
                yield from meanwhile()
            head, now = pending
            is_older = self._age < head.age
            first_ms = now.local_ms if first_ms is None else first_ms
            self._began_ms = now.local_ms if self._began_ms is None else self._began_ms
            if now.earliest_ms > head.lease_until_ms:
                yield from self._ends(
                    self._heads.roll_back(head.unit, now.latest_ms, lease_seen_ms=head.lease_until_ms)
                )
            elif is_older and now.local_ms - first_ms >= GRACE_MS:
                yield from self._ends(self._heads.roll_back(head.unit, now.latest_ms, by=self._age[1]))
            elif not is_older and now.local_ms - self._began_ms >= self._timeout_ms:
                raise UnitContended(f"the unit {head.unit} was in the way for {self._timeout_ms / 1_000} s")
            else:
                yield Pause(look_ms * (0.5 + self._jitter() / 2))
                look_ms = min(2 * look_ms, _LONGEST_LOOK_MS)

    def _unmark(self, met: Marked) -> Write:
        return unmark(met.table, met.key, met.key_name, met.mark, self._marks)


def _entry_of(entries: Sequence[Entry], head: Head, met: Marked) -> Entry:
    for each in entries:
        if each.is_of(met.table, met.key):
            return each
    # Nothing is undone of what it has committed.
    raise TableRefused(
        f"the unit {head.unit} is committed, and its mark stands in an item of {met.table} that it does not write: "
        f"{dict(met.key)}; do all use the table by one name?"
    )


def read_entries(heads: Heads, head: Head) -> ForkingSteps[list[Entry] | None]:
    """What a unit has marked, and what becomes of it; None where the rows of it are gone, or were never all there.

    Raises:
        TableError: they could not be read.
        InvalidUnitRequest: somebody else has written them.
    """
    if head.is_saved:
        # What it writes others will mark, under ids of their own.
        return []
    if head.keys and head.state != "committed":
        rows = yield from _read_rows(heads.read_keys(head))
        return None if rows is None else [entry for row in rows for entry in entries_in(head, [row])]
    pieces = yield from read_pieces(heads, head)
    return None if pieces is None else entries_of(head, pieces)


def read_pieces(heads: Heads, head: Head) -> ForkingSteps[list[bytes] | None]:
    """The rows of a head that does not have all; None where they are gone, or were never all there.

    Raises:
        TableError: they could not be read.
        InvalidUnitRequest: somebody else has written them.
    """
    return (yield from _read_rows(heads.read_pieces(head)))


def _read_rows(requests: Sequence[Get]) -> ForkingSteps[list[bytes] | None]:
    pieces: list[bytes] = []
    if requests:
        replies = yield Together(tuple(requests))
        for reply in replies:
            if isinstance(reply, TableError):
                raise reply
            if reply.item is None:
                return None
            pieces.append(piece_in(reply.item))
    return pieces


def read_committed(heads: Heads, head: Head) -> ForkingSteps[list[Entry] | None]:
    """What a unit that was committed writes; None where it was closed meanwhile: every item has it.

    Raises:
        TableRefused: its rows are gone, and it was not closed: nobody knows what its marks stand for.
        TableError, InvalidUnitRequest: as of ``read_entries``.
    """
    entries = yield from read_entries(heads, head)
    if entries is None:
        # They are deleted after that, and by nobody of ours before.
        reply: Reply = yield heads.read(head.unit)
        if reply.item is not None and not Head.of(reply.item).is_closed:
            raise TableRefused(
                f"the unit {head.unit} is committed, and rows of what it writes are gone from {heads.table}: restore "
                "them, or put its items right by hand"
            )
    return entries
