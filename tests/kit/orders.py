"""Every order in which the requests of several processes can arrive."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kit.world import Touched, World

Made = TypeVar("Made")


class Steps(Protocol):
    """Something that sends one request at a time: a ``Stepper``, or several one after the other.

    Attributes:
        touched: what other processes can see of its last request.
    """

    @property
    def done(self) -> bool: ...

    @property
    def touched(self) -> Touched: ...

    def step(self) -> object:
        """Send the next request."""


@dataclass
class _Fork:
    untried: list[int]
    asleep: dict[int, Touched]
    touched: Touched | None = None


def every_order(
    world: World,
    start: Callable[[], tuple[Made, Sequence[Steps]]],
    *,
    alike: Sequence[int] = (),
    swaps_count: bool = False,
) -> Iterator[tuple[tuple[int, ...], Made]]:
    """Run steppers in every order in which their requests can arrive, each order anew from ``start``.

    Of orders that differ only in two neighbouring requests, if their results do not show which was first, one is run
    ("sleep sets", Godefroid 1996): so sessions must have different sort keys.

    Args:
        world: whose time is set back before each order.
        start: makes the steppers, and what the test inspects afterwards.
        alike: steppers that do the same; orders in which they begin in another order are mirror images, and not run.
        swaps_count: also run the orders that show nothing new.

    Yields:
        Which stepper sent the first request, the second, ..., and what ``start`` had made; right after the order.
    """
    began_ms = world.now_ms
    path: list[_Fork] = []
    while True:
        world.now_ms = began_ms
        made, steppers = start()
        order: list[int] = []
        asleep: dict[int, Touched] = {}
        while able := [index for index in _may_begin(alike, order, len(steppers)) if not steppers[index].done]:
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
                tried = fork.untried.pop(0)
                if not swaps_count:
                    fork.asleep[tried] = fork.touched
            if fork.untried:
                break
            path.pop()
        if not path:
            world.now_ms = began_ms
            return


def _may_begin(alike: Sequence[int], order: Collection[int], steppers: int) -> Iterator[int]:
    waiting = [index for index in alike if index not in order]
    return (index for index in range(steppers) if index not in waiting[1:])
