"""A lock that is broken on purpose."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from property.caps import Caps
from property.faults import Faults

from ticketlock.wire._requests import Write

ALWAYS = "attribute_exists(pk)"


@dataclass(frozen=True)
class BrokenLock:
    """One change, and who made it.

    Attributes:
        name: what is wrong.
        seen_in: where it comes from.
        caught_by: the promises that it breaks: by one of them it has to be caught.
        changes: what is replaced: module or class, attribute, value.
        shown_by: the faults in which it shows; None for a mixture drawn for each schedule.
        caps: the caps of the protocol in which it does; None for a mixture as well.
    """

    name: str
    seen_in: str
    caught_by: frozenset[str]
    changes: tuple[tuple[Any, str, Any], ...]
    shown_by: Faults | None = None
    caps: Caps | None = None

    def __post_init__(self) -> None:
        for module, attribute, _ in self.changes:
            if not hasattr(module, attribute):
                raise AttributeError(f"{self.name}: {module.__name__} has no {attribute} to be replaced")

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Within the block the lock is this one."""
        with ExitStack() as stack:
            for module, attribute, value in self.changes:
                stack.enter_context(patch.object(module, attribute, value))
            yield


def without(original: Callable[..., Write], *conditions: str) -> Callable[..., Write]:
    """A write that asks for less."""

    def write(*args: Any, **kwargs: Any) -> Write:
        made = original(*args, **kwargs)
        condition = made.condition
        for each in conditions:
            condition = condition.replace(each, ALWAYS)
        return replace(made, condition=condition)

    return write
