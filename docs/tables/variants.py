"""The code that is broken on purpose, by the promise that catches it: tests/property/broken, tests/property/units."""

from collections.abc import Iterable
from textwrap import fill

from property.broken import BROKEN_LOCKS
from property.report import BrokenOnPurpose
from property.units.broken import VARIANTS


def locks() -> str:
    """The broken locks."""
    return _by_promise(BROKEN_LOCKS)


def units() -> str:
    """The broken units of work."""
    return _by_promise(VARIANTS.values())


def _by_promise(broken: Iterable[BrokenOnPurpose]) -> str:
    groups: dict[str, list[str]] = {}
    for each in broken:
        groups.setdefault(", ".join(sorted(each.caught_by)), []).append(each.name)
    lines = [f"- **{promises}**: {'; '.join(sorted(names))}." for promises, names in sorted(groups.items())]
    return "\n".join(fill(each, 120, subsequent_indent="  ", break_on_hyphens=False) for each in lines)
