"""What a look at AWS says about what is assumed of it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a look says about an assumption."""

    AS_ASSUMED = "as assumed"
    OTHERWISE = "otherwise"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen.

    Attributes:
        verdict: against what is assumed.
        what: in words, with figures; why not, where nothing was.
    """

    verdict: Verdict
    what: str


class NotSeen(Exception):
    """The look could not be taken, or shows nothing; the message says why."""
