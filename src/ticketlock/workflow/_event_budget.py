"""How much of its event history an execution may use, and when it must continue in another one.

An execution that reaches 25,000 events fails, without an error name:
https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
So a wait and a hold use a small share of their first execution, and then continue in one continuation after the other,
executions of a separate state machine. Each costs the first execution a few events. The types of events:
https://docs.aws.amazon.com/step-functions/latest/apireference/API_HistoryEvent.html
"""

MAX_EVENTS = 23_000
"""The rest is for retries of steps, which are not counted."""

EVENTS_PER_POLL = 9
"""A poll: Choice and Wait, entered and exited; the task: entered, scheduled, started, succeeded, exited."""

PARKS_PER_POLL = 10
"""How often a parked waiter extends its row by retries, at each half of its lease, before it takes a step to poll."""

EVENTS_PER_PARK = 4
"""Scheduled, started, submitted, timed out."""

EVENTS_PER_PARKED_POLL = 13 + (PARKS_PER_POLL - 1) * EVENTS_PER_PARK
"""At most: a poll; the callback task before it, which has one event more than the task of a poll; its retries."""

EVENTS_PER_BEAT = 4
"""Scheduled, started, submitted, timed out."""

EVENTS_PER_WAITING_CONTINUATION = 8
"""A Choice, and a nested execution: entered, scheduled, started, submitted, succeeded, exited."""

EVENTS_PER_HOLDING_CONTINUATION = 10
"""The same, and a Pass."""

FIRST_POLLS = 100
"""How often the first execution polls before its wait goes to a continuation."""

FIRST_BEATS = 500
"""How many heartbeats the first execution sends before its hold goes to a continuation."""

WAITING_EVENTS = 12_000
"""How many events of the first execution a wait may use; the rest is for the hold."""

BEATS_AN_EXECUTION = 2_000
"""How many heartbeats a continuation sends."""


def events_of_a_poll(since_ms: int, lease_ms: int, *, woken: bool) -> int:
    """How many events a poll has cost a waiter, this long after the one before."""
    if not woken:
        return EVENTS_PER_POLL
    parks = min(PARKS_PER_POLL - 1, max(0, since_ms) // (lease_ms // 2))
    return EVENTS_PER_PARKED_POLL - (PARKS_PER_POLL - 1 - parks) * EVENTS_PER_PARK


def most_polls_an_execution(*, woken: bool) -> int:
    """How often a continuation polls."""
    return 450 if woken else 2_000
