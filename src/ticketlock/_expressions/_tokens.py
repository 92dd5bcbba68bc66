"""The tokens of an expression, and the errors about them."""

import re
from typing import Literal

from ticketlock._expressions._errors import ExpressionInvalid

Kind = Literal[
    "ConditionExpression", "FilterExpression", "KeyConditionExpression", "ProjectionExpression", "UpdateExpression"
]
"""The parameter that an expression is."""

END = ""

_TOKEN = re.compile(r"[#:]\w+|[A-Za-z]\w*|\d+|<=|>=|<>|[=<>(),.+\-\[\]]", re.ASCII)
_SPACE = re.compile(r"\s*")


class Tokens:
    """An expression, token by token.

    Raises:
        ExpressionInvalid: it has something in it that is no token.
    """

    def __init__(self, kind: Kind, text: str) -> None:
        self.kind: Kind = kind
        self.tokens: list[str] = []
        self.at = 0
        if not text.strip():
            raise self.wrong("The expression can not be empty;")
        end = position = 0
        while (position := self._after_space(text, end)) < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise self.wrong(f'Syntax error; token: "{text[position]}", near: "{text[end : position + 10]}"')
            self.tokens.append(token.group())
            end = token.end()
        self.tokens.append(END)

    @staticmethod
    def _after_space(text: str, position: int) -> int:
        space = _SPACE.match(text, position)
        return space.end() if space is not None else position

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self.tokens[self.at]

    def took(self, token: str) -> bool:
        """Whether the next token is this one, which is then taken."""
        taken = self.next == token
        self.at += taken
        return taken

    def took_word(self, word: str) -> bool:
        """The same of a word, in upper or lower case."""
        return self.took(self.next if self.next.upper() == word else word)

    def must(self, token: str) -> None:
        """Take this token."""
        if not self.took(token):
            raise self.unexpected()

    def closing(self, opening: int) -> int:
        """Where the parenthesis is closed that is opened there."""
        depth = 0
        for position in range(opening, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[position], 0)
            if depth == 0:
                return position
        return len(self.tokens)

    def wrong(self, why: str) -> ExpressionInvalid:
        """A mistake in the expression."""
        return ExpressionInvalid(f"Invalid {self.kind}: {why}")

    def unexpected(self) -> ExpressionInvalid:
        """The next token does not belong there."""
        near = " ".join(self.tokens[max(0, self.at - 1) : self.at + 2]).strip()
        return self.wrong(f'Syntax error; token: "{self.next or "<EOF>"}", near: "{near}"')

    def needs_path(self, function: str) -> ExpressionInvalid:
        """The function takes an attribute and was given something else."""
        return self.wrong(f"Operator or function requires a document path; operator or function: {function}")

    def left_out(self, what: str) -> NotImplementedError:
        """DynamoDB knows it."""
        return NotImplementedError(f"MemoryDynamoDB does not know {what} in a {self.kind}")
