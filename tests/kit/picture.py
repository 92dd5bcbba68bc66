"""A recorded history as a picture: a lane for each process, with its waits, its holds and their fencing tokens."""

from collections.abc import Iterable, Sequence

from kit.lock_history import Action, Event, history, operations, outcome
from ticketlock_local.demo.picture import Lane, Legend, Picture, Span, short

_LEGEND = Legend(
    mark="its row stands",
    waiting="waits, or red: no answer",
    holding="has the grant",
    work="counts on the lock",
    note="…  the last digits of the fencing token",
)


def drawn(events: Sequence[Event], title: str, subtitle: str) -> Picture:
    """Draw events, grouped by entity; within each, processes in the order in which they began."""
    end_ms = max((event.local_ms for event in events), default=0)
    groups: dict[str, dict[str, list[Event]]] = {}
    for event in events:
        groups.setdefault(event.entity, {}).setdefault(event.process, []).append(event)
    lanes = {
        entity: [_lane(process, own, end_ms) for process, own in processes.items()]
        for entity, processes in groups.items()
    }
    return Picture(lanes, title=title, subtitle=subtitle, legend=_LEGEND)


def _lane(process: str, events: Sequence[Event], end_ms: int) -> Lane:
    released = {each.of: call[-1].local_ms for call in _of(events, "release") if (each := call[0]).of}
    spans: list[Span] = []
    marks: list[int] = []
    for asking in _of(events, "acquire"):
        (acquisition,) = history(asking).acquisitions
        answer_ms = next((event.local_ms for event in asking if event.kind in ("applied", "refused")), end_ms)
        spans.append(Span("unknown" if outcome(asking) == "unknown" else "waiting", asking[0].local_ms, answer_ms))
        marks += [event.local_ms for event in asking if event.kind == "stands"][:1]
        if acquisition.granted_ms is None:
            continue
        left_ms = released.get(asking[0].operation)
        if left_ms is None:
            spans.append(Span("unknown", answer_ms, end_ms))
        label = short(acquisition.fencing_token)
        spans.append(Span("holding", answer_ms, left_ms or answer_ms, label))
        if acquisition.held_until_ms is not None:
            spans.append(Span("work", answer_ms, acquisition.held_until_ms, label))
    return Lane(process, "", spans, marks)


def _of(events: Iterable[Event], action: Action) -> list[list[Event]]:
    return operations(event for event in events if event.action == action)
