"""What a unit of work does, as steps: how it ends, above its statements and reads; for threads and tasks."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

from ticketlock._expressions import MAX_ITEM_BYTES
from ticketlock.errors import (
    CommittedUnfinished,
    InvalidUnitRequest,
    OutcomeUnknown,
    TableRefused,
    TicketLockError,
    UnitError,
    UnitForgotten,
    UnitTooLarge,
)
from ticketlock.units._commit import (
    Commit,
    MarkedCommit,
    commit_natively,
)
from ticketlock.units._records import MOST_RESULT_BYTES, NEVER_USED
from ticketlock.units._recovery import save
from ticketlock.units._statements import (
    MOST_ACTIONS,
    MOST_BYTES,
    READ_LOCK,
    SURELY_TOGETHER,
    ItemState,
    SaveOptions,
    are_too_many_absent,
    changed_since,
    check_count,
    check_may_mark,
    check_of,
    check_room,
    conflict,
    has_unknown_sizes,
    read_unread,
)
from ticketlock.units._unit_of_work._evaluating import UnitStatements
from ticketlock.wire import (
    Actions,
    Driver,
    ForkingSteps,
    Request,
    T,
    Together,
    is_foreign,
    raise_if_foreign,
)

_log = logging.getLogger("ticketlock")


class UnitOfWork(UnitStatements):
    """One unit: what it has read and stated, and its end."""

    def commit(self) -> ForkingSteps[None]:
        if self.state.is_finished:
            return
        with self.state.alone():
            if self.terms.step is not None and self.terms.repeats_step:
                allowed = "for a commit another step, or none: this one has saved the unit before, so end with `save()`"
                raise InvalidUnitRequest("step", self.terms.step.name, allowed)
            yield from self._commit_or_end()

    def _commit_or_end(self) -> ForkingSteps[None]:
        # From now on: even if the caller is gone, the commit may still be running.
        self.state.note("begins to commit")
        try:
            yield from self.begin()
            if not self.repeated:
                yield from self._commit()
        except TicketLockError as error:
            raise_if_foreign(error)
            if self.state.is_committed:
                # What DynamoDB refuses is not finished.
                yield from self._note_committed()
            elif isinstance(error, OutcomeUnknown | UnitForgotten):
                self.state.note("is of unknown outcome")
            else:
                self.state.note("fails")
                yield from self._let_go()
                yield from self._explain(error)
            raise
        yield from self._note_committed()

    def _note_committed(self) -> ForkingSteps[None]:
        self.state.note("is committed")
        if self._record is not None and not self.repeated:
            yield from self._record.forget()

    def _commit(self) -> ForkingSteps[None]:
        lock_check = check_of(self.terms.under) if self.terms.under is not None else None
        receipt, behind = self._receipt or NEVER_USED, self._behind
        commit = Commit(self.terms, self._records.table, self.state, receipt, lock_check, behind, self._kept)
        touched = self._touched()
        guards = self._guards.of_inserts(touched, self._work)
        if guards:
            touched = yield from self._with(guards)
        if self._read_locks is not None and self._read_locks.record.may_exist:
            yield from self._check_may_mark(touched)
            yield from self._read_locks.commits(commit)
            return
        if not any(place.writes for place in touched) and not self.terms.beside:
            yield from self._validate(touched, commit)
            return
        if not self._has_to_mark(guards) and self._fits_one_request(touched):
            try:
                yield from commit_natively(touched, self._work.marks, commit, self._meeting)
                return
            except TableRefused as error:
                raise_if_foreign(error)
                # Nothing was written. The cause may be the sizes of items that were not read.
                if not has_unknown_sizes(touched):
                    raise
                yield from self._read_blind(touched)
                if self._fits_one_request(touched):
                    raise
        yield from self._read_blind(touched)
        yield from self._commit_by_marks(touched, commit)

    def _with(self, guards: Sequence[ItemState]) -> ForkingSteps[list[ItemState]]:
        """The items of the commit, with the guards of those that it inserts."""
        if self._read_locks is None:
            yield from read_unread([guard for guard in guards if not guard.is_read], self._work, self._reading)
        else:
            yield from self._read_locks.lock_all(guards)
        for guard in guards:
            self._guards.check(guard)
            guard.image, guard.is_written = self._guards.image(guard), True
        return self._touched()

    def _has_to_mark(self, guards: Sequence[ItemState]) -> bool:
        # A process that finds the guard of a committed unit must find its items too.
        return bool(guards) or self.terms.engine == "marked"

    def _fits_one_request(self, touched: Sequence[ItemState]) -> bool:
        """Whether one request can commit all, as far as the sizes of items are known; raises if nothing else may."""
        terms = self.terms
        count = len(touched) + terms.beside
        if count <= SURELY_TOGETHER:
            return True
        # The lock's item counts too, and ticketlock does not read it.
        size = sum(place.size_bytes for place in touched) + (terms.under is not None) * MAX_ITEM_BYTES
        # The receipt and the head of a saved unit.
        size += 2 * MOST_RESULT_BYTES if self._kept else 0
        fits = count <= MOST_ACTIONS and size <= MOST_BYTES
        if terms.engine == "native" and not fits:
            raise UnitTooLarge(
                f"the commit has {count} actions, one for each item, the name, the lock and the saved record, of "
                f"{size:,} bytes; one request of DynamoDB takes {MOST_ACTIONS} actions of {MOST_BYTES:,} bytes: leave "
                "out `engine`, so that the unit can be committed by marks"
            )
        return fits

    def _commit_by_marks(self, places: Sequence[ItemState], commit: Commit) -> ForkingSteps[None]:
        yield from self._check_may_mark(places)
        self._marked = MarkedCommit(commit, self._work.marks, self._records, self._meeting, places)
        yield from self._marked.steps()

    def _check_may_mark(self, places: Sequence[ItemState]) -> ForkingSteps[None]:
        check_count(places)
        yield from self._tables.describe_again(place.table for place in places)
        check_may_mark(places)

    def _validate(self, places: Sequence[ItemState], commit: Commit) -> ForkingSteps[None]:
        """Check that all that was read is unchanged at one instant; what one request has read is of one instant."""
        if self._is_of_one_instant(places):
            return
        # Raises if the unit may have no more than one request takes.
        self._fits_one_request(places)
        if are_too_many_absent(places):
            # Marked commits check them at one instant as well.
            yield from self._commit_by_marks(places, commit)
            return
        changed = yield from changed_since(places, self._work.marks, self._reading)
        if changed:
            raise conflict(changed)

    def leave(self, error: BaseException | None) -> ForkingSteps[None]:
        """End the block: commit, or roll back after an exception.

        A forked child leaves the block too, and the unit to its parent.
        """
        if not self.state.is_of_this_process:
            return
        if self.state.is_open:
            try:
                if error is None:
                    self.state.check_can_end()
                    yield from self.commit()
            finally:
                # Another method may still be running when a task's error ends the block: its statement is not in the
                # unit.
                if self.state.is_open:
                    self.state.note("is interrupted")
                    yield from self._let_go()
        elif error is None:
            self.state.check_committed_or_reported()

    def rollback(self) -> ForkingSteps[None]:
        """End the unit; nothing is written. A saved unit ends with it."""
        if not self.state.is_rolled_back:
            with self.state.alone():
                self.state.note("is interrupted")
                if self.state.is_finished:
                    self.state.check_open()
        self.state.is_reported = True
        yield from self._let_go()
        if self._record is not None:
            yield from self._record.roll_back()

    def save(self, keeping: SaveOptions) -> ForkingSteps[str]:
        """Write down what it has read and written, for `resume`: this object is over."""
        with self.state.alone():
            if self._read_locks is not None:
                raise InvalidUnitRequest("isolation", READ_LOCK, "another level for a unit that is saved")
            yield from self.begin()
            if self._record is None or not self.repeated:
                yield from self._save(keeping)
            self.state.note("is saved")
            if self._record is not None and not self.repeated:
                yield from self._record.forget_rows()
            return self.terms.id

    def _save(self, keeping: SaveOptions) -> ForkingSteps[None]:
        if self._kept and not self.repeated:
            raise InvalidUnitRequest("result", self.result, "set by the process that commits the unit: set it to None")
        if self.terms.payload is not None:
            raise InvalidUnitRequest(
                "payload", self.terms.payload.given, "none for a unit that is saved: it is not saved"
            )
        if self.terms.saved is not None:
            check_room(self.terms.saved.steps, self.terms.step)
        check_count([place for place in self._work.places.values() if place.is_touched])
        yield from self._read_blind(self._work.places.values())
        self._saves += 1
        keeping = replace(keeping, tries=self._saves)
        try:
            yield from save(self.terms, self._work, self._receipt, self._records, keeping, self.state)
        except (OutcomeUnknown, UnitError):
            # After other errors the unit is unchanged, and may continue.
            self.state.note("is interrupted")
            raise

    # Interrupts.

    def abandon(self) -> None:
        """End the unit: something else than its own error was raised within one of its methods."""
        self.state.note("is interrupted")

    def end_after_interrupt(self) -> ForkingSteps[None]:
        """The same, and leave nothing behind if possible: a marked commit is rolled back, or finished.

        Calling it again does nothing.
        """
        marked: MarkedCommit | None = None if self.state.is_over else self._marked
        if self._read_locks is not None:
            # A rollback may have been interrupted, too, or the last writes of a commit.
            marked = self._read_locks if self._read_locks.record.may_exist else None
        self.abandon()
        if marked is not None:
            try:
                yield from marked.end_after_interrupt()
            except TicketLockError as error:
                raise_if_foreign(error)
                if isinstance(error, CommittedUnfinished):
                    _log.warning("%s", error)
                else:
                    _log.warning("the interrupted unit %s is left to its lease: %s", self.terms.unit, error)


def ending(
    unit_of_work: UnitOfWork, driver: Driver, steps: ForkingSteps[T], begun_with: Request | Together | None = None
) -> Actions[T]:
    """Perform steps of a unit. If anything else than their own error is raised meanwhile, end the unit.

    The exception is raised again, with every outcome of the unit.
    """
    try:
        return (yield from driver.perform_steps(steps, begun_with=begun_with))
    except GeneratorExit:
        raise
    except BaseException as error:
        if is_of_steps(error, steps):
            raise
        yield from driver.perform_steps(unit_of_work.end_after_interrupt())
        raise


def is_of_steps(error: BaseException, steps: ForkingSteps[Any]) -> bool:
    """Whether an error is the steps' own: they have ended with it, and no other code has raised it."""
    is_told = isinstance(error, TicketLockError) and getgeneratorstate(steps) == GEN_CLOSED
    return is_told and not is_foreign(error)
