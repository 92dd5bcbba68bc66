"""Units that are broken on purpose: each lacks one precaution, and breaks a promise."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from property.chance import Chance
from property.report import BrokenOnPurpose
from property.units import beside, changes, explore
from property.units.casts import (
    ABSENCES,
    ASSERTIONS,
    CHECKS,
    CORRECTIONS,
    CUTS,
    INSERTS,
    LOCKING,
    NAMED,
    NO_REST,
    OLDER,
    PREFETCHES,
    RANGES,
    SAVES,
    SLEEPERS,
    SNAPSHOTS,
    SWEEPS,
    TOKENS,
    Cast,
)
from property.units.explore import Caps
from property.units.machines import NONE, RATES, Faults
from property.units.world import UnitsWorld

from ticketlock.units._commit import _commit, _marked, _read_locks, _state
from ticketlock.units._commit._marked import MarkedCommit
from ticketlock.units._commit._read_locks import ReadLocks
from ticketlock.units._records import _conditions, _meeting, _record
from ticketlock.units._records._meeting import Meeting
from ticketlock.units._records._record import UnitRecords
from ticketlock.units._records._rows import Receipt
from ticketlock.units._recovery import _operators, _saved, _sweeping
from ticketlock.units._recovery._sweeping import SweepPosition
from ticketlock.units._statements import _reading, _snapshots
from ticketlock.units._statements._queries import Querying
from ticketlock.units._statements._reading import Reader
from ticketlock.units._statements._work import Guards
from ticketlock.units._unit_of_work import _reads, _unit_of_work
from ticketlock.units._unit_of_work._unit_of_work import UnitOfWork
from ticketlock.wire._requests import TransactWrite

OFTEN = Faults({name: 3 * rate for name, rate in RATES.items()})
STUCK = Faults({"pause": 60, "crash": 8, "outage": 20})
REFUSING = Faults({"refused for good": 200, "late": 30, "twice": 30, "pause": 20})
LATE = Faults({"late": 150, "pause": 40})
HALF_WAY_FOR_DAYS = Faults({"half_way": 200})
TWICE_AND_HALF_WAY = Faults({"twice": 150, "half_way": 100})
DEADLY_DAYS = Faults({"throttled": 250, "overslept": 300, "crash": 12})
HALF_WAY = Faults({"half_way": 100, "pause": 30})
TWICE = Faults({"twice": 150, "late": 50})
DAYS = Faults({"throttled": 60, "overslept": 200, "crash": 10})
UNHEARD_DAYS = Faults({"reply_lost": 60, "overslept": 200})
CUT_OFF = Faults({"late": 100, "reply_lost": 100, "outage": 30, "abandoned": 60})


@dataclass(frozen=True)
class Variant(BrokenOnPurpose):
    """One change.

    Attributes:
        name: what is wrong.
        caught_by: the promises that it breaks; one of them must catch it.
        changes: what is replaced: module or class, attribute, value.
        shown_by: the faults that reveal it; None for a mixture drawn for each schedule.
        caps: the caps that reveal it; None likewise.
        cast: the cast that reveals it; None likewise.
    """

    name: str
    caught_by: frozenset[str]
    changes: tuple[tuple[Any, str, Any], ...]
    shown_by: Faults | None = None
    caps: Caps | None = None
    cast: Cast | None = None

    def run(self, chance: Chance) -> UnitsWorld:
        return explore.run(chance, self.shown_by, self.caps, self.cast)


def by(*promises: str) -> frozenset[str]:
    return frozenset(promises)


def in_reads_and_ends(name: str, change: Any) -> tuple[tuple[Any, str, Any], ...]:
    """A change of what reads outside of units do, and units that only read, at their end."""
    return (_reads, name, change), (_unit_of_work, name, change)


ISOLATION = ("serialisable", "history")
READS = ("cuts", "committed reads", "dirty")

VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(
            "native: what was read is not checked",
            by(*ISOLATION),
            ((_unit_of_work, "commit_natively", changes.native_without_checks),),
        ),
        Variant(
            "marked: what was read is not checked",
            by(*ISOLATION),
            ((_unit_of_work, "MarkedCommit", changes.MarkedWithoutChecks),),
        ),
        Variant(
            "marked: what was read is validated in a request before the commit",
            by(*ISOLATION),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatValidatesFirst),),
        ),
        Variant(
            "a guard that inserts do not write",
            by(*ISOLATION),
            ((Guards, "of_inserts", changes.no_guards),),
            cast=RANGES,
        ),
        Variant(
            "a guard that queries do not read",
            by(*ISOLATION),
            ((UnitOfWork, "_read_guard", changes.query_unguarded),),
            cast=RANGES,
        ),
        Variant(
            "a guard that is read after the items",
            by(*ISOLATION),
            (
                (UnitOfWork, "_read_guard", changes.query_unguarded),
                (Querying, "steps", changes.steps_and_the_guard),
            ),
            cast=RANGES,
        ),
        Variant(
            "a query that hides what it has not shown before",
            by(*ISOLATION, "committed reads"),
            ((Querying, "_is_as_read", changes.always_as_read),),
            cast=PREFETCHES,
        ),
        Variant(
            "an index with what was only read for later",
            by("committed reads"),
            ((Querying, "_is_known", changes.known_by_any_read),),
            cast=PREFETCHES,
        ),
        Variant(
            "a page of an index after an own item begins with what was before it",
            by("pages"),
            ((Querying, "_own", changes.own_without_what_it_follows),),
            cast=PREFETCHES,
        ),
        Variant(
            "an index that is read at another level than was asked for",
            by("levels"),
            ((UnitOfWork, "query", changes.query_at_committed),),
            cast=PREFETCHES,
        ),
        Variant(
            "an item and its guard in one transaction",
            by(*ISOLATION),
            ((UnitOfWork, "_has_to_mark", changes.never_by_marks),),
            NONE,
            Caps(),
            replace(RANGES, engines=(None,)),
        ),
        Variant(
            "native writes that ignore marks",
            by(*ISOLATION, "atomicity"),
            ((_commit, "write", changes.without(_commit.write, _conditions.UNMARKED)),),
            HALF_WAY,
            cast=CHECKS,
        ),
        Variant(
            "native checks that ignore marks",
            by(*ISOLATION),
            ((_commit, "check", changes.without(_commit.check, _conditions.UNMARKED)),),
            HALF_WAY,
            cast=CHECKS,
        ),
        Variant(
            "commit checks that ignore marks",
            by(*ISOLATION),
            ((_marked, "check", changes.without(_commit.check, _conditions.UNMARKED)),),
            HALF_WAY,
            cast=replace(CHECKS, engines=("marked",)),
        ),
        Variant(
            "native writes that ignore the version",
            by(*ISOLATION),
            ((_commit, "write", changes.without(_commit.write, _conditions.AT_THE_VERSION_I_SAW)),),
        ),
        Variant(
            "an insert's mark without the check on the head",
            by("atomicity", "nothing left", *READS, *ISOLATION),
            ((_unit_of_work, "MarkedCommit", changes.MarkedWithoutTheHead),),
            TWICE,
            cast=INSERTS,
        ),
        Variant(
            "a mark without the version",
            by(*ISOLATION, "atomicity"),
            ((MarkedCommit, "_mark", changes.without(MarkedCommit._mark, _conditions.AT_THE_VERSION_I_SAW)),),
        ),
        Variant(
            "a new value without the mark",
            by("atomicity", *ISOLATION, *READS),
            tuple((module, "finish", changes.finish_without_mark) for module in (_marked, _meeting, _sweeping)),
        ),
        Variant(
            "commit of any state",
            by("atomicity", "outcomes", *ISOLATION),
            ((UnitRecords, "commit", changes.without(UnitRecords.commit, _conditions.HEAD_IS_PENDING)),),
        ),
        Variant(
            "rollback of any state",
            by("atomicity", "outcomes", *READS, *ISOLATION),
            ((UnitRecords, "roll_back", changes.roll_back_of_any),),
        ),
        Variant(
            "the mark of a pending unit is removed",
            by("atomicity", *ISOLATION),
            ((Meeting, "resolve", changes.unmark_of_pending),),
        ),
        Variant(
            "time to live at the commit",
            by("atomicity", "outcomes", *READS, *ISOLATION),
            ((UnitRecords, "commit", changes.commit_with_time_to_live),),
            HALF_WAY_FOR_DAYS,
            cast=CHECKS,
        ),
        Variant(
            "closed before applied",
            by("atomicity", *READS, *ISOLATION),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatClosesBefore),),
        ),
        Variant(
            "a reader treats a missing record as rolled back",
            by(*READS, *ISOLATION),
            ((_reading, "_undecided", changes.undecided_or_gone),),
            STUCK,
            cast=CUTS,
        ),
        Variant(
            "a coordinator treats its missing record as rolled back",
            by("outcomes"),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatTakesGoneAsRolledBack),),
            UNHEARD_DAYS,
            cast=SLEEPERS,
        ),
        Variant(
            "a refusal is reported although an earlier attempt may still arrive",
            by("outcomes"),
            ((_state, "TRANSITIONS", changes.NO_ATTEMPT_ARRIVES_LATE),),
            CUT_OFF,
        ),
        Variant("dirty committed reads", by(*READS), ((Reader, "_images", changes.images_dirty),)),
        Variant(
            "committed reads that ignore the unit's record",
            by(*READS),
            ((Reader, "_images", changes.images_of_the_items),),
        ),
        Variant(
            "a cut without a second read of the heads",
            by("cuts", *ISOLATION),
            ((Reader, "_with_heads", changes.with_heads_by_one_read),),
            Faults({"pause": 60}),
            cast=CUTS,
        ),
        Variant(
            "heads read beside transactions",
            by("cuts", *ISOLATION),
            ((UnitRecords, "read_together", changes.heads_read_plainly),),
            NONE,
            cast=replace(CHECKS, beside={"watcher": 20}),
        ),
        Variant("a cut by plain reads", by("cuts", *ISOLATION), ((Reader, "_together", changes.one_by_one),)),
        Variant(
            "a cut without what the unit has read before",
            by("cuts"),
            ((UnitOfWork, "_read_in", changes.read_in_the_new_alone),),
        ),
        Variant(
            "a committed read of what the unit has read before",
            by("cuts", "committed reads"),
            ((UnitOfWork, "_newest", changes.newest_of_the_new_alone),),
        ),
        Variant(
            "a cut under read locks that may be gone",
            by("cuts"),
            ((ReadLocks, "_check_pending", changes.check_no_earlier_marks),),
            cast=replace(LOCKING, clients=4, verbs=("append", "append", "get all")),
        ),
        Variant(
            "a unit that only reads, and is not validated",
            by(*ISOLATION),
            in_reads_and_ends("changed_since", changes.nothing_has_changed),
            caps=Caps(together=2),
        ),
        Variant(
            "a snapshot by plain reads",
            by(*ISOLATION),
            in_reads_and_ends("changed_since", changes.changed_by_plain_reads),
            NONE,
            Caps(actions=2),
            SNAPSHOTS,
        ),
        Variant(
            "a snapshot that ignores marks",
            by(*ISOLATION),
            in_reads_and_ends("changed_since", changes.changed_apart_from_marks),
            HALF_WAY,
            Caps(actions=2, together=2),
            SNAPSHOTS,
        ),
        Variant(
            "a snapshot that reads what is absent last",
            by(*ISOLATION),
            ((_snapshots, "absent_first", changes.absent_last),),
            NONE,
            Caps(together=1),
            ABSENCES,
        ),
        Variant(
            "a snapshot of more absent items than one transaction reads",
            by(*ISOLATION),
            in_reads_and_ends("are_too_many_absent", changes.never_too_many),
            NONE,
            Caps(together=1),
            ABSENCES,
        ),
        Variant(
            "a check that counts as a read",
            by("checks"),
            ((UnitOfWork, "_validate", changes.validate_no_checks),),
        ),
        Variant(
            "a check by a plain read at the commit",
            by("checks"),
            ((Reader, "serializable", changes.serializable_by_plain_reads),),
            NONE,
            cast=ASSERTIONS,
        ),
        Variant(
            "a plain writer whose condition for an old item holds for a deleted one",
            by(*ISOLATION, "atomicity"),
            ((beside, "FOR_NO_VERSION", "attribute_not_exists(#mark) AND attribute_not_exists(#version)"),),
            cast=OLDER,
        ),
        Variant(
            "a placeholder deleted unconditionally",
            by("atomicity", *ISOLATION),
            tuple((module, "unmark", changes.unmark_unconditionally) for module in (_marked, _meeting, _sweeping)),
            Faults({"late": 60, "pause": 60}),
            cast=INSERTS,
        ),
        Variant(
            "a new token for each try",
            by("atomicity", "outcomes"),
            ((TransactWrite, "calls", changes.new_token(TransactWrite.calls)),),
        ),
        Variant(
            "a refusal after a lost reply is treated as a conflict",
            by("outcomes"),
            ((_unit_of_work, "commit_natively", changes.commits_natively_taking_refusals),),
            LATE,
            cast=replace(INSERTS, engines=("native", "marked"), rests_ms=NO_REST),
        ),
        Variant(
            "closed at once in spite of unanswered requests",
            by("nothing left"),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatClosesAtOnce),),
            TWICE,
            cast=INSERTS,
        ),
        Variant(
            "marks after the lease",
            by("nothing left"),
            ((_unit_of_work, "MarkedCommit", changes.MarkedPastTheLease),),
            DEADLY_DAYS,
            cast=replace(SLEEPERS, rounds=8, beside={"sweeper": 24}),
        ),
        Variant(
            "a rollback is reported before the record is decided",
            by("outcomes"),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatReportsBefore),),
            CUT_OFF,
        ),
        Variant("wound without order", by("order"), ((Meeting, "wait_or_wound", changes.pass_by_without_order),)),
        Variant(
            "a commit that makes a record where there is none",
            by("atomicity", *READS, *ISOLATION),
            ((UnitRecords, "commit", changes.commit_that_creates),),
            DAYS,
            cast=SLEEPERS,
        ),
        Variant(
            "a record that is made again",
            by("atomicity", "outcomes", *READS, *ISOLATION),
            ((UnitRecords, "open", changes.open_again),),
            TWICE_AND_HALF_WAY,
            cast=INSERTS,
        ),
        Variant(
            "rows that are written after their record's end, and stay",
            by("nothing left"),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatWritesAfterTheEnd),),
            Faults({"freeze": 60}),
            Caps(actions=2, inline_bytes=0),
            cast=SLEEPERS,
        ),
        Variant(
            "a transaction that is repeated after its token is forgotten",
            by("atomicity"),
            ((TransactWrite, "repeatable_for_ms", changes.FOR_EVER_MS),),
            Faults({"reply_lost": 100, "overslept": 200}),
            cast=TOKENS,
        ),
        Variant(
            "a refusal that blocks the rollback",
            by("let go"),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatStaysWhenRefused),),
            Faults({"refused": 60}),
        ),
        Variant(
            "a commit that does not report what DynamoDB refuses after the decision",
            by("told"),
            ((_unit_of_work, "MarkedCommit", changes.MarkedThatKeepsSilent),),
            REFUSING,
            cast=CORRECTIONS,
        ),
        Variant(
            "a correction of an item that may be finished",
            by("atomicity", *ISOLATION, *READS),
            ((_operators, "_ends", changes.without(_operators._ends, _conditions.MARKED_BY_THE_UNIT)),),
            REFUSING,
            cast=CORRECTIONS,
        ),
        Variant(
            "a head that is not in the index of open ones",
            by("nothing left"),
            ((_record, "_row", changes.head_out_of_the_index),),
        ),
        Variant(
            "a closed head that stays in the index of open ones",
            by("nothing left"),
            ((UnitRecords, "close", changes.close_that_stays_in_the_index),),
        ),
        Variant(
            "a head that leaves the index before its rows are deleted",
            by("nothing left"),
            ((UnitRecords, "close", changes.close_that_leaves_the_index),),
            OFTEN,
        ),
        Variant(
            "a sweep that ignores the age of a unit",
            by("alive", "nothing left"),
            ((_sweeping, "sweep_one", changes.sweep_of_any_age),),
            OFTEN,
        ),
        Variant(
            "a sweep that keeps its stored position at the end of the table",
            by("nothing left"),
            ((SweepPosition, "forget", SweepPosition.read),),
            cast=SWEEPS,
        ),
        Variant(
            "a network that duplicates an answered request",
            by("nothing left", "atomicity"),
            (),
            Faults({"duplicated": 60}),
        ),
        Variant(
            "a save without rev",
            by("fork"),
            ((UnitRecords, "save", changes.without(UnitRecords.save, _conditions.REV_AS_I_SAW)),),
            cast=SAVES,
        ),
        Variant(
            "a claim of a saved unit without rev",
            by("fork"),
            ((UnitRecords, "claim", changes.without(UnitRecords.claim, _conditions.REV_AS_I_SAW)),),
            cast=SAVES,
        ),
        Variant(
            "a commit of a saved unit without rev",
            by("fork"),
            ((UnitRecords, "end_saved", changes.without(UnitRecords.end_saved, _conditions.REV_AS_I_SAW)),),
            cast=SAVES,
        ),
        Variant(
            "a commit of a saved unit in any state",
            by("fork", "outcomes", "atomicity"),
            ((UnitRecords, "end_saved", changes.without(UnitRecords.end_saved, _conditions.HEAD_IS_PENDING)),),
            cast=SAVES,
        ),
        Variant(
            "a save that does not remember its step",
            by("step"),
            ((_saved, "with_step", changes.with_no_step),),
            cast=SAVES,
        ),
        Variant(
            "a save that does not ask whether its owner has ended",
            by("owner"),
            ((_saved, "owner_goes_on", changes.saved_under_an_ended_one),),
            cast=SAVES,
        ),
        Variant(
            "an end of an owner that reads its units before it refuses saves",
            by("owner"),
            ((_saved, "end_owner", changes.end_owner_too_late),),
            cast=SAVES,
        ),
        Variant(
            "a unit resumed without its checks",
            by(*ISOLATION),
            ((_saved, "work_of", changes.work_without_checks),),
            cast=SAVES,
        ),
        Variant(
            "a resumed unit without the settings of its client",
            by("resumed"),
            ((_saved, "terms_of", changes.terms_with_no_setting),),
            cast=SAVES,
        ),
        Variant(
            "an upgraded read lock that is unmarked without its write",
            by("atomicity", *ISOLATION, *READS),
            ((_read_locks, "entry_of", changes.entry_of_what_was_read),),
            cast=LOCKING,
        ),
        Variant(
            "a read lock without the version that was read",
            by("atomicity", *ISOLATION),
            ((ReadLocks, "_mark", changes.without(ReadLocks._mark, _conditions.AT_THE_VERSION_I_SAW)),),
            cast=LOCKING,
        ),
        Variant(
            "a read lock whose key is not in the record",
            by("nothing left"),
            ((ReadLocks, "_write_keys", changes.write_no_keys),),
            cast=LOCKING,
        ),
        Variant(
            "read locks after the lease",
            by("nothing left"),
            ((_reads, "ReadLocks", changes.LockingPastTheLease),),
            DEADLY_DAYS,
            cast=replace(SLEEPERS, rounds=8, beside={"sweeper": 24}, locking=True),
        ),
        Variant(
            "a repeated unit that marks what it reads",
            by("exactly once"),
            ((UnitOfWork, "_read_unread", changes.read_unread_by_marks),),
            cast=replace(LOCKING, names=("n1",)),
        ),
        Variant(
            "a name that is given up by a counter",
            by("outcomes"),
            ((beside, "outcome_of_name", changes.given_up_by_a_counter),),
            NONE,
            Caps(receipts_are_kept_s=60),
            NAMED,
        ),
        Variant(
            "a name whose receipt was deleted counts as used",
            by("kept"),
            ((Receipt, "still_lets", Receipt.__eq__),),
            NONE,
            Caps(receipts_are_kept_s=60),
            NAMED,
        ),
        Variant(
            "a result that is kept by a request after the commit",
            by("one result"),
            (
                (_commit, "writes_beside", changes.beside_without_the_result),
                (_marked, "writes_beside", changes.beside_without_the_result),
                (UnitOfWork, "_note_committed", changes.committed_and_then_kept),
            ),
        ),
        Variant(
            "a repeated unit that tells its own result",
            by("one result"),
            ((UnitOfWork, "keep", changes.keep_its_own),),
        ),
        Variant(
            "a name that is taken unconditionally",
            by("exactly once"),
            (
                (_conditions, "RECEIPT_GIVEN_UP_AS_I_SAW", changes.ALWAYS),
                (_conditions, "NO_SUCH_ROW", changes.ALWAYS),
            ),
        ),
    )
}
