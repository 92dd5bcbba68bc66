"""How the engines differ from AWS's documentation, so far as expressions of the tests meet it."""

import re
from dataclasses import dataclass
from typing import Any

from expressions.beside import Answers, Broken, Refused

from ticketlock._expressions._evaluated import Expressions


@dataclass(frozen=True)
class Differences:
    """How an engine differs from the documentation.

    Attributes:
        accepts: what it does not refuse, by words of the refusal.
        refuses: what it refuses without need, by words of its refusal.
        equates_absent: whether an attribute that is not there equals another one.
        confuses_elements: whether expressions of elements of a list mean others of them.
        begins_bytes_otherwise: whether ``begins_with`` is something else of bytes.
        breaks: whether it answers some expressions with an exception of its own.
    """

    accepts: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    equates_absent: bool = False
    confuses_elements: bool = False
    begins_bytes_otherwise: bool = False
    breaks: bool = False

    def explain(self, found: Answers) -> bool:
        """Whether answers that are not alike are no news."""
        text = next(iter(found.request.values()))
        return (
            (isinstance(found.ours, Refused) and any(words in found.ours.why for words in self.accepts))
            or (isinstance(found.theirs, Refused) and any(words in found.theirs.why for words in self.refuses))
            or (isinstance(found.theirs, Broken) and self.breaks)
            or (self.equates_absent and "ConditionExpression" in found.request and absent(text, found.item) > 1)
            or (self.confuses_elements and "ConditionExpression" not in found.request and "[" in text)
            or (self.begins_bytes_otherwise and "begins_with" in text and "'B':" in repr(found.request))
        )


_UNCHECKED = (
    "must be distinct",
    "Incorrect operand type",
    "Invalid attribute type name",
    "The BETWEEN operator requires",
)
DIFFERENCES = {
    "moto": Differences(
        begins_bytes_otherwise=True,
        accepts=(*_UNCHECKED, "document paths", "invalid for update"),
        refuses=("invalid for update",),
        equates_absent=True,
        confuses_elements=True,
        breaks=True,
    ),
    "ministack": Differences(
        accepts=(*_UNCHECKED, "document paths", "invalid for update", "incorrect data type"),
        refuses=("operator or function: begins_with",),
        equates_absent=True,
        confuses_elements=True,
    ),
    "dynoxide": Differences(accepts=_UNCHECKED),
}


def absent(text: str, item: dict[str, Any]) -> int:
    """How many different paths of a condition lead nowhere."""
    paths = set(re.findall(r"(?<![:\w.\]])[a-z]+(?:\.[a-z]+|\[\d\])*(?![\w(])", text))
    checks = [Expressions({"ConditionExpression": f"attribute_not_exists({path})"}) for path in paths]
    return sum(check.condition_holds(item) for check in checks)
