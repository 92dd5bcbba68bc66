"""The command's exit codes, from ``sysexits.h`` and the shell, and which error leads to which."""

import errno
import inspect
from collections.abc import Mapping, Sequence
from typing import IO, Any, ClassVar

import click
from botocore.exceptions import BotoCoreError, ClientError

from ticketlock.errors import (
    InvalidLockRequest,
    LockLost,
    OutcomeUnknown,
    PermitsMismatch,
    RecordWaitExceeded,
    RequestNotApplied,
    TableNotFound,
    TableRefused,
    UnsupportedFormat,
)
from ticketlock.wire import meaning

ANSWER_WAS_NO = 1
USAGE = 2
UNAVAILABLE = 69
OUTPUT_LOST = 74
WAIT_IS_OVER = 75
LEASE_LOST = 76
CONFIGURATION = 78
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIGNALLED = "128+n"

# Part of the error of a table with other keys.
_OF_ANOTHER_KIND = "ValidationException"

MEANINGS: Mapping[int | str, str] = {
    0: "success; `run` exits with the program's code",
    ANSWER_WAS_NO: "you declined the confirmation, or there was no terminal to ask on: nothing was done",
    USAGE: "the command line is wrong",
    UNAVAILABLE: "the service cannot be reached, or throttles for longer than 8 s",
    OUTPUT_LOST: "stdout cannot be written: a full disk, a closed pipe; what was to be done is done, but `acquire` "
    "gives a new grant back",
    WAIT_IS_OVER: "the wait has timed out (--conflict-exit-code changes this code)",
    LEASE_LOST: "the lease was lost, or there is no such holder or waiter",
    CONFIGURATION: "configuration: the table, credentials, Region, a permission, another number of permits",
    NOT_EXECUTABLE: "the program cannot be executed",
    NOT_FOUND: "there is no such program",
    SIGNALLED: "signal n ended the program, or the wait",
}
"""The exit codes, as the help explains them."""


def after_signal(number: int) -> int:
    """The exit code that a shell gives to a program that a signal has ended."""
    return 128 + number


def of_failed_start(error: OSError) -> int:
    """The exit code that a shell gives to a command that could not be started."""
    return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE


class Ended(click.ClickException):
    """Ends the command with one line on stderr, commands to type in lines of their own, and an exit code."""

    exit_code: int  # type: ignore[misc]  # click has one for each class, and reads that of the instance

    def __init__(self, message: str | None, exit_code: int, commands: Sequence[str] = ()) -> None:
        super().__init__(" ".join((message or "").split()))
        self.exit_code = exit_code
        self.commands = commands

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line."""
        if self.message:
            click.echo("\n".join([f"ticketlock: {self.message}", *self.commands]), file=file, err=file is None)


def say_wrong_usage(wrong: click.UsageError) -> None:
    """Report a wrong command line: its usage, and one line."""
    if wrong.ctx is not None:
        click.echo(f"{wrong.ctx.get_usage()}\nTry '{wrong.ctx.command_path} --help' for help.\n", err=True)
    click.echo(f"ticketlock: {wrong.format_message()}", err=True)


def explained(error: Exception, *, table: str | None, place: str) -> click.ClickException | None:
    """What an error means for the user of the command; None for an error that only a bug of ours explains.

    Args:
        table: the name of the lock table; None if it is not known.
        place: the Region, and the endpoint if it is not that of AWS.
    """
    if isinstance(error, BotoCoreError | ClientError):
        means = meaning(error)
        if isinstance(means, Exception):
            return explained(means, table=table, place=place)
        return Ended(f"{error} ({place})", UNAVAILABLE)
    if isinstance(error, TableNotFound):
        return Ended(
            f"there is no table {table!r} in {place}: correct its name, the Region or the account. "
            "If these locks are in use, do not create a table: no other caller would use it. "
            "Before their first use: `ticketlock init`",
            CONFIGURATION,
        )
    if isinstance(error, RequestNotApplied | OutcomeUnknown):
        return Ended(f"the table {table!r} in {place} cannot be reached: {error}", UNAVAILABLE)
    if isinstance(error, TableRefused) and _OF_ANOTHER_KIND in str(error):
        return Ended(f"{error}: is {table!r} a lock table? `ticketlock doctor` checks its keys", CONFIGURATION)
    if isinstance(error, TableRefused | PermitsMismatch | UnsupportedFormat):
        return Ended(str(error), CONFIGURATION)
    if isinstance(error, RecordWaitExceeded):
        return Ended(f"the wait has timed out: {error}", WAIT_IS_OVER)
    if isinstance(error, LockLost):
        return Ended(str(error), LEASE_LOST)
    return None


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

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read its words."""
        try:
            return super().make_context(*args, **more)
        except click.NoSuchOption as wrong:
            if all(each.name != "entity" for each in self.params):
                raise
            how = "An ENTITY that begins with '-' stands after '--'."
            raise click.UsageError(f"{wrong.format_message()} {how}", wrong.ctx) from wrong

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
