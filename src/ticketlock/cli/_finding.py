"""The result of one check by ``ticketlock doctor``."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["good", "bad", "unsure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        verdict: good, bad, or unsure if this caller lacks the permission to check.
        what: what was checked.
        text: what was found, and what to do about it.
    """

    verdict: Verdict
    what: str
    text: str
