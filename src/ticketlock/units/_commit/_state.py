"""The states of a unit, and of its record as its coordinator knows it: each in one table of transitions.

All other files report events; what a state means, and which events it allows, stands here alone (as in h11's
``_state.py``). A unit runs one method at a time.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeVar

from ticketlock.errors import ClientClosed, InvalidUnitRequest, TicketLockError, UnitConflict, UnitFinished
from ticketlock.wire import OwnProcess, is_foreign

S = TypeVar("S", bound=str)

StateName = Literal[
    "open",
    "already committed",
    "saving",
    "committing",
    "deciding",
    "may decide late",
    "decided",
    "committed",
    "rolled back",
    "saved",
    "unknown",
]
"""``already committed``: resumed after its commit. ``saving``, ``deciding``: a request that hands it on, or commits it,
may be under way. ``may decide late``: such a request got no answer. ``decided``: committed, and not finished yet."""

Event = Literal[
    "resumes a committed unit",
    "begins to commit",
    "sends the decision",
    "gets no answer",
    "decision is refused",
    "decision is applied",
    "is ruled out",
    "is committed",
    "fails",
    "is of unknown outcome",
    "sends the save",
    "save is refused",
    "is saved",
    "is interrupted",
]

_OPEN: tuple[StateName, ...] = ("open", "already committed", "saving")
_OVER: tuple[StateName, ...] = ("committed", "rolled back", "saved", "unknown")
_ENDS: Mapping[StateName, StateName] = {
    **{name: name for name in _OVER},
    **dict.fromkeys(("open", "committing"), "rolled back"),
    **dict.fromkeys(("saving", "deciding", "may decide late"), "unknown"),
    **dict.fromkeys(("already committed", "decided"), "committed"),
}
"""What an error makes of a state, whatever it says: whether the unit is committed is known from earlier events."""


class _After(dict[S, S]):
    """What an event makes of each state in which it may come."""

    def __init__(self, event: str, states: Mapping[S, S]) -> None:
        super().__init__(states)
        self._event = event

    def __missing__(self, state: S) -> S:
        raise AssertionError(f"in the state {state!r} comes the event {self._event!r}, which has no transition from it")


_AFTER: Mapping[Event, Mapping[StateName, StateName]] = {
    "resumes a committed unit": {"open": "already committed"},
    "begins to commit": {"open": "committing", "already committed": "decided"},
    "sends the decision": {"committing": "deciding", "deciding": "deciding", "may decide late": "may decide late"},
    "gets no answer": {"deciding": "may decide late", "may decide late": "may decide late"},
    # The cause of a refusal may have gone by the time an earlier attempt arrives.
    "decision is refused": {"deciding": "committing", "may decide late": "may decide late"},
    "decision is applied": {
        **dict.fromkeys(("committing", "deciding", "may decide late", "decided"), "decided"),
        # What an interrupt has ended turns out to be committed, or rolled back.
        **dict.fromkeys(("committed", "rolled back", "unknown"), "committed"),
    },
    "is committed": {"committing": "committed", "decided": "committed"},
    # By its record: no request can commit it any more.
    "is ruled out": {
        "open": "open",
        **dict.fromkeys(("committing", "deciding", "may decide late"), "committing"),
        **dict.fromkeys(("rolled back", "unknown"), "rolled back"),
    },
    "fails": _ENDS,
    "is of unknown outcome": dict.fromkeys(("committing", "deciding", "may decide late", "rolled back"), "unknown"),
    "sends the save": {"open": "saving"},
    "save is refused": {"saving": "open"},
    "is saved": dict.fromkeys(_OPEN, "saved"),
    "is interrupted": _ENDS,
}
TRANSITIONS: Mapping[Event, Mapping[StateName, StateName]] = {
    event: _After(event, states) for event, states in _AFTER.items()
}
"""What each event makes of a state. A pair that is missing cannot be."""

_IN_WORDS: Mapping[StateName, str] = {
    "already committed": "open",
    "saving": "open",
    "committing": "being committed",
    "deciding": "being committed",
    "may decide late": "being committed",
    "decided": "being committed",
    "unknown": "over, and its outcome unknown",
}

RecordPhase = Literal["none", "recorded", "lost", "ending", "settled"]
"""What a coordinator knows of the record of a marked unit: there is none; there may be one; another process has ended
it; the unit's own end has begun; an interrupt leaves nothing to do."""

RecordEvent = Literal["is written", "is lost", "begins to end", "is settled"]

_RECORD_AFTER: Mapping[RecordEvent, Mapping[RecordPhase, RecordPhase]] = {
    "is written": {"none": "recorded"},
    "is lost": {"recorded": "lost", "lost": "lost", "ending": "ending", "settled": "settled"},
    "begins to end": {
        "none": "settled",
        "recorded": "ending",
        "lost": "ending",
        "ending": "ending",
        "settled": "settled",
    },
    "is settled": dict.fromkeys(("none", "recorded", "lost", "ending", "settled"), "settled"),
}
RECORD_TRANSITIONS: Mapping[RecordEvent, Mapping[RecordPhase, RecordPhase]] = {
    event: _After(event, phases) for event, phases in _RECORD_AFTER.items()
}


class OwnRecord:
    """The phase of one unit's record."""

    def __init__(self) -> None:
        self._phase: RecordPhase = "none"

    def note(self, event: RecordEvent) -> None:
        self._phase = RECORD_TRANSITIONS[event][self._phase]

    @property
    def may_exist(self) -> bool:
        """Whether there may be a record of which an end is to be written."""
        return self._phase in ("recorded", "lost", "ending")

    @property
    def is_standing(self) -> bool:
        """Whether there may be a record, and nothing of this process ends it yet."""
        return self._phase in ("recorded", "lost")

    @property
    def has_to_be_kept(self) -> bool:
        return self._phase == "recorded"

    @property
    def is_ending(self) -> bool:
        return self._phase in ("ending", "settled")


class UnitState:
    """The state of one unit.

    Attributes:
        is_reported: whether its commit has raised an error which says that it was not committed. Not after a conflict:
            the caller was to run the unit again, and goes on with its block.
    """

    def __init__(self, unit: str) -> None:
        self._name: StateName = "open"
        self.is_reported = False
        self._unit = unit
        self._process = OwnProcess()
        self._in_use = threading.Lock()
        self._has_refused = False

    def note(self, event: Event) -> None:
        self._name = TRANSITIONS[event][self._name]

    @property
    def is_open(self) -> bool:
        return self._name in _OPEN

    @property
    def is_over(self) -> bool:
        """Whether it has ended: committed, rolled back, saved, or with an unknown outcome."""
        return self._name in _OVER

    @property
    def is_committed(self) -> bool:
        """Whether it is committed, perhaps not finished yet."""
        return self._name in ("decided", "committed")

    @property
    def is_finished(self) -> bool:
        return self._name == "committed"

    @property
    def is_rolled_back(self) -> bool:
        return self._name == "rolled back"

    @property
    def may_decide_late(self) -> bool:
        """Whether a request to commit it may still arrive."""
        return self._name == "may decide late"

    @property
    def may_run_again(self) -> bool:
        """Whether nothing of it was written, and nothing will be."""
        return self._name in ("open", "rolled back")

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was begun in this process, and not in one that this was forked from."""
        return self._process.is_this

    def check_process(self) -> None:
        if not self._process.is_this:
            raise ClientClosed(
                f"the unit {self._unit} belongs to the process that this one was forked from: "
                "make `Units` here, and begin another"
            )

    def alone(self) -> "_Alone":
        """Within the block one method is running: a statement of a second one would be lost.

        Raises:
            InvalidUnitRequest: another method is running, in another thread or task, or under a signal handler.
            UnitFinished: the unit has ended.
            ClientClosed: this process was forked from the one that has begun it.
        """
        return _Alone(self)

    def begin_method(self) -> None:
        """Begin the block of ``alone``; raises the same."""
        # Before the lock: a thread of the parent that held it at the fork does not exist here to release it.
        self.check_process()
        if not self._in_use.acquire(blocking=False):
            self.check_open()
            self._has_refused = True
            allowed = "a unit for one thread or task at a time: one of its methods is under way, await that first"
            raise InvalidUnitRequest("unit", self._unit, allowed, is_of_units=True)
        try:
            self.check_open()
        except BaseException:
            self.end_method()
            raise

    def end_method(self) -> None:
        """End the block of ``alone``."""
        self._in_use.release()

    def check_open(self) -> None:
        if not self.is_open:
            then = "`resume` continues it" if self._name == "saved" else "begin another"
            raise UnitFinished(f"the unit {self._unit} is {self.in_words}: {then}")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Within the block the caller commits the unit; note whether an error says that it was not committed."""
        try:
            yield
        except TicketLockError as error:
            self.is_reported = not self.is_open and not isinstance(error, UnitConflict) and not is_foreign(error)
            raise

    def check_can_end(self) -> None:
        """Refuse to end a block beside a method that still runs, if a call was refused for it already."""
        if self._has_refused and self._in_use.locked():
            raise UnitFinished(
                f"the block has ended while a method of its unit {self._unit} was under way, beside which another call "
                "was refused: the unit is rolled back; await each call before the next"
            )

    def check_committed_or_reported(self) -> None:
        """Refuse to end a block without an error if its unit was not committed and its commit has raised no error."""
        if self._name not in ("committed", "saved") and not self.is_reported:
            raise UnitFinished(
                f"the block has ended without an error, but its unit {self._unit} is {self.in_words}: what has "
                "ended it, a conflict, an interrupt or a cancellation in one of its methods, was caught in the block: "
                "catch it around the block, and run that again"
            )

    @property
    def in_words(self) -> str:
        return _IN_WORDS.get(self._name, self._name)


class _Alone:
    """The block of one method. A class: every statement has one, and ``contextmanager`` takes three times as long."""

    __slots__ = ("_state",)

    def __init__(self, state: UnitState) -> None:
        self._state = state

    def __enter__(self) -> None:
        self._state.begin_method()

    def __exit__(self, *_: object) -> None:
        self._state.end_method()
