"""The source of a schedule's choices: a seed, or a list. The same choices give the same schedule."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol


class Chance(Protocol):
    """Chooses one of several alternatives."""

    def pick(self, choices: int) -> int:
        """A number from 0 to ``choices`` - 1; 0 is the simplest. A single alternative is not a choice."""
        ...


class Seeded:
    """Choices from a seed, recorded."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.picked: list[int] = []

    def pick(self, choices: int) -> int:
        if choices == 1:
            return 0
        picked = int(self._random.random() * choices)
        self.picked.append(picked)
        return picked


class Recorded:
    """Choices from a list, and the simplest ones after its end."""

    def __init__(self, picked: Sequence[int]) -> None:
        self._left = list(reversed(picked))

    def pick(self, choices: int) -> int:
        return min(self._left.pop(), choices - 1) if self._left and choices > 1 else 0


def shrunk(picked: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A shorter and duller list of choices that still fails: parts are left out, then replaced by 0."""
    best = list(picked)
    size = max(1, len(best) // 2)
    while size:
        at = 0
        while at < len(best):
            for tried in (
                best[:at] + best[at + size :],
                best[:at] + [0] * len(best[at : at + size]) + best[at + size :],
            ):
                if tried != best and fails(tried):
                    best = tried
                    break
            else:
                at += size
        size //= 2
    return best
