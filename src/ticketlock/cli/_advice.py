"""What an operator should do next about a lock or a unit, or expect of it: a sentence, and the command to type."""

import shlex
from dataclasses import dataclass, replace
from typing import Literal

from ticketlock import LockName, LockState
from ticketlock.cli._units_reports import state_of
from ticketlock.cli._verdicts import NextStep, judge
from ticketlock.cli._wording import plain, span
from ticketlock.locks._items import DEFAULT_NAMESPACE
from ticketlock.units import OpenUnit

_SWEPT_BY_THEN_S = 1_800
"""By then sweeps have ended and closed a unit."""

UnitStep = Literal["nothing", "wait", "units settle", "see the sweeper"]


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, or to expect.

    Attributes:
        text: a sentence, in which commands are in backticks.
        command: what to type if it comes to that; None for nothing.
    """

    text: str
    command: str | None = None

    def __str__(self) -> str:
        return self.text if self.command is None else f"{self.text}: {self.command}"


def advice_on(lock: LockName, found: LockState | None) -> Advice | None:
    """What to do about a lock; None for nothing.

    Args:
        lock: its name.
        found: the lock with its queue as far as the first waiter; None if this caller may not read it.
    """
    judged = judge(found)
    if found is None or judged.next is NextStep.NOT_READ:
        return Advice("your role may list the locks, but not read this one: `ticketlock doctor` says what is missing")
    item, now_ms, holder, first = found.item, found.now.likely_ms, judged.holder, judged.first
    if judged.next is NextStep.NOTHING:
        return Advice("the next caller takes it over") if judged.verdict.word == "expired" else None
    if judged.next is NextStep.LOOK and holder is not None and item is not None:
        usual = span(item.mean_hold_ms or 0)
        held = span(now_ms - holder.since_ms)
        return Advice(f"held for {held} already, {usual} on average: look at the holder's work")
    if judged.next is NextStep.TAKEN and first is not None:
        left = span(max(0, first.lease_until_ms - now_ms))
        return Advice(
            f"the first in line takes it at its next poll; if that has crashed, its place in line ends in {left}"
        )
    name = shlex.quote(plain(lock.entity))
    if lock.namespace != DEFAULT_NAMESPACE:
        name += f" --namespace {shlex.quote(plain(lock.namespace))}"
    advice = _STEPS[judged.next]
    token, ticket = holder and holder.fencing_token, first and first.ticket
    return replace(advice, command=advice.command and advice.command.format(name=name, token=token, ticket=ticket))


_STEPS = {
    NextStep.WAIT: Advice("wait for the holder's work"),
    NextStep.WAIT_OUT: Advice(
        "the holder has crashed, is paused, or has no heartbeat: the first in line takes the lock some seconds after "
        "the end of the lease; if it is certainly gone",
        "ticketlock release {name} --force --fencing-token {token}",
    ),
    NextStep.NOT_TAKEN: Advice(
        "the first in line should have taken it by now: run `ticketlock doctor` with its role; if it has crashed",
        "ticketlock remove-waiter {name} {ticket}",
    ),
    NextStep.CLOSED: Advice(
        "ask who has closed it; no one takes it before",
        "ticketlock limit {name} --unset",
    ),
}


def unit_step(unit: OpenUnit) -> UnitStep:
    """What to expect of a unit, or to do about it, in a few words."""
    state = state_of(unit)
    if state == "expired":
        return "units settle" if -(unit.lease_ends_in_s or 0) < _SWEPT_BY_THEN_S else "see the sweeper"
    if state in ("committed", "rolled back") and (unit.ended_for_s or 0) > _SWEPT_BY_THEN_S:
        return "see the sweeper"
    return "wait" if state == "pending" else "nothing"


def needs_you(unit: OpenUnit) -> bool:
    """Whether a unit waits for an operator, and neither for its process nor for a sweep to come."""
    return unit_step(unit) not in ("nothing", "wait")


def advice_on_unit(unit: OpenUnit) -> Advice | None:
    """What to do about a unit; None for nothing."""
    step = unit_step(unit)
    if step == "nothing":
        return None
    if step == "wait":
        return Advice("wait for its process, or for the end of its lease")
    text = (
        "its process has crashed, or was not resumed in time: the next unit that needs its items, or the next sweep, "
        "rolls it back; to do it at once"
        if step == "units settle"
        else "no sweep has ended it in half an hour: read the log of the sweeper; to end this unit alone"
    )
    return Advice(text, f"ticketlock units settle {unit.unit}")
