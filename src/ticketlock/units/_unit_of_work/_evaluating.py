"""The statements of a unit of work, as steps: each is evaluated at once, on the item as the unit has it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock._checks import boolean
from ticketlock._expressions import Attributes
from ticketlock.errors import (
    ConditionFailed,
    InvalidUnitRequest,
    ItemTooLarge,
)
from ticketlock.units._commit import (
    may_be_sent_blindly,
)
from ticketlock.units._statements import (
    ItemState,
    Statement,
    StatementArguments,
    StatementRequest,
    conflict,
)
from ticketlock.units._unit_of_work._reads import UnitReads, check_once
from ticketlock.units._words import PYTHON, VERSION_BYTES
from ticketlock.wire import (
    ForkingSteps,
    raise_if_foreign,
)

Both = tuple[Attributes | None, Attributes | None]
"""An item before a statement and after it, in AttributeValues; None if there is none, or if it was not read."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What became of one of several statements.

    Attributes:
        before, after: the item, in AttributeValues; None if there is none.
        refused: the condition that does not hold; or why the statement does not fit the item, if each statement is
            evaluated.
    """

    before: Attributes | None
    after: Attributes | None
    refused: ConditionFailed | InvalidUnitRequest | ItemTooLarge | None = None


class UnitStatements(UnitReads):
    """What one unit has read and stated."""

    def evaluate(self, request: StatementRequest, *, blind: bool = False) -> ForkingSteps[Both]:
        """One statement, evaluated at once: the item before it and after it. A blind update may be sent unread."""
        boolean("blind", blind, InvalidUnitRequest)
        arguments = request.arguments()
        return (yield from self._alone(self._evaluate(request, arguments, blind=blind and self._read_locks is None)))

    def item_before(self, request: StatementRequest) -> ForkingSteps[Any]:
        """The item before a statement, as its caller has values; converted in the steps: an interrupt ends the unit."""
        before, _ = yield from self.evaluate(request)
        return request.python.to_caller(before)

    def item_after(self, request: StatementRequest, *, blind: bool) -> ForkingSteps[Any]:
        """The item after an update, likewise; empty in a repeated unit, and none of a blind update."""
        _, after = yield from self.evaluate(request, blind=blind)
        return None if blind else request.python.to_caller(after or {})

    def _evaluate(self, request: StatementRequest, given: StatementArguments, *, blind: bool) -> ForkingSteps[Both]:
        made = request.statement(self._tables.check_own(request.table), given, self._work.marks)
        yield from self.begin()
        if self.repeated:
            return None, None
        place = self._work.place(made.table, made.key)
        is_new = not place.is_read and place.blind is None
        if blind and is_new and not made.table.is_guarded and may_be_sent_blindly(made):
            place.blind, self._has_written = made, True
            return None, None
        if not place.is_read or self._read_locks is not None:
            yield from self._read_unread([place])
        # An error in another task may have ended the block meanwhile.
        self.state.check_open()
        self._check_as_glimpsed(place)
        before = place.image
        after = self._after(made, place, before)
        self._add([(made, place, after)])
        return before, after

    def _add(self, evaluated: Iterable[tuple[Statement, ItemState, Attributes | None]]) -> None:
        """Add statements to the unit, with the items after them."""
        for made, place, after in evaluated:
            place.image = after
            if made.kind != "check":
                place.is_written = self._has_written = True

    def _after(self, made: Statement, place: ItemState, before: Attributes | None) -> Attributes | None:
        """The item after a statement, which is not in the unit yet."""
        # Also if the condition fails: what the caller does next depends on the item as it was read.
        place.is_checked = True
        place.is_asserted |= made.kind == "check"
        after = made.applied_to(before)
        if made.kind == "update" and after is not None:
            made.table.check_item(after, "statement", VERSION_BYTES)
        if made.table.is_guarded and place.before is None and after is not None and self.terms.engine == "native":
            allowed = f'"marked", or None: {made.table.name} is guarded, and inserts into it are committed by marks'
            raise InvalidUnitRequest("engine", "native", allowed, is_of_units=True)
        return after

    def items_before(self, requests: Sequence[StatementRequest]) -> ForkingSteps[list[Any]]:
        """The items before statements that are added to the unit together, or not at all."""
        found = yield from self._evaluate_all(requests)
        return [PYTHON.to_caller(each.before) for each in found]

    def items_after(self, requests: Sequence[StatementRequest]) -> ForkingSteps[list[Any]]:
        """The items after updates, likewise; empty in a repeated unit."""
        found = yield from self._evaluate_all(requests)
        return [PYTHON.to_caller(each.after or {}) for each in found]

    def _evaluate_all(self, requests: Sequence[StatementRequest]) -> ForkingSteps[list[Evaluated]]:
        found = yield from self.evaluate_together(requests)
        if found and found[-1].refused is not None:
            raise found[-1].refused
        return found

    def evaluate_together(
        self, requests: Sequence[StatementRequest], *, of_one_item_each: str | None = None
    ) -> ForkingSteps[list[Evaluated]]:
        """Statements that are added to the unit together, or not at all if a condition does not hold.

        Args:
            of_one_item_each: the caller's name for a list in which no item may occur twice, and of which each statement
                is evaluated. None: items may occur again, and the first condition that does not hold is the last one.
        """
        given = [(request, request.arguments()) for request in requests]
        return (yield from self._alone(self._evaluate_each(given, of_one_item_each)))

    def _evaluate_each(
        self, given: Sequence[tuple[StatementRequest, StatementArguments]], of_one_item_each: str | None
    ) -> ForkingSteps[list[Evaluated]]:
        marks, own = self._work.marks, self._tables.check_own
        made = [request.statement(own(request.table), arguments, marks) for request, arguments in given]
        places = [self._work.place(each.table, each.key) for each in made]
        if of_one_item_each is not None:
            check_once(of_one_item_each, places)
        yield from self.begin()
        if self.repeated:
            return [Evaluated(None, None)] * len(made)
        yield from self._read_each(places)
        # An error in another task may have ended the block meanwhile.
        self.state.check_open()
        found, images = list[Evaluated](), dict[int, Attributes | None]()
        for (request, _), each, place in zip(given, made, places, strict=True):
            self._check_as_glimpsed(place)
            before = images.get(id(place), place.image)
            try:
                after = images[id(place)] = self._after(each, place, before)
            except ConditionFailed as error:
                raise_if_foreign(error)
                error.at = request.at
                found.append(Evaluated(before, before, error))
                if of_one_item_each is None:
                    break
            except (InvalidUnitRequest, ItemTooLarge) as error:
                raise_if_foreign(error)
                if of_one_item_each is None or (isinstance(error, InvalidUnitRequest) and error.is_of_units):
                    raise
                found.append(Evaluated(before, before, error))
            else:
                found.append(Evaluated(before, after))
        if any(each.refused is not None for each in found):
            return found
        self._add([(each, place, images[id(place)]) for each, place in zip(made, places, strict=True)])
        return found

    def _check_as_glimpsed(self, place: ItemState) -> None:
        """End the unit if an item differs from what a lower level has shown: the caller may depend on what it saw."""
        glimpse, place.glimpse = place.glimpse, None
        if glimpse is not None and glimpse[0] != place.before:
            self.state.note("fails")
            raise conflict([place])
