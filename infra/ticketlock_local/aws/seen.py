"""The results of checks of AWS."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict on an assumption."""

    AS_ASSUMED = "as assumed"
    OTHERWISE = "otherwise"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen.

    Attributes:
        verdict: whether it is as assumed.
        what: what was seen, in words and figures; why not, if nothing was.
    """

    verdict: Verdict
    what: str


class NotSeen(Exception):
    """The check could not be made, or shows nothing; the message says why."""
