"""What is broken on purpose, by one change of the real code."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ticketlock.wire._requests import Write


class BrokenOnPurpose:
    """One change, which lasts for a block.

    Attributes:
        name: what is wrong.
        changes: what is replaced: module or class, attribute, value.
    """

    name: str
    changes: tuple[tuple[Any, str, Any], ...]

    def __post_init__(self) -> None:
        for module, attribute, _ in self.changes:
            if not hasattr(module, attribute):
                raise AttributeError(f"{self.name}: {module.__name__} has no {attribute} to be replaced")

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Within the block the code is like this."""
        with ExitStack() as stack:
            for module, attribute, value in self.changes:
                stack.enter_context(patch.object(module, attribute, value))
            yield


def asking_less(always: str, original: Callable[..., Write], *conditions: str) -> Callable[..., Write]:
    """A write that has a condition that always holds in the place of these."""

    def write(*args: Any, **kwargs: Any) -> Write:
        made = original(*args, **kwargs)
        condition = made.condition
        for each in conditions:
            condition = condition.replace(each, always)
        return replace(made, condition=condition)

    return write
