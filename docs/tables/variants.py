"""How much code is broken on purpose, by the promise that catches it: tests/property/broken, tests/property/units."""

from collections import Counter

from property.broken import BROKEN_LOCKS
from property.units.broken import VARIANTS


def counted() -> str:
    """A row for each promise: how many of the broken locks, and of the broken units, it may catch."""
    locks, units = (
        Counter(promise for each in broken for promise in each.caught_by)
        for broken in (BROKEN_LOCKS, VARIANTS.values())
    )
    rows = [f"| {promise} | {locks[promise] or ''} | {units[promise] or ''} |" for promise in sorted(locks | units)]
    return "\n".join(["| promise | locks | units |", "|---|---|---|", *rows])
