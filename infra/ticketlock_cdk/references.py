"""What a value of a template refers to, while references between stacks are not yet exports."""

from typing import Any

from aws_cdk import DefaultTokenResolver, Reference, StringConcat, Tokenization
from constructs import IConstruct


def named_in(scope: IConstruct, value: Any) -> set[IConstruct]:
    """The resources, of any stack, that a value in this scope names. A logical id would not tell two stacks apart."""
    finder = _ReferencesFound()
    Tokenization.resolve(value, scope=scope, resolver=finder, preparing=True)
    return finder.found


class _ReferencesFound(DefaultTokenResolver):
    def __init__(self) -> None:
        super().__init__(StringConcat())
        self.found: set[IConstruct] = set()

    def resolve_token(self, t: Any, context: Any, post_processor: Any) -> Any:
        if isinstance(t, Reference):
            self.found.add(t.target)
            return "named"
        return super().resolve_token(t, context, post_processor)
