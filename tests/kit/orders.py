"""Every order in which the requests of several processes can arrive."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kit.world import Stepper, Touched, World

Made = TypeVar("Made")


@dataclass
class _Fork:
    untried: list[int]
    asleep: dict[int, Touched]
    touched: Touched | None = None


def every_order(
    world: World, start: Callable[[], tuple[Made, Sequence[Stepper[Any]]]]
) -> Iterator[tuple[tuple[int, ...], Made]]:
    """Run steppers in every order in which their requests can arrive, each order anew from ``start``.

    Of orders that differ only in two neighbouring requests which cannot tell who was first one is run ("sleep sets",
    Godefroid 1996): so sessions that differ have places that differ.

    Args:
        world: whose time is set back before each order.
        start: makes what a test looks at afterwards, and the steppers.

    Yields:
        Who sent the first request, the second, ..., and what ``start`` had made; right after it happened.
    """
    began_ms = world.now_ms
    path: list[_Fork] = []
    while True:
        world.now_ms = began_ms
        made, steppers = start()
        order: list[int] = []
        asleep: dict[int, Touched] = {}
        while able := [index for index, stepper in enumerate(steppers) if not stepper.done]:
            if len(order) == len(path):
                path.append(_Fork([index for index in able if index not in asleep], asleep))
            fork = path[len(order)]
            if not fork.untried:
                break
            order.append(fork.untried[0])
            steppers[order[-1]].step()
            touched = fork.touched = steppers[order[-1]].touched
            asleep = {index: other for index, other in fork.asleep.items() if other.may_swap_with(touched)}
        else:
            yield tuple(order), made
        while path:
            fork = path[-1]
            if fork.untried:
                assert fork.touched is not None
                fork.asleep[fork.untried.pop(0)] = fork.touched
            if fork.untried:
                break
            path.pop()
        if not path:
            world.now_ms = began_ms
            return
