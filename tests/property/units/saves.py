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
        ended: the owners whose end was reported.
    """

    coordinators: dict[str, tuple[str, str]] = field(default_factory=dict)
    committed: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
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
        if before != (saved_by, coordinator):
            checker.notes(f"{unit} is saved by {saved_by}, and {coordinator} resumes it")

    def sees_commit(self, unit: str, coordinator: str) -> None:
        """A coordinator of a saved unit is committed."""
        if unit in self.committed:
            raise Broken(f"fork: {unit} is committed by {coordinator}, and was by {self.committed[unit]}")
        if self.coordinators.get(unit, ("", ""))[1] != coordinator:
            raise Broken(f"fork: {unit} is committed by {coordinator}: {self.coordinators.get(unit)} has resumed it")
        self.committed[unit] = coordinator
