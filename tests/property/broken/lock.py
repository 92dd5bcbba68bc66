"""A lock that is broken on purpose."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from property import explore
from property.caps import Caps
from property.chance import Chance
from property.faults import Faults
from property.report import BrokenOnPurpose, asking_less
from property.world import World

ALWAYS = "attribute_exists(pk)"


@dataclass(frozen=True)
class BrokenLock(BrokenOnPurpose):
    """One change, and where it comes from.

    Attributes:
        name: what is wrong.
        seen_in: where it comes from.
        caught_by: the promises that it breaks; one of them must catch it.
        changes: what is replaced: module or class, attribute, value.
        shown_by: the faults that reveal it; None for a mixture drawn for each schedule.
        caps: the caps that reveal it; None likewise.
        begins: makes the world that reveals it.
    """

    name: str
    seen_in: str
    caught_by: frozenset[str]
    changes: tuple[tuple[Any, str, Any], ...]
    shown_by: Faults | None = None
    caps: Caps | None = None
    begins: Callable[..., World] = explore.begun

    def run(self, chance: Chance) -> World:
        return explore.run(chance, self.shown_by, self.caps, begins=self.begins)


without = partial(asking_less, ALWAYS)
