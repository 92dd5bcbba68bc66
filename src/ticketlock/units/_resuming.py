"""A coordinator resumes a saved unit: it claims the record, so that no earlier coordinator can commit or save it.

A step that was saved before writes nothing, so it claims nothing: another coordinator keeps the unit.

Each coordinator writes under an id of its own, and the transaction that commits checks in the record that this id is
the last one. So even late requests of one coordinator cannot be mistaken for another's.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Any

from ticketlock.errors import InvalidUnitRequest, OutcomeUnknown, RequestNotApplied, UnitForgotten
from ticketlock.units._ended import ended
from ticketlock.units._formats import fields, foreign_row
from ticketlock.units._guards import Guards
from ticketlock.units._heads import Head, Heads, head_key
from ticketlock.units._ids import is_id
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import read_pieces
from ticketlock.units._packing import of_pieces
from ticketlock.units._record import SavedRecord
from ticketlock.units._rows import NEVER_USED, Receipt
from ticketlock.units._saving import SAVED, receipt_of, tables_of, terms_of, work_of
from ticketlock.units._tables import Tables
from ticketlock.units._terms import Terms
from ticketlock.units._work import Work
from ticketlock.wire._answers import Reply
from ticketlock.wire._requests import ForkingSteps


@dataclass(frozen=True, slots=True)
class Resumed:
    """A saved unit, as the coordinator that resumes it gets it.

    Attributes:
        terms: what it was begun with.
        work: what it has read and stated.
        receipt: of its name, as it was seen.
        is_committed: whether another coordinator has committed it.
    """

    terms: Terms
    work: Work
    receipt: Receipt | None
    is_committed: bool


def resume(given: Any, own: Terms, units_table: str, marks: Marks, tables: Tables) -> ForkingSteps[Resumed]:
    """Resume a saved unit.

    Args:
        given: what its `save` has returned.
        own: of a new unit: the id under which this coordinator writes, and its step.

    Raises:
        InvalidUnitRequest: it is no id, or of a unit that was not saved, or saved under another prefix.
        UnitRolledBack: it was rolled back, the time for which it was saved is over, or its name was used or given up
            since.
        UnitForgotten: there is no record of it.
        UnsupportedFormat: a newer version has saved it.
        TableError: the table could not be used.
    """
    if not isinstance(given, str) or not is_id(given):
        raise InvalidUnitRequest("unit", given, "what `save` has returned")
    heads = Heads(units_table)
    while True:
        reply: Reply = yield heads.read(given)
        if reply.item is None:
            raise ended(None, given)
        head = Head.of(reply.item)
        if not head.is_saved:
            raise InvalidUnitRequest("unit", given, "what `save` has returned: this unit was not saved")
        if head.state == "committed":
            return Resumed(replace(own, born_ms=head.born_ms, saved=head), Work(marks), None, is_committed=True)
        if head.state == "rolledBack":
            raise ended(reply.item, given)
        if reply.now.earliest_ms > head.lease_until_ms:
            yield heads.roll_back(given, reply.now.latest_ms, lease_seen_ms=head.lease_until_ms)
            continue
        pieces = yield from read_pieces(heads, head)
        if pieces is None:
            again: Reply = yield heads.read(given)
            if again.item is not None and not _is_the_same(Head.of(again.item), head):
                continue
            raise UnitForgotten(f"the rows of the saved unit {given} are gone")
        # Before the claim: a process that cannot go on leaves the unit to the one that has it.
        told = [head.inline] if head.pieces == 0 else pieces
        resumed = yield from _resumed(head, told, own, marks, tables, units_table)
        if resumed.terms.repeats_step:
            return resumed
        claimed: Reply = yield heads.claim(head, own.unit)
        if not claimed.applied and not _is_claimed_by(claimed, own.unit):
            continue
        mine = replace(head, rev=head.rev + 1, coordinator=own.unit)
        yield from _end_the_one_before(head, heads, claimed.now.latest_ms)
        if resumed.terms.name is not None:
            # No earlier coordinator can commit it any more: a new receipt belongs to another unit.
            yield from SavedRecord(mine, heads).check_name(resumed.terms.name, resumed.receipt or NEVER_USED)
        return replace(resumed, terms=replace(resumed.terms, saved=mine))


def _is_claimed_by(reply: Reply, coordinator: str) -> bool:
    """Whether an earlier attempt of the claim was applied."""
    return reply.item is not None and Head.of(reply.item).coordinator == coordinator


def _is_the_same(again: Head, head: Head) -> bool:
    """Whether the unit was neither saved, resumed nor ended meanwhile."""
    return (again.rev, again.state) == (head.rev, head.state)


def _end_the_one_before(head: Head, heads: Heads, now_ms: int) -> ForkingSteps[None]:
    """Roll back what the previous coordinator has marked: it cannot commit any more, and others would wait for it."""
    if head.coordinator is None or head.coordinator == head.attempt:
        return
    try:
        yield heads.roll_back(head.coordinator, now_ms)
    except OutcomeUnknown as error:
        why = f"the coordinator before was not ended in time: resume the unit again ({error})"
        raise RequestNotApplied(why) from error


def _resumed(
    head: Head, pieces: list[bytes], own: Terms, marks: Marks, tables: Tables, units_table: str
) -> ForkingSteps[Resumed]:
    try:
        told = fields(of_pieces(pieces, head_key(head.unit)), SAVED)
        terms, receipt, names = terms_of(told, own, head), receipt_of(told), tables_of(told)
        prefix, guarded = str(told["prefix"]), frozenset(told["guarded"])
    except (AttributeError, LookupError, TypeError, ValueError, zlib.error) as error:
        raise foreign_row(head_key(head.unit), error) from error
    if prefix != marks.prefix:
        raise InvalidUnitRequest("prefix", marks.prefix, f"{prefix!r}, which the saved unit {head.unit} uses")
    known, guards = {}, Guards(units_table)
    for name in names:
        # Its reads of the units table are reads of guards.
        is_guard = name == guards.table.name
        known[name] = guards.table if is_guard else (yield from tables.table(name, guarded=name in guarded or None))
    work = Work(marks)
    try:
        work_of(told, work, known)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise foreign_row(head_key(head.unit), error) from error
    return Resumed(terms, work, receipt, is_committed=False)
