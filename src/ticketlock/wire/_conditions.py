"""Condition expressions, put together."""


def every(*conditions: str) -> str:
    """All of the conditions hold."""
    return " AND ".join(f"({condition})" if " OR " in condition else condition for condition in conditions)


def either(first: str, second: str) -> str:
    """One of two conditions holds."""
    return f"{first} OR ({second})"
