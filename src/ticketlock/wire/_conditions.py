"""Combines condition expressions."""

import re
from functools import lru_cache

_OR = re.compile(r"\bor\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def every(*conditions: str) -> str:
    """All of the conditions hold."""
    return " AND ".join(f"({condition})" if _OR.search(condition) else condition for condition in conditions)


def either(first: str, second: str) -> str:
    """One of two conditions holds."""
    return f"{first} OR ({second})"
