"""The counts of the event budget, from the definition and from the events that AWS was recorded to write.

The machine that continues waits and holds is made of the same states. ``interpreted/test_continue.py`` counts the
events of whole rounds on the interpreter.
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Any

import pytest
from tables.recorded import HISTORIES
from tables.state_machine import DEFINITION

from ticketlock.workflow import _turn as budget

pytestmark = pytest.mark.shows("long waits and holds")

State = Mapping[str, Any]
WAIT: Mapping[str, State] = DEFINITION["States"]
HOLD: Mapping[str, State] = WAIT["Hold"]["Branches"][1]["States"]
PATTERNS = {"waitForTaskToken": "callback", "sync:2": "nested execution"}


def kind_of(state: State) -> str:
    """The name of the history that has the events of a visit of the state."""
    if state["Type"] != "Task":
        return str(state["Type"])
    return PATTERNS.get(state["Resource"].rpartition(".")[2], "function")


def visit(state: State) -> int:
    return len(HISTORIES[kind_of(state)])


def another_try(state: State) -> int:
    """The events of a retry: those of a visit, but for the entry and the exit."""
    return visit(state) - 2


def after(state: State) -> Iterator[str]:
    for way in (state, *state.get("Choices", ()), *state.get("Catch", ())):
        yield from (way[field] for field in ("Next", "Default") if field in way)


def shortest_round(states: Mapping[str, State], name: str) -> int | None:
    """The fewest events from one entry of a state to the next; None if no way leads there."""
    due, seen = [(0, name)], set[str]()
    while due:
        events, at = heappop(due)
        if at == name and events:
            return events
        if at not in seen:
            seen.add(at)
            for following in after(states[at]):
                heappush(due, (events + visit(states[at]), following))
    return None


def rounds(states: Mapping[str, State], kind: str) -> dict[str, int]:
    """The shortest rounds through the states of a kind."""
    found = ((name, shortest_round(states, name)) for name, state in states.items() if kind_of(state) == kind)
    return {name: events for name, events in found if events is not None}


def test_a_retry_writes_what_a_visit_writes_but_for_the_entry_and_the_exit() -> None:
    once, twice = HISTORIES["function"], HISTORIES["function, tried twice"]
    assert len(twice) - len(once) == another_try(WAIT["CheckPosition"])
    assert [event for event in twice if event.endswith(("Entered", "Exited"))] == [once[0], once[-1]]


def test_a_callback_task_writes_as_many_events_however_it_ends() -> None:
    answered, failed, timed_out = (HISTORIES[f"callback{end}"] for end in ("", ", failed", ", timed out"))
    assert len(answered) == len(failed)
    assert timed_out.index("TaskTimedOut") == answered.index("TaskSucceeded") == failed.index("TaskFailed")


def test_a_poll_costs_the_events_that_the_budget_counts() -> None:
    assert set(rounds(WAIT, "Wait").values()) == {budget.EVENTS_PER_POLL}


def test_a_parked_poll_and_its_retries_cost_the_events_that_the_budget_counts() -> None:
    parked = rounds(WAIT, "callback")
    retries = {
        name: sum(
            each["MaxAttempts"] for each in WAIT[name].get("Retry", ()) if each["ErrorEquals"] == ["States.Timeout"]
        )
        for name in parked
    }
    assert {another_try(WAIT[name]) for name in parked} == {budget.EVENTS_PER_PARK}
    assert max(retries.values()) == budget.PARKS_PER_POLL - 1
    assert (
        max(parked[name] + retries[name] * budget.EVENTS_PER_PARK for name in parked) == budget.EVENTS_PER_PARKED_POLL
    )


def test_a_beat_costs_the_events_that_the_budget_counts() -> None:
    assert {another_try(HOLD[name]) for name in rounds(HOLD, "callback")} == {budget.EVENTS_PER_BEAT}


@pytest.mark.parametrize(
    ("states", "counted"),
    [(WAIT, budget.EVENTS_PER_WAITING_CONTINUATION), (HOLD, budget.EVENTS_PER_HOLDING_CONTINUATION)],
    ids=["of a wait", "of a hold"],
)
def test_a_continuation_costs_the_events_that_the_budget_counts(states: Mapping[str, State], counted: int) -> None:
    assert set(rounds(states, "nested execution").values()) == {counted}
