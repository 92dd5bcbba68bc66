"""How much code is broken on purpose, by the promise that catches it: tests/property/broken, tests/property/units."""

from collections import Counter
from textwrap import wrap

from property.broken import BROKEN_LOCKS
from property.units.broken import VARIANTS


def counted() -> str:
    """Each promise, with the number of the broken locks, or of the broken units, that it may catch."""
    locks, units = (
        Counter(promise for each in broken for promise in each.caught_by)
        for broken in (BROKEN_LOCKS, VARIANTS.values())
    )
    lines = [
        f"- {what}: {', '.join(f'{promise} {count}' for promise, count in sorted(counts.items(), key=_most_first))}."
        for what, counts in (("Locks", locks), ("Units", units))
    ]
    return "\n".join(line for each in lines for line in wrap(each, 120, subsequent_indent="  "))


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    promise, count = counted
    return -count, promise
