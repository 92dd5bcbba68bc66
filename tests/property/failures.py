"""What ends a schedule early: a broken promise, or an unexpected error; and how to replay it."""

import shlex
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kit.invariants import Broken


class Unexpected(Exception):
    """An error that no machine's script expects. It breaks no named promise, and so does not catch a broken lock."""


FAILURES = (Broken, Unexpected)


@contextmanager
def noted(log: Sequence[str] = ()) -> Iterator[None]:
    """Within the block a failure is reported with what happened before.

    Args:
        log: what has happened so far; it grows.

    Raises:
        Broken: a promise was broken.
        Unexpected: another error was raised.
    """
    try:
        yield
    except FAILURES as failure:
        _note(failure, log)
        raise
    except Exception as error:
        unexpected = Unexpected(f"unexpected {type(error).__name__}: {error}")
        unexpected.add_note("".join(traceback.format_exception(error)))
        _note(unexpected, log)
        raise unexpected from error


def _note(failure: Exception, log: Sequence[str]) -> None:
    if log:
        failure.add_note("\n".join(log))


def kind_of(failure: Exception) -> str:
    """The promise that was broken, or the unexpected error."""
    return str(failure).partition(":")[0]


def story_of(failure: Exception) -> str:
    """The failure, and what happened before."""
    return "\n".join([str(failure), *getattr(failure, "__notes__", ())])


def again(**arguments: bool | int | str | None) -> str:
    """The command that replays a failure and shortens its schedule."""
    given = {name: value for name, value in arguments.items() if value is not None and value is not False}
    words = []
    for name, value in given.items():
        if value is True:
            words.append(f"--{name}")
        else:
            words.append(f'--{name} "{value}"' if isinstance(value, str) else f"--{name} {value}")
    # An apostrophe would end the shell's quotation.
    return f"make replay ARGS={shlex.quote(' '.join(words))}"
