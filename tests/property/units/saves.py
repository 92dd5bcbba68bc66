"""What the invariant checker knows of saved units: which coordinator saved each last, and which has resumed it."""

from dataclasses import dataclass, field
from typing import Any

from kit.invariants import Broken


@dataclass
class Saves:
    """Each saved unit, by the id under which it was saved.

    Attributes:
        coordinators: the id of the coordinator that has saved it last, and of the one that has resumed it since.
        committed: the id under which each was committed.
        savers: the coordinators that have saved a unit.
        ended: the owners whose end was reported.
        steps: the steps of each that were saved, with the coordinator that saved them.
    """

    coordinators: dict[str, tuple[str, str]] = field(default_factory=dict)
    committed: dict[str, str] = field(default_factory=dict)
    savers: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    steps: dict[str, dict[str, str]] = field(default_factory=dict)
    _known: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def sees(self, checker: Any, unit: str, saved_by: str, coordinator: str, *, state: str, owner: str | None) -> None:
        """The record of a saved unit was written."""
        before, is_committed = self.coordinators.get(unit), state == "committed"
        now = (saved_by, coordinator, state)
        if owner in self.ended and state != "rolledBack" and now != self._known.get(unit):
            raise Broken(f"owner: {unit} is {state} by {coordinator}, and its owner {owner} has ended")
        self._known[unit] = now
        self.coordinators[unit] = (saved_by, coordinator)
        if before is not None and saved_by not in before:
            raise Broken(f"fork: {unit} is saved by {saved_by}, and {before[1]} has resumed it")
        if is_committed and unit not in self.committed:
            raise Broken(f"atomicity: the record of {unit} is committed, and no coordinator has committed it")
        if before is None or before[0] != saved_by:
            self.savers.add(saved_by)
            self._sees_step(unit, saved_by, checker.records[saved_by].step)
        if before != (saved_by, coordinator):
            checker.notes(f"{unit} is saved by {saved_by}, and {coordinator} resumes it")

    def _sees_step(self, unit: str, saved_by: str, step: str | None) -> None:
        """A coordinator has saved the unit with a step."""
        if step is None:
            return
        done = self.steps.setdefault(unit, {})
        if step in done:
            raise Broken(f"step: {unit} is saved by {saved_by} with the step {step!r}, which {done[step]} has saved")
        done[step] = saved_by

    def sees_refusal(self, coordinator: str) -> None:
        """A coordinator was told that another one has resumed its unit, so that nothing of it was written."""
        if coordinator in self.savers:
            raise Broken(f"outcomes: {coordinator} is told that nothing of it was saved, and it has saved the unit")

    def sees_repeated_step(self, unit: str, step: str | None) -> None:
        """A coordinator was told that its step has saved the unit already."""
        if step not in self.steps.get(unit, {}):
            raise Broken(f"step: {unit} is told to be saved with the step {step!r}, and it is not")

    def sees_commit(self, unit: str, coordinator: str) -> None:
        """A coordinator of a saved unit is committed."""
        if unit in self.committed:
            raise Broken(f"fork: {unit} is committed by {coordinator}, and was by {self.committed[unit]}")
        if self.coordinators.get(unit, ("", ""))[1] != coordinator:
            raise Broken(f"fork: {unit} is committed by {coordinator}: {self.coordinators.get(unit)} has resumed it")
        self.committed[unit] = coordinator
