"""stdout and stderr as a command needs them: either may be closed, full, or a pipe that no one reads.

What a command does must not depend on who reads what it says. A message on stderr that cannot be written is dropped. A
result on stdout that cannot be written ends the command with an exit code of its own, and never in the middle of what
it does.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from ticketlock.cli._exits import OUTPUT_LOST, Ended


class OutputLost(Exception):
    """stdout cannot be written. Not an ``OSError``: click and rich would end the process at once.

    Args:
        why: the system's or the encoder's error.
    """

    def __init__(self, why: OSError | UnicodeEncodeError) -> None:
        super().__init__(why.strerror if isinstance(why, OSError) and why.strerror else str(why))
        self.why = why

    def end(self) -> Ended:
        """The end of a command that has only read. Who closes a pipe knows it, and needs no message."""
        message = None if isinstance(self.why, BrokenPipeError) else f"the output cannot be written: {self}"
        return Ended(message, OUTPUT_LOST)


@contextmanager
def telling(done: str) -> Iterator[None]:
    """For what is printed within the block after something was done: a message says that it was.

    Args:
        done: what was done.
    """
    try:
        yield
    except OutputLost as lost:
        raise Ended(f"{done}, but the output cannot be written: {lost}", OUTPUT_LOST) from lost


class Guarded:
    """A stream for as long as it can be written.

    Args:
        stream: the stream.
        drops: whether what cannot be written is dropped; else each further write raises ``OutputLost``.
    """

    def __init__(self, stream: Any, *, drops: bool) -> None:
        self._stream = stream
        self._drops = drops
        self._lost: OSError | UnicodeEncodeError | None = None

    def write(self, text: Any) -> int:
        """Write a text, or bytes to a binary stream."""
        with self._losing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._losing():
            self._stream.flush()

    @property
    def buffer(self) -> "Guarded":
        """The binary stream."""
        return Guarded(self._stream.buffer, drops=self._drops)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, UnicodeEncodeError) as error:
            self._lost = error
            # What is left in the buffer is flushed when the process ends.
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
        # Also later: click tries a stream first, and swallows what it raises.
        if self._lost is not None and not self._drops:
            raise OutputLost(self._lost) from self._lost


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Guard the streams of this process within the block. Python has none for a descriptor that was closed before."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # for as long as the process runs
    if sys.stdout is None:
        reads, writes = os.pipe()
        os.close(reads)
        sys.stdout = os.fdopen(writes, "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, Guarded(sys.stdout, drops=False))
    sys.stderr = cast(TextIO, Guarded(sys.stderr, drops=True))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
