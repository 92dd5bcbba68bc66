"""Durations as users type them: ``90``, ``5m``, ``1h30m``."""

import math
import re
from typing import Any

import click

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """A duration in seconds; ``forever`` too, where that is allowed.

    Args:
        least, most: the shortest and the longest that is allowed, as users type them.
        forever: whether ``forever`` is allowed.
    """

    name = "time"

    def __init__(self, least: str = "0s", most: str | None = None, *, forever: bool = False) -> None:
        self._least = least
        self._most = most
        self._forever = forever

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if self._forever and value == "forever":
            return math.inf
        seconds = _seconds(str(value))
        most_s = math.inf if self._most is None else _seconds(self._most)
        if math.isfinite(seconds) and _seconds(self._least) <= seconds <= most_s:
            return seconds
        bounds = f"from {self._least} on" if self._most is None else f"from {self._least} to {self._most}"
        allowed = f"a time {bounds}, such as 90, 1.5s, 5m or 1h30m" + (", or 'forever'" if self._forever else "")
        raise click.BadParameter(f"{value!r} is not {allowed}.", ctx, param)


def _seconds(text: str) -> float:
    """The seconds that a text stands for; a number without a unit is seconds. NaN if the text is not a duration."""
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return math.fsum(float(number) * _UNITS_S[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        return math.nan
