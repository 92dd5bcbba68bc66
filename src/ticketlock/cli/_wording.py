"""Values in words: for people who read a terminal."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def plain(text: str) -> str:
    """A text that another user has chosen, without control characters."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def permits_of(number: int) -> str:
    """A number of permits, in words."""
    return "1 permit" if number == 1 else f"{number} permits"


def span(milliseconds: int) -> str:
    """A duration: ``0.4 s``, ``12 s``, ``3.5 min``."""
    seconds = milliseconds / 1_000
    for size, unit in _UNITS:
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) < 10 else f"{seconds:.0f} s"


def lease(rest_ms: int) -> str:
    """The rest of a lease, or how long ago it expired."""
    return f"expired {span(-rest_ms)} ago" if rest_ms <= 0 else f"{span(rest_ms)} left"


def permits_and_who_set_them(number: int, *, are_set: bool, are_deployed: bool) -> str:
    """A number of permits, and whether an operator has set it, or it is that of a deployment."""
    if not are_set:
        return f"{permits_of(number)}, by deployment" if are_deployed else permits_of(number)
    return "closed by an operator (0 permits)" if number == 0 else f"{permits_of(number)}, set by an operator"
