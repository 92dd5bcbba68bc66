"""The open units of work, as operators read them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from ticketlock.errors import InvalidUnitRequest, TableError, UnsupportedFormat
from ticketlock.report._advice import Advice
from ticketlock.report._verdicts import Tone
from ticketlock.units import OpenUnit, Outcome
from ticketlock.units._records import Strange, UnitRecords
from ticketlock.units._recovery import Counted, count_unfinished, open_units
from ticketlock.units._unit_of_work import UnitsTable

_MOST_COUNTED = 20
_MOST_ITEMS_READ = 2_000
"""Of all units together."""
_LATE_S = 5
"""By then a process that lives has finished the items of its unit, usually."""

SWEPT_BY_THEN_S = 1_800
"""By then sweeps have ended and closed a unit, if one comes every ten minutes or more often."""

UnitWord = Literal["pending", "saved", "expired", "committed", "rolled back", "closed"]
UnitStep = Literal["nothing", "wait", "units settle", "see sweeper", "no permission"]
Uncertain = Literal["not asked", "unread", "no permission"]


@dataclass(frozen=True, slots=True)
class ListedUnit:
    """An open unit.

    Attributes:
        unit: its record.
        unfinished: how many items of a committed one are not finished, of those that were read; None if that is not
            known.
        uncertain: why it is not known, of a unit that should have been finished by now.
        swept_by_s: how long after its end, or after that of its lease, sweeps have ended and closed it.
    """

    unit: OpenUnit
    unfinished: int | None = None
    uncertain: Uncertain | None = None
    swept_by_s: int = SWEPT_BY_THEN_S

    @property
    def step(self) -> UnitStep:
        """What to expect of it, or to do about it, in a few words."""
        unit, state = self.unit, state_of(self.unit)
        if state == "expired":
            return "units settle" if -(unit.lease_ends_in_s or 0) < self.swept_by_s else "see sweeper"
        if self.unfinished:
            return "units settle"
        if state in ("committed", "rolled back") and (unit.ended_for_s or 0) > self.swept_by_s:
            return "see sweeper"
        if self.uncertain in ("unread", "no permission"):
            return "units settle" if self.uncertain == "unread" else "no permission"
        return "wait" if state == "pending" else "nothing"

    @property
    def needs_you(self) -> bool:
        """Whether it waits for an operator, and neither for its process nor for a sweep to come."""
        return self.step not in ("nothing", "wait", "no permission")

    @property
    def tone(self) -> Tone:
        """The colour of its state: what needs an operator is never good."""
        state = state_of(self.unit)
        if state == "expired":
            return "bad"
        if self.needs_you:
            return "late"
        if state == "committed":
            return "plain" if self.uncertain else "good"
        tones: dict[UnitWord, Tone] = {"saved": "open", "rolled back": "shut", "closed": "shut"}
        return tones.get(state, "plain")

    @property
    def unfinished_told(self) -> str:
        """How many items of a committed unit are not finished; ``?`` if that was not read, ``-`` of another unit."""
        if state_of(self.unit) != "committed":
            return "-"
        return "?" if self.unfinished is None else str(self.unfinished)

    @property
    def advice(self) -> Advice | None:
        """What to do about it; None for nothing."""
        if self.step == "nothing":
            return None
        if self.step == "wait":
            return Advice("wait for its process, or for the end of its lease")
        if self.step == "no permission":
            return Advice(
                "your role may not read all of its items, so no one knows here whether they are finished: it needs "
                "`dynamodb:BatchGetItem` on their tables"
            )
        if self.step == "see sweeper":
            told = "half an hour" if self.swept_by_s == SWEPT_BY_THEN_S else f"{self.swept_by_s // 60} minutes"
            text = f"no sweep has ended it in {told}: read the log of the sweeper; to end this unit alone"
        elif self.unfinished:
            verb = "is" if self.unfinished == 1 else "are"
            text = (
                f"{items_told(self.unfinished)} {verb} not finished: its process has crashed, or DynamoDB refuses a "
                "new value; to finish it at once, or to be told what is refused"
            )
        elif self.uncertain is not None:
            text = (
                "not all of its items were read, so some may not be finished: its process has crashed, or DynamoDB "
                "refuses a new value; to finish them, or to be told what is refused"
            )
        else:
            text = (
                "its process has crashed, or was not resumed in time: the next unit that needs its items, or the next "
                "sweep, rolls it back; to do it at once"
            )
        return Advice(text, f"ticketlock units settle {self.unit.unit}")


class UnitsReader(UnitsTable):
    """Reads a units table; the arguments are those of ``LockTable``, and how often a sweep comes."""

    def __init__(self, table_name: str, *, sweep_every_s: int = 300, **more: Any) -> None:
        super().__init__(table_name, **more)
        self.records = UnitRecords(table_name)
        # One that has ended less than ten minutes before a pass is left to the next, and that may fail once.
        self._swept_by_s = max(SWEPT_BY_THEN_S, 600 + 2 * sweep_every_s)

    def read_open(self, strange: Callable[[Strange], object], most: int | None = None) -> list[ListedUnit]:
        """The open units, the oldest first, and what is left of the oldest committed ones.

        Args:
            strange: gets an error for each row that no unit has written, or a newer version.
            most: how many to read: of more there is at least one more. Their items are then counted only as far as
                their records alone tell, and the unfinished ones not at all. None for all.
        """
        units = self.perform_steps(open_units(self.records, strange, None if most is None else most + 1))
        late = [each for each in units if state_of(each) == "committed" and (each.ended_for_s or 0) > _LATE_S]
        uncertain: Uncertain = "unread" if most is None else "not asked"
        listed = {each.unit: self._listed(each, uncertain=uncertain) for each in late}
        room = _MOST_ITEMS_READ
        # What a table of items answers must not hide the units.
        with suppress(TableError):
            # A large one leaves the small ones their room.
            for each in sorted(late[: _MOST_COUNTED if most is None else 0], key=lambda unit: unit.items or 0):
                # A row, or what is packed in it, that no unit has written, or a newer version.
                with suppress(InvalidUnitRequest, UnsupportedFormat):
                    counted = self.perform_steps(count_unfinished(self.records, each.unit, room))
                    room -= counted.read
                    listed[each.unit] = self._counted(each, counted)
        return [listed.get(each.unit, self._listed(each)) for each in units]

    def _listed(
        self, unit: OpenUnit, *, unfinished: int | None = None, uncertain: Uncertain | None = None
    ) -> ListedUnit:
        return ListedUnit(unit, unfinished, uncertain, self._swept_by_s)

    def _counted(self, unit: OpenUnit, counted: Counted) -> ListedUnit:
        if counted.unfinished or (counted.are_all and not counted.are_refused):
            return self._listed(unit, unfinished=counted.unfinished)
        return self._listed(unit, uncertain="no permission" if counted.are_refused else "unread")


def state_of(unit: OpenUnit) -> UnitWord:
    """The state of a unit, in the word that tables and JSON have for it.

    ``pending`` or ``saved`` while its lease runs, then ``expired``; ``committed`` or ``rolled back`` until all of its
    items are finished, then ``closed``.
    """
    if unit.is_closed:
        return "closed"
    if unit.state is not Outcome.PENDING:
        return "committed" if unit.state is Outcome.COMMITTED else "rolled back"
    if unit.lease_ends_in_s is not None and unit.lease_ends_in_s <= 0:
        return "expired"
    return "saved" if unit.is_saved else "pending"


def items_told(number: int | None) -> str:
    """How many items; ``? items`` if the rows that list them are missing, or were not read."""
    if number is None:
        return "? items"
    return "1 item" if number == 1 else f"{number} items"
