"""Units that are broken on purpose: each lacks one of its precautions, and breaks a promise."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from property.chance import Seeded
from property.failures import FAILURES, kind_of
from property.on_purpose import BrokenOnPurpose, asking_less
from property.units import changes
from property.units.casts import CHECKS, CUTS, INSERTS, SLEEPERS, TOKENS, Cast
from property.units.explore import Caps, run
from property.units.mishaps import RATES, Mishaps

from ticketlock.errors import OutcomeUnknown, TableError, UnitForgotten, UnitRolledBack
from ticketlock.units import (
    _commit,
    _facts,
    _finishing,
    _marked,
    _meeting,
    _native,
    _reading,
    _sweeping,
    _verbs,
    _writes,
)
from ticketlock.units._heads import Head, Heads
from ticketlock.units._marked import MarkedCommit
from ticketlock.units._marks import Marks
from ticketlock.units._meeting import Marked, Meeting
from ticketlock.units._reading import Reading, Wanted
from ticketlock.units._work import Place
from ticketlock.wire._item_requests import Get
from ticketlock.wire._requests import ForkingSteps, Pause, Reply, TransactWrite, Write

ALWAYS = "attribute_not_exists(nothing)"
OFTEN = Mishaps({name: 3 * rate for name, rate in RATES.items()})
STUCK = Mishaps({"pause": 60, "crash": 8, "outage": 20})
LATE = Mishaps({"late": 200, "pause": 20})
ASLEEP = Mishaps({"reply_lost": 60, "late": 40, "pause": 40, "freeze": 10, "expire": 40, "crash": 10, "outage": 10})
HALF_WAY = Mishaps({"half_way": 100, "pause": 30})
TWICE = Mishaps({"twice": 150, "late": 50})
DAYS = Mishaps({"throttled": 60, "overslept": 200, "crash": 10, "expire": 150})
CUT_OFF = Mishaps({"late": 100, "reply_lost": 100, "outage": 30, "abandoned": 60})


@dataclass(frozen=True)
class Variant(BrokenOnPurpose):
    """One change.

    Attributes:
        name: what is wrong.
        caught_by: the promises that it breaks: by one of them it has to be caught.
        changes: what is replaced: module or class, attribute, value.
        shown_by: the mishaps in which it shows; None for a mixture drawn for each schedule.
        caps: how much fits where it shows; None for a mixture as well.
        cast: who there is where it shows; the same.
    """

    name: str
    caught_by: frozenset[str]
    changes: tuple[tuple[Any, str, Any], ...]
    shown_by: Mishaps | None = None
    caps: Caps | None = None
    cast: Cast | None = None


@dataclass(frozen=True, slots=True)
class Caught:
    """The first schedule on which a broken one breaks a promise that may catch it."""

    seed: int
    promise: str


def first_broken(variant: Variant, seeds: Iterable[int]) -> Caught | None:
    """Search for it."""
    with variant.instead():
        for seed in seeds:
            try:
                run(Seeded(seed), variant.shown_by, variant.caps, variant.cast)
            except FAILURES as failure:
                if kind_of(failure) in variant.caught_by:
                    return Caught(seed, kind_of(failure))
    return None


def by(*promises: str) -> frozenset[str]:
    return frozenset(promises)


ISOLATION = ("serialisable", "history")
READS = ("cuts", "committed reads", "dirty")


without = partial(asking_less, ALWAYS)


# Checks.


def native_without_checks(places: Sequence[Place], marks: Marks, commit: Any, meeting: Meeting) -> ForkingSteps[None]:
    return _COMMIT_NATIVELY([each for each in places if each.writes] or places, marks, commit, meeting)


_COMMIT_NATIVELY = _native.commit_natively


class MarkedWithoutChecks(MarkedCommit):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._checked = []


class MarkedThatValidatesFirst(MarkedCommit):
    """Looks at what was read, and commits in a request of its own."""

    def _decide(self) -> ForkingSteps[None]:
        for place in self._checked:
            reply: Reply = yield Get(place.table.name, place.key)
            if not _reading.is_as_seen(reply.item, place.seen, self._marks):
                raise _commit.conflict([place])
        self._checked = []
        yield from super()._decide()


class MarkedWithoutTheHead(MarkedCommit):
    """Marks what is absent without a look at the head.

    A copy of the mark comes late: the unit is finished, and another one has deleted the item. It is marked once more,
    as absent as it was before, and whoever meets the mark writes the deleted value again.
    """

    def _batches(self, left: Sequence[Place]) -> Any:
        return [(self._mark(place), [place]) for place in left]


class MarkedPastTheLease(MarkedCommit):
    """Marks however late.

    A process sleeps before it sends a mark again. Its unit is rolled back meanwhile, and closed after ten minutes, when
    no copy comes any more. It wakes, marks, and dies: nobody looks at the record again, and the mark stays.
    """

    def _mark(self, place: Place) -> Write:
        return replace(super()._mark(place), not_after_local_ms=None)


class MarkedThatTellsBefore(MarkedCommit):
    """Tells of its end before the record says so."""

    def _abort(self, error: Any) -> ForkingSteps[bool]:
        yield from self._unmark_all()
        if isinstance(error, OutcomeUnknown):
            raise UnitRolledBack(str(error))
        return False


class MarkedThatClosesAtOnce(MarkedCommit):
    def _note(self, reply: Reply) -> None:
        pass


class MarkedThatClosesBefore(MarkedCommit):
    """Closed before the new values are written."""

    def _finish(self) -> ForkingSteps[None]:
        reply: Reply = yield Pause(0)
        yield from _finishing.close(self._heads, self._head, reply.now.latest_ms)
        yield from super()._finish()


def pass_by_without_order(self: Meeting, met: Marked) -> ForkingSteps[None]:
    """Everybody rolls back whom they meet.

    Two that meet may do so for ever: who is the oldest is no safer than others.
    """
    while (pending := (yield from self.resolve(met))) is not None:
        head, now = pending
        yield self._heads.roll_back(head.unit, now.latest_ms, by=self._age[1])


def tells_of_gone(head: Head | None) -> bool:
    """What is gone, or closed, did not commit: what was read stands."""
    return head is None or head.is_closed or head.state != "committed"


class MarkedThatIsToldOfGone(MarkedCommit):
    """A record that is gone was rolled back."""

    def _ended(self, row: Any) -> Any:
        error = super()._ended(row)
        return UnitRolledBack(str(error)) if isinstance(error, UnitForgotten) else error


class MarkedThatTellsTheRefusal(MarkedCommit):
    """Tells why it was refused, whatever may come late."""

    @property
    def _may_decide_late(self) -> bool:
        return False

    @_may_decide_late.setter
    def _may_decide_late(self, _: bool) -> None:
        pass


def of_one_instant_by_one_look(self: Reading, batch: Sequence[Wanted]) -> ForkingSteps[Any]:
    """The heads are read once, after the items.

    The items are read when a unit has marked one and not the other yet. It marks that too, and is committed; then its
    head is read. One item is read as the unit writes it, the other as it was before.
    """
    items = yield from self._together(batch)
    units = {met.mark.unit for each, item in zip(batch, items, strict=True) if (met := self._met(each, item))}
    after = {}
    for unit in sorted(units):
        reply: Reply = yield self._heads.read(unit)
        after[unit] = Head.of(reply.item) if reply.item is not None else None
    return items, after


def one_by_one(self: Reading, batch: Sequence[Wanted]) -> ForkingSteps[Any]:
    """A cut by plain reads."""
    items = []
    for each in batch:
        reply: Reply = yield Get(each.table.name, each.key)
        items.append(self._checked(reply.item))
    return items


def images_dirty(self: Reading, batch: Sequence[Wanted], items: Any, heads: Any) -> ForkingSteps[Any]:
    """What a pending unit is about to write is taken for committed."""
    told = {unit: None if head is None else replace(head, state="committed") for unit, head in heads.items()}
    return (yield from _IMAGES(self, batch, items, told))


def images_as_they_stand(self: Reading, _batch: Any, items: Any, _records: Any) -> ForkingSteps[Any]:
    """What stands in the item, whatever its unit has become."""
    yield from ()
    return [_reading.image_of(item, self._marks) for item in items]


_IMAGES = Reading._images


def new_token(original: Callable[..., Any]) -> Callable[..., Any]:
    def calls(self: TransactWrite, table: str, _identity: str) -> Any:
        return original(replace(self, token=uuid.uuid4().hex), table, "")

    return calls


def commits_natively_taking_refusals(
    places: Sequence[Place], marks: Marks, commit: Any, meeting: Meeting
) -> ForkingSteps[None]:
    """A refusal is of the last attempt, whatever became of those before."""
    steps = _COMMIT_NATIVELY(places, marks, commit, meeting)
    request = next(steps)
    while True:
        try:
            reply = yield request
            if isinstance(reply, Reply) and not reply.applied:
                reply = replace(reply, repeated=False, items=tuple(_unversioned(item, commit) for item in reply.items))
        except TableError as error:
            request = _next(partial(steps.throw, error))
        else:
            request = _next(partial(steps.send, reply))
        if request is None:
            return


def _unversioned(item: Any, commit: Any) -> Any:
    if item is None or item.get("_tluVersion", {}).get("S") != commit.unit:
        return item
    return {**item, "_tluVersion": {"S": "0" * 26}}


def _next(go: Callable[[], Any]) -> Any:
    try:
        return go()
    except StopIteration:
        return None


def roll_back_of_any(self: Heads, unit: str, now_ms: int, **more: Any) -> Write:
    made = _ROLL_BACK(self, unit, now_ms, **more)
    return replace(made, condition="attribute_exists(#state)")


_ROLL_BACK = Heads.roll_back


def commit_with_time_to_live(self: Heads, head: Head, now_ms: int) -> Write:
    made = _COMMIT(self, head, now_ms)
    return replace(
        made,
        update=f"{made.update}, #ttl = :until",
        values={**made.values, ":until": {"N": str(now_ms // 1_000)}},
    )


_COMMIT = Heads.commit


def unmark_of_pending(self: Meeting, met: Marked) -> ForkingSteps[Any]:
    """Whoever meets a mark of a pending unit takes it off."""
    found = yield from _RESOLVE(self, met)
    if found is not None:
        yield self._unmark(met)
    return None


_RESOLVE = Meeting.resolve


def unmark_unconditionally(entry_table: str, key: Any, key_name: str, mark: Any, marks: Marks) -> Write:
    """A placeholder is deleted, whatever stands there by now."""
    made = _finishing.unmark(entry_table, key, key_name, mark, marks)
    return replace(made, condition=ALWAYS) if mark.kind == "insert" else made


def finish_without_mark(entry: Any, unit: str, marks: Marks) -> Write:
    made = _FINISH(entry, unit, marks)
    return replace(made, condition=ALWAYS)


_FINISH = _finishing.finish

VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(
            "native: what was read is not checked",
            by(*ISOLATION),
            ((_verbs, "commit_natively", native_without_checks),),
        ),
        Variant(
            "marked: what was read is not checked", by(*ISOLATION), ((_verbs, "MarkedCommit", MarkedWithoutChecks),)
        ),
        Variant(
            "marked: what was read is looked at, and then committed",
            by(*ISOLATION),
            ((_verbs, "MarkedCommit", MarkedThatValidatesFirst),),
        ),
        Variant(
            "native writes that ignore marks",
            by(*ISOLATION, "atomicity"),
            ((_native, "write", without(_writes.write, _facts.UNMARKED)),),
        ),
        Variant(
            "native checks that ignore marks",
            by(*ISOLATION),
            ((_native, "check", without(_writes.check, _facts.UNMARKED)),),
            HALF_WAY,
            cast=CHECKS,
        ),
        Variant(
            "commit checks that ignore marks",
            by(*ISOLATION),
            ((_marked, "check", without(_writes.check, _facts.UNMARKED)),),
            HALF_WAY,
            cast=replace(CHECKS, engines=("marked",)),
        ),
        Variant(
            "native writes that ignore the version",
            by(*ISOLATION),
            ((_native, "write", without(_writes.write, _facts.AT_THE_VERSION_I_SAW)),),
        ),
        Variant(
            "an insert's mark without the check on the head",
            by("atomicity", "nothing left", *READS, *ISOLATION),
            ((_verbs, "MarkedCommit", MarkedWithoutTheHead),),
            TWICE,
            cast=INSERTS,
        ),
        Variant(
            "a mark without the version",
            by(*ISOLATION, "atomicity"),
            ((MarkedCommit, "_mark", without(MarkedCommit._mark, _facts.AT_THE_VERSION_I_SAW)),),
        ),
        Variant(
            "a new value without the mark",
            by("atomicity", *ISOLATION, *READS),
            tuple((module, "finish", finish_without_mark) for module in (_marked, _meeting, _sweeping)),
        ),
        Variant(
            "commit of any state",
            by("atomicity", "told", *ISOLATION),
            ((Heads, "commit", without(Heads.commit, _facts.HEAD_IS_PENDING)),),
        ),
        Variant(
            "rollback of any state",
            by("atomicity", "told", *READS, *ISOLATION),
            ((Heads, "roll_back", roll_back_of_any),),
        ),
        Variant(
            "the mark of a pending unit is taken off",
            by("atomicity", *ISOLATION),
            ((Meeting, "resolve", unmark_of_pending),),
        ),
        Variant(
            "time to live at the commit",
            by("atomicity", "told", *READS, *ISOLATION),
            ((Heads, "commit", commit_with_time_to_live),),
            OFTEN,
        ),
        Variant(
            "closed before applied",
            by("atomicity", *READS, *ISOLATION),
            ((_verbs, "MarkedCommit", MarkedThatClosesBefore),),
        ),
        Variant(
            "gone taken for rolled back, by a reader",
            by(*READS, *ISOLATION),
            ((_reading, "_tells", tells_of_gone),),
            STUCK,
            cast=CUTS,
        ),
        Variant(
            "gone taken for rolled back, by its coordinator",
            by("told"),
            ((_verbs, "MarkedCommit", MarkedThatIsToldOfGone),),
            ASLEEP,
        ),
        Variant(
            "a refusal is told whatever may come late",
            by("told"),
            ((_verbs, "MarkedCommit", MarkedThatTellsTheRefusal),),
            CUT_OFF,
        ),
        Variant("dirty committed reads", by(*READS), ((Reading, "_images", images_dirty),)),
        Variant("committed reads of what stands there", by(*READS), ((Reading, "_images", images_as_they_stand),)),
        Variant(
            "a cut without a second look at the heads",
            by("cuts", *ISOLATION),
            ((Reading, "_of_one_instant", of_one_instant_by_one_look),),
            Mishaps({"pause": 60}),
            cast=CUTS,
        ),
        Variant("a cut by plain reads", by("cuts", *ISOLATION), ((Reading, "_together", one_by_one),)),
        Variant(
            "a placeholder deleted unconditionally",
            by("atomicity", *ISOLATION),
            tuple((module, "unmark", unmark_unconditionally) for module in (_marked, _meeting, _sweeping)),
        ),
        Variant(
            "a new token for each try",
            by("atomicity", "told"),
            ((TransactWrite, "calls", new_token(TransactWrite.calls)),),
        ),
        Variant(
            "a refusal after a lost reply taken for a conflict",
            by("told"),
            ((_verbs, "commit_natively", commits_natively_taking_refusals),),
            CUT_OFF,
        ),
        Variant(
            "closed at once in spite of unanswered requests",
            by("nothing left"),
            ((_verbs, "MarkedCommit", MarkedThatClosesAtOnce),),
        ),
        Variant(
            "marks after the lease",
            by("nothing left"),
            ((_verbs, "MarkedCommit", MarkedPastTheLease),),
            DAYS,
            cast=SLEEPERS,
        ),
        Variant("told before it is decided", by("told"), ((_verbs, "MarkedCommit", MarkedThatTellsBefore),), CUT_OFF),
        Variant("wound without order", by("order"), ((Meeting, "pass_by", pass_by_without_order),)),
        Variant(
            "a commit that makes a record where there is none",
            by("atomicity", *READS, *ISOLATION),
            ((Heads, "commit", changes.commit_that_creates),),
            DAYS,
            cast=SLEEPERS,
        ),
        Variant(
            "a record that is made again",
            by("atomicity", "told", *READS, *ISOLATION),
            ((Heads, "open", changes.open_again),),
            TWICE,
        ),
        Variant(
            "a token that is outlived",
            by("atomicity"),
            ((TransactWrite, "repeatable_for_ms", changes.FOR_EVER_MS),),
            Mishaps({"reply_lost": 100, "overslept": 200}),
            cast=TOKENS,
        ),
        Variant(
            "a refusal that blocks the rollback",
            by("let go"),
            ((_verbs, "MarkedCommit", changes.MarkedThatStaysWhenRefused),),
            Mishaps({"refused": 60}),
        ),
        Variant(
            "a sweep to which every age is enough",
            by("alive", "nothing left"),
            ((_sweeping, "_sweep_one", changes.sweep_of_any_age),),
            OFTEN,
        ),
        Variant(
            "a network that doubles what is answered",
            by("nothing left", "atomicity"),
            (),
            Mishaps({"doubled": 60}),
        ),
        Variant(
            "a name that is taken whatever stands there",
            by("exactly once"),
            (
                (_facts, "RECEIPT_ROLLED_BACK_AS_I_SAW", ALWAYS),
                (_facts, "NO_SUCH_ROW", ALWAYS),
            ),
        ),
    )
}
