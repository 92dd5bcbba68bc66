"""The tokens of an expression, and the errors in them."""

import re
from functools import cached_property
from typing import Literal

from ticketlock._expressions._errors import ExpressionInvalid

Kind = Literal[
    "ConditionExpression", "FilterExpression", "KeyConditionExpression", "ProjectionExpression", "UpdateExpression"
]
"""The request's parameter that holds the expression."""

END = ""
MAX_EXPRESSION_BYTES = 4_096
MAX_OPERATORS = 300
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters"""

_TOKEN = re.compile(r"[#:]\w+|[A-Za-z]\w*|\d+|<=|>=|<>|[=<>(),.+\-\[\]]", re.ASCII)
_SPACE = re.compile(r"\s*")


class Tokens:
    """An expression, token by token.

    Attributes:
        kind: the request's parameter that holds it.
        tokens: all tokens, and an empty one at the end.
        at: the index of the next one.

    Raises:
        ExpressionInvalid: it is empty or too long, or contains something that is not a token.
    """

    def __init__(self, kind: Kind, text: str) -> None:
        self.kind: Kind = kind
        self.tokens: list[str] = []
        self.at = 0
        self._operators = 0
        if not text.strip():
            raise self.wrong("The expression can not be empty;")
        size = len(text.encode(errors="surrogatepass"))
        if size > MAX_EXPRESSION_BYTES:
            raise self.wrong(f"Expression size has exceeded the maximum allowed size; expression size: {size}")
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
        """Take the next token if it is this one; return whether it was."""
        taken = self.next == token
        self.at += taken
        return taken

    def took_word(self, word: str) -> bool:
        """The same for a word, in upper or lower case."""
        return self.took(self.next if self.next.upper() == word else word)

    def must(self, token: str) -> None:
        """Take this token."""
        if not self.took(token):
            raise self.unexpected()

    @cached_property
    def closings(self) -> dict[int, int]:
        """The index of each closing parenthesis by that of its opening one; the end if it is not closed."""
        found, opened = {}, []
        for position, token in enumerate(self.tokens):
            if token == "(":
                opened.append(position)
            elif token == ")" and opened:
                found[opened.pop()] = position
        return {**dict.fromkeys(opened, len(self.tokens) - 1), **found}

    def is_doubled(self, opening: int) -> bool:
        """Whether the parenthesis that opens here contains only another pair."""
        within = opening + 1
        return within in self.closings and self.closings[within] + 1 == self.closings[opening]

    def note_operator(self) -> None:
        """Count an operator or function."""
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise self.wrong(f"The expression contains too many operators; operator count: {self._operators}")

    def wrong(self, why: str) -> ExpressionInvalid:
        """The error for a mistake in the expression."""
        return ExpressionInvalid(f"Invalid {self.kind}: {why}")

    def unexpected(self) -> ExpressionInvalid:
        """The error for a token that does not belong here."""
        near = " ".join(self.tokens[max(0, self.at - 1) : self.at + 2]).strip()
        return self.wrong(f'Syntax error; token: "{self.next or "<EOF>"}", near: "{near}"')

    def redundant(self) -> ExpressionInvalid:
        """The error for redundant parentheses."""
        return self.wrong("The expression has redundant parentheses;")
