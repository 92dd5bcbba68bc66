"""What a check of the doctor's has found."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["good", "bad", "unsure"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        verdict: good, bad, or unsure where this caller may not look.
        what: was checked.
        text: what was found, and what to do about it.
    """

    verdict: Verdict
    what: str
    text: str
