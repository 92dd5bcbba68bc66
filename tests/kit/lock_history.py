"""Histories of locks as files, one event in each line; any number of processes and threads append to one."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from kit.lock_model import History, Update
from ticketlock_local.demo.executions import Execution
from ticketlock_local.demo.promises import Acquisition, Outcome, Standing

from ticketlock.wire._driver import SystemClocks

Action = Literal["acquire", "release", "update"]
Kind = Literal["invoked", "stands", "polls", "holds"] | Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of one operation of a process.

    Attributes:
        process, operation: the process, and the unique name of the operation.
        action, entity: what is done, and on which entity.
        kind: ``invoked`` comes first, an outcome last. Between them an acquisition ``stands`` in the queue, with a
            ticket and a lease, and ``polls`` and finds both unchanged; afterwards it ``holds`` the lock. An
            operation without an outcome is unknown.
        local_ms: by the machine's monotonic clock.
        wall_ms: milliseconds since the epoch.
        of: the acquisition that a release or an update belongs to.
        shared, permits: as in the request.
        ticket, fencing_token: as in the reply.
        until_ms: the end of a row's lease, or of the grant's, by the local clock.
        polled_ms: before the poll that a grant is based on.
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
    polled_ms: int | None = None
    found: int | None = None
    error: str | None = None

    def line(self) -> str:
        """The event as a line of the file."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None}) + "\n"


class Recorder:
    """Appends one process's events to a file.

    Args:
        path: the file, to which other recorders may append as well.
        process: the process of the events; each recorder needs a unique name.
    """

    def __init__(self, path: Path, process: str) -> None:
        self._path = path
        # The file exists from now on, for readers.
        self._path.open("ab").close()
        self._process = process
        self._clocks = SystemClocks()
        self._numbers = itertools.count(1)

    def begin(self, action: Action, entity: str, **facts: Any) -> "Recording":
        """Record the invocation of an operation; record its further events with the object that this returns."""
        recording = Recording(self, f"{self._process}/{next(self._numbers)}", action, entity)
        recording.tell("invoked", **facts)
        return recording

    def now_ms(self) -> int:
        """The local clock of the events."""
        return self._clocks.read().local_ms

    def append(self, operation: str, action: Action, entity: str, kind: Kind, facts: dict[str, Any]) -> None:
        """Write an event; its times are the current ones, unless ``facts`` has an earlier ``local_ms``."""
        now = self._clocks.read()
        at = {"local_ms": now.local_ms, "wall_ms": now.wall_ms}
        event = Event(process=self._process, operation=operation, action=action, entity=entity, kind=kind, **at | facts)
        # Each line is one unbuffered write at the end of the file: a killed process loses none.
        with self._path.open("ab", buffering=0) as file:
            file.write(event.line().encode())


@dataclass(frozen=True, slots=True)
class Recording:
    """An operation in progress.

    Attributes:
        operation: its name.
    """

    _recorder: Recorder
    operation: str
    action: Action
    entity: str

    def tell(self, kind: Kind, **facts: Any) -> None:
        self._recorder.append(self.operation, self.action, self.entity, kind, facts)


class Seen:
    """Reads a growing file: each line once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """All events so far, in the order in which they were written."""
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
    traces: dict[str, list[Event]] = {}
    for event in events:
        traces.setdefault(event.operation, []).append(event)
    return list(traces.values())


def history(events: Iterable[Event]) -> History:
    """Combine the events to operations, with what is certainly known of each."""
    acquiring: list[list[Event]] = []
    updating: list[list[Event]] = []
    belonging: dict[str, list[list[Event]]] = {}
    for trace in operations(events):
        if trace[0].action == "acquire":
            acquiring.append(trace)
        elif trace[0].action == "update":
            updating.append(trace)
        if trace[0].of is not None:
            belonging.setdefault(trace[0].of, []).append(trace)
    return History(
        [_acquisition(trace, belonging.get(trace[0].operation, ())) for trace in acquiring],
        [_update(trace) for trace in updating],
    )


def outcome(trace: Sequence[Event]) -> Outcome:
    for event in trace:
        if event.kind == "applied" or event.kind == "refused":
            return event.kind
    return "unknown"


def events_of(run: Execution) -> list[Event]:
    """An execution of the serialised workflow as events, by the common clock of the service and its functions."""
    asking: _Operation = {"process": run.name, "operation": run.name, "action": "acquire", "entity": run.entity}
    releasing: _Operation = {**asking, "operation": f"{run.name}/release", "action": "release"}
    found = [_event(asking, "invoked", run.started_ms, shared=run.shared, permits=run.permits)]
    for since_ms, until_ms in run.standings:
        found.append(_event(asking, "stands", since_ms, ticket=run.ticket, until_ms=until_ms))
    if run.fencing_token is not None and run.granted_ms is not None:
        numbers = {"ticket": run.ticket, "fencing_token": run.fencing_token, "polled_ms": run.polled_ms}
        found.append(_event(asking, "applied", run.granted_ms, **numbers))
    elif run.error.startswith("RecordWaitExceeded"):
        found.append(_event(asking, "refused", run.ended_ms or run.started_ms, error=run.error))
    if run.work_ended_ms is not None:
        found.append(_event(asking, "holds", run.work_ended_ms))
    if run.status == "SUCCEEDED" and run.held_until_ms is not None:
        found.append(_event(releasing, "invoked", run.work_ended_ms or run.held_until_ms, of=run.name))
        found.append(_event(releasing, "applied", run.held_until_ms))
    return found


class _Operation(TypedDict):
    process: str
    operation: str
    action: Action
    entity: str


def _event(operation: _Operation, kind: Kind, at_ms: int, **facts: Any) -> Event:
    return Event(**operation, kind=kind, local_ms=at_ms, wall_ms=at_ms, **facts)


def _acquisition(trace: Sequence[Event], belonging: Sequence[Sequence[Event]]) -> Acquisition:
    invoked = trace[0]
    answer = next((event for event in trace if event.kind == "applied"), None)
    ticket = next((event.ticket for event in reversed(trace) if event.ticket is not None), None)
    updates = [each[0] for each in belonging if each[0].action == "update" and outcome(each) == "applied"]
    # A process that writes relies on the lock, whether or not it has checked that it holds it.
    held = [event.local_ms for event in trace if event.kind == "holds"] + [sent.local_ms for sent in updates]
    releases = [outcome(each) for each in belonging if each[0].action == "release"]
    return Acquisition(
        process=invoked.process,
        entity=invoked.entity,
        outcome=outcome(trace),
        invoked_ms=invoked.local_ms,
        polled_ms=invoked.local_ms if answer is None or answer.polled_ms is None else answer.polled_ms,
        granted_ms=answer.local_ms if answer is not None else None,
        ticket=ticket,
        fencing_token=answer.fencing_token if answer is not None else None,
        standings=_standings(trace, ticket),
        held_until_ms=max(held, default=None),
        shared=bool(invoked.shared),
        permits=invoked.permits or 1,
        is_over=outcome(trace) == "refused" or any(each != "unknown" for each in releases),
    )


def _standings(trace: Sequence[Event], ticket: int | None) -> tuple[Standing, ...]:
    # With another ticket it had another position.
    stood = [event for event in trace if event.kind == "stands" and event.ticket == ticket]
    last_ms = max((event.local_ms for event in trace if event.kind in ("stands", "polls")), default=0)
    standings = []
    for event in stood:
        until_ms = event.until_ms or event.local_ms
        if outcome(trace) != "applied":
            # After its last poll it may have left, or been granted the lock without learning it.
            until_ms = min(until_ms, last_ms)
        standings.append(Standing(event.local_ms, until_ms))
    return tuple(standings)


def _update(trace: Sequence[Event]) -> Update:
    sent = trace[0]
    return Update(
        process=sent.process,
        entity=sent.entity,
        outcome=outcome(trace),
        found=sent.found or 0,
        sent_ms=sent.local_ms,
    )
