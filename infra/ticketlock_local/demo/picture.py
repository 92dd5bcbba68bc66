"""The demo's executions as a picture."""

import math
from collections.abc import Sequence

from ticketlock_local.demo.checks import by_entity
from ticketlock_local.demo.executions import Execution
from ticketlock_local.history.picture import Lane, Legend, Picture, Span, short

_LEGEND = Legend(
    mark="takes its ticket",
    waiting="waits",
    holding="holds the lock",
    work="works",
    note="…  the last digits of the ticket",
)


def picture(executions: Sequence[Execution]) -> Picture:
    """Draw executions, grouped by entity, in the order of their holds."""
    last_ms = max((run.ended_ms or run.started_ms for run in executions), default=0)
    lanes = {entity: [_lane(run, last_ms) for run in runs] for entity, runs in by_entity(executions).items()}
    counts = ", ".join(f"{len(runs)} on {entity}" for entity, runs in lanes.items())
    starts = [run.started_ms for run in executions] or [0]
    within_s = math.ceil((max(starts) - min(starts)) / 1_000)
    return Picture(
        lanes,
        title="One at a time for each entity, in ticket order",
        subtitle=f"{len(executions)} workflows started within {within_s} s: {counts}. Recorded by make demo.",
        legend=_LEGEND,
        pixels_a_second=26,
    )


def _lane(run: Execution, last_ms: int) -> Lane:
    spans = [Span("waiting", run.started_ms, run.held_from_ms or run.ended_ms or last_ms)]
    if run.held_from_ms is not None:
        spans.append(Span("holding", run.held_from_ms, run.held_until_ms or last_ms))
    if run.work_started_ms is not None and run.work_ended_ms is not None:
        spans.append(Span("work", run.work_started_ms, run.work_ended_ms))
    return Lane(run.name, short(run.ticket), spans, [run.ticket_ms] if run.ticket_ms is not None else [])
