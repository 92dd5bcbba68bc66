"""The process that an object belongs to: a forked child shares its parent's connections, and may get its replies."""

import os

from ticketlock.errors import ClientClosed


class OwnProcess:
    """The process that created the object."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether this process is that one, and not a fork of it."""
        return self._pid == os.getpid()

    def check(self) -> None:
        """Refuse to work in a forked child.

        Raises:
            ClientClosed: this process is one.
        """
        if not self.is_this:
            raise ClientClosed(
                f"the client was made in process {self._pid}, from which this one was forked: create a new client here"
            )
