"""What a statement returns: its item before it and after it."""

from typing import Any

from ticketlock._expressions._values import Item as Attributes
from ticketlock.units._values import PYTHON
from ticketlock.wire._requests import ForkingSteps

Both = tuple[Attributes | None, Attributes | None]
"""An item before a statement and after it, in AttributeValues; None if there is none, or if it was not read."""


def item_before(steps: ForkingSteps[Both]) -> ForkingSteps[dict[str, Any] | None]:
    """The item before a statement, in Python values. As part of its steps, so that an interrupt here ends the unit."""
    before, _ = yield from steps
    return PYTHON.back(before)


def item_after(steps: ForkingSteps[Both]) -> ForkingSteps[dict[str, Any] | None]:
    """The item after a statement, likewise."""
    _, after = yield from steps
    return PYTHON.back(after)
