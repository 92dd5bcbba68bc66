"""What ends a schedule before its end: a broken promise, or an error that nobody expected; and how it is seen again."""

import shlex
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kit.invariants import Broken


class Unexpected(Exception):
    """An error that no machine's script expects: it breaks no promise by name, and proves nothing of a broken lock."""


FAILURES = (Broken, Unexpected)


@contextmanager
def told(log: Sequence[str] = ()) -> Iterator[None]:
    """Within the block whatever fails is told with what happened before.

    Args:
        log: what has happened, growing.

    Raises:
        Broken: a promise was broken.
        Unexpected: something else was raised.
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
    """The promise that was broken, or the error that nobody expected."""
    return str(failure).partition(":")[0]


def story_of(failure: Exception) -> str:
    """The failure, and what happened before."""
    return "\n".join([str(failure), *getattr(failure, "__notes__", ())])


def again(**arguments: bool | int | str | None) -> str:
    """The command that shows a failure again, and makes its schedule shorter."""
    given = {name: value for name, value in arguments.items() if value is not None and value is not False}
    words = []
    for name, value in given.items():
        if value is True:
            words.append(f"--{name}")
        else:
            words.append(f'--{name} "{value}"' if isinstance(value, str) else f"--{name} {value}")
    # An apostrophe would end what the shell is given as one word.
    return f"make replay ARGS={shlex.quote(' '.join(words))}"
