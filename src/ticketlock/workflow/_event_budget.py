"""What an execution may spend of its event history, and when it has to go on in another.

An execution may have 25,000 events and then fails unnamed:
https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
So a wait and a hold use a small share of their first execution, and then go on in executions of a machine made for it,
one after the other: each costs the first a few events. Events by their types:
https://docs.aws.amazon.com/step-functions/latest/apireference/API_HistoryEvent.html
"""

MAX_EVENTS = 23_000
"""The rest is for retries of steps, which nobody counts."""

EVENTS_PER_POLL = 9
"""A look: Choice and Wait, entered and exited; the task: entered, scheduled, started, succeeded, exited."""

PARKS_A_LOOK = 10
"""How often a parked waiter keeps its place by itself, at each half of its lease, before it makes a step to look."""

EVENTS_PER_PARK = 4
"""Scheduled, started, submitted, timed out."""

EVENTS_PER_PARKED_LOOK = 13 + (PARKS_A_LOOK - 1) * EVENTS_PER_PARK
"""At most: a look; the callback task before it, which has one event more than the task of a look; its retries."""

EVENTS_PER_BEAT = 4
"""Scheduled, started, submitted, timed out."""

EVENTS_PER_WAITING_CONTINUATION = 8
"""A Choice, and a nested execution: entered, scheduled, started, submitted, succeeded, exited."""

EVENTS_PER_HOLDING_CONTINUATION = 10
"""As many, and a Pass."""

FIRST_POLLS = 100
"""How often the first execution looks before its wait goes on in others."""

FIRST_BEATS = 500
"""How many beats the first execution does before its hold goes on in others."""

WAITING_EVENTS = 12_000
"""What a wait may use of the first execution; the rest is the hold's."""

BEATS_AN_EXECUTION = 2_000
"""Of the executions in which a hold goes on."""


def events_of_a_look(since_ms: int, lease_ms: int, *, called: bool) -> int:
    """What a look has cost a waiter, so long after the one before."""
    if not called:
        return EVENTS_PER_POLL
    parks = min(PARKS_A_LOOK - 1, max(0, since_ms) // (lease_ms // 2))
    return EVENTS_PER_PARKED_LOOK - (PARKS_A_LOOK - 1 - parks) * EVENTS_PER_PARK


def most_polls_an_execution(*, called: bool) -> int:
    """Of the executions in which a wait goes on."""
    return 450 if called else 2_000
