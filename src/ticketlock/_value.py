"""Dataclasses of values, which the type checker alone keeps from being changed.

A frozen dataclass is protected at run time, too, by a call for each attribute of each new object: a fifth of the time
of an uncontended cycle.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    T = TypeVar("T")

    def value(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
        """A dataclass with these arguments, frozen for the type checker alone."""
        assert frozen
        return dataclasses.dataclass(slots=slots, kw_only=kw_only, unsafe_hash=True)


__all__ = ["value"]
