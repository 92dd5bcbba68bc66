"""Histories as files: an event a line, which any number of processes and threads append to."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ticketlock.wire._clocks import SystemClocks
from ticketlock_local.history.model import Acquisition, History, Outcome, Standing, Update

Action = Literal["acquire", "release", "update"]
Kind = Literal["invoked", "stands", "looks", "holds"] | Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a process knew at a moment of one of its operations.

    Attributes:
        process, operation: whose it is; the name of the operation is no other's.
        action, entity: what is done to what.
        kind: ``invoked`` is first, an outcome last; between them an acquisition ``stands`` in the queue, with a ticket
            and a lease, and ``looks`` and finds both as they were; after them it ``holds`` the lock. An operation
            without an outcome is unknown.
        local_ms: by the machine's clock that nobody sets.
        wall_ms: milliseconds since the epoch.
        of: the acquisition that a release or an update belongs to.
        shared, permits: what was asked for.
        ticket, fencing_token: what came back.
        until_ms: the end of a row's lease, or of the grant's, by the local clock.
        looked_ms: before the look that a grant rests on.
        found: the value of a counter.
        error: why it was refused, or is unknown.
    """

    process: str
    operation: str
    action: Action
    entity: str
    kind: Kind
    local_ms: int
    wall_ms: int
    of: str | None = None
    shared: bool | None = None
    permits: int | None = None
    ticket: int | None = None
    fencing_token: int | None = None
    until_ms: int | None = None
    looked_ms: int | None = None
    found: int | None = None
    error: str | None = None

    def line(self) -> str:
        """The event in a file."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None}) + "\n"


class Recorder:
    """Appends one process's events to a file.

    Args:
        path: a file that other recorders may append to as well.
        process: whose events they are; no other recorder's name.
    """

    def __init__(self, path: Path, process: str) -> None:
        self._path = path
        # There from now on, for those who read.
        self._path.open("ab").close()
        self._process = process
        self._clocks = SystemClocks()
        self._numbers = itertools.count(1)

    def begin(self, action: Action, entity: str, **facts: Any) -> "Recording":
        """Record the invocation of an operation; what becomes of it is told to what is returned."""
        recording = Recording(self, f"{self._process}/{next(self._numbers)}", action, entity)
        recording.tell("invoked", **facts)
        return recording

    def now_ms(self) -> int:
        """The local clock of the events."""
        return self._clocks.read().local_ms

    def append(self, operation: str, action: Action, entity: str, kind: Kind, facts: dict[str, Any]) -> None:
        """Write an event; its times are now, unless ``facts`` has an earlier ``local_ms``."""
        now = self._clocks.read()
        at = {"local_ms": now.local_ms, "wall_ms": now.wall_ms}
        event = Event(process=self._process, operation=operation, action=action, entity=entity, kind=kind, **at | facts)
        # Each line is one write at the end of the file, and there at once: a killed process loses none.
        with self._path.open("ab", buffering=0) as file:
            file.write(event.line().encode())


@dataclass(frozen=True, slots=True)
class Recording:
    """An operation that is being recorded.

    Attributes:
        operation: its name.
    """

    _recorder: Recorder
    operation: str
    action: Action
    entity: str

    def tell(self, kind: Kind, **facts: Any) -> None:
        """Record an event of it."""
        self._recorder.append(self.operation, self.action, self.entity, kind, facts)


def write(path: Path, events: Iterable[Event]) -> None:
    """Write a file anew."""
    path.write_text("".join(event.line() for event in events), encoding="utf-8")


class Seen:
    """What a file tells while it grows: each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """All events until now, in the order in which they were written."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    # It is being written.
                    break
                self._events.append(Event(**json.loads(line)))
                self._read += len(line)
        return self._events


def operations(events: Iterable[Event]) -> list[list[Event]]:
    """The events of each operation, its invocation first."""
    told: dict[str, list[Event]] = {}
    for event in events:
        told.setdefault(event.operation, []).append(event)
    return list(told.values())


def history(events: Iterable[Event]) -> History:
    """Put the events together: operations, with what is surely known of each."""
    acquiring: list[list[Event]] = []
    updating: list[list[Event]] = []
    belonging: dict[str, list[list[Event]]] = {}
    for told in operations(events):
        if told[0].action == "acquire":
            acquiring.append(told)
        elif told[0].action == "update":
            updating.append(told)
        if told[0].of is not None:
            belonging.setdefault(told[0].of, []).append(told)
    return History(
        [_acquisition(told, belonging.get(told[0].operation, ())) for told in acquiring],
        [_update(told) for told in updating],
    )


def outcome(told: Sequence[Event]) -> Outcome:
    """What became of the operation of these events."""
    for event in told:
        if event.kind == "applied" or event.kind == "refused":
            return event.kind
    return "unknown"


def _acquisition(told: Sequence[Event], belonging: Sequence[Sequence[Event]]) -> Acquisition:
    invoked = told[0]
    answer = next((event for event in told if event.kind == "applied"), None)
    ticket = next((event.ticket for event in reversed(told) if event.ticket is not None), None)
    updates = [each[0] for each in belonging if each[0].action == "update" and outcome(each) == "applied"]
    # Whoever writes acts as a holder, whether it has asked itself or not.
    held = [event.local_ms for event in told if event.kind == "holds"] + [sent.local_ms for sent in updates]
    releases = [outcome(each) for each in belonging if each[0].action == "release"]
    return Acquisition(
        process=invoked.process,
        entity=invoked.entity,
        outcome=outcome(told),
        invoked_ms=invoked.local_ms,
        looked_ms=invoked.local_ms if answer is None or answer.looked_ms is None else answer.looked_ms,
        granted_ms=answer.local_ms if answer is not None else None,
        ticket=ticket,
        fencing_token=answer.fencing_token if answer is not None else None,
        standings=_standings(told, ticket),
        held_until_ms=max(held, default=None),
        shared=bool(invoked.shared),
        permits=invoked.permits or 1,
        is_over=outcome(told) == "refused" or any(each != "unknown" for each in releases),
    )


def _standings(told: Sequence[Event], ticket: int | None) -> tuple[Standing, ...]:
    # Under another ticket it stood elsewhere.
    stood = [event for event in told if event.kind == "stands" and event.ticket == ticket]
    last_ms = max((event.local_ms for event in told if event.kind in ("stands", "looks")), default=0)
    standings = []
    for event in stood:
        until_ms = event.until_ms or event.local_ms
        if outcome(told) != "applied":
            # After its last look it may have left, or been granted the lock and not have heard of it.
            until_ms = min(until_ms, last_ms)
        standings.append(Standing(event.local_ms, until_ms))
    return tuple(standings)


def _update(told: Sequence[Event]) -> Update:
    sent = told[0]
    return Update(
        process=sent.process,
        entity=sent.entity,
        outcome=outcome(told),
        found=sent.found or 0,
        sent_ms=sent.local_ms,
    )
