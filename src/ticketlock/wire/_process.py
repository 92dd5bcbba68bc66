"""The process that something belongs to: a forked child has its parent's connections, and replies of one reach both."""

import os

from ticketlock.errors import ClientClosed


class OwnProcess:
    """The process in which this was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether it is this one, and not one that was forked from it."""
        return self._pid == os.getpid()

    def check(self) -> None:
        """Refuse to go on in a forked child.

        Raises:
            ClientClosed: this is one.
        """
        if not self.is_this:
            raise ClientClosed(
                f"the client was made in process {self._pid}, from which this one was forked: make another one here"
            )
