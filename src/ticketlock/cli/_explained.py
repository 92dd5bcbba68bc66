"""A command whose help has a description, an example and the exit codes, and whose errors name the option typed."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import click

from ticketlock.cli._exits import MEANINGS
from ticketlock.errors import InvalidLockRequest


def first_sentence(command: click.Command) -> str:
    """The first sentence of its help, not shortened: the list of commands wraps it."""
    first, _, _ = inspect.cleandoc(command.help or "").partition("\n\n")
    return " ".join(first.split()).partition(". ")[0].rstrip(".")


class Explained(click.Command):
    """One of the commands.

    Args:
        example: a command line, or several.
        ends: its exit codes.
        more: click's own arguments.

    Attributes:
        meanings: of the exit codes.
    """

    meanings: ClassVar[Mapping[int | str, str]] = MEANINGS

    def __init__(self, *args: Any, example: str, ends: Sequence[int | str], **more: Any) -> None:
        super().__init__(*args, **more)
        self.example = example
        self.ends = tuple(ends)

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002  # click cuts what is longer
        """Its first sentence."""
        return first_sentence(self)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the example, as users type it, and the exit codes."""
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(" " * formatter.current_indent + line + "\n")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), self.meanings[code]) for code in self.ends])
        super().format_epilog(ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except InvalidLockRequest as error:
            typed = self.as_typed(ctx, error.field) or error.field
            raise click.UsageError(f"{typed} is {error.value}; allowed: {error.allowed}", ctx) from error
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def as_typed(self, ctx: click.Context, field: str) -> str | None:
        """The option or argument on the command line for a field of the library; None if there is none."""
        for param in self.get_params(ctx):
            if param.name == field:
                return (
                    max(param.opts, key=len)
                    if isinstance(param, click.Option)
                    else param.human_readable_name.strip("[]")
                )
        return None
