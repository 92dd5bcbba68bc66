"""SDK clients whose calls are made in another way."""

from collections.abc import Callable, Mapping
from typing import Any


class Sending:
    """A client whose every method calls a function.

    Args:
        client: whose settings and classes of errors it has.
        call: what a call does, with the name of its operation (``"put_item"``) and its parameters.
    """

    def __init__(self, client: Any, call: Callable[[str, Mapping[str, Any]], Any]) -> None:
        self.meta = getattr(client, "meta", None)
        self.exceptions = getattr(client, "exceptions", None)
        self._call = call

    def __getattr__(self, operation: str) -> Any:
        return lambda **parameters: self._call(operation, parameters)


class Awaited(Sending):
    """A client whose calls are awaited, as those of aiobotocore are; no call waits for anything.

    Args:
        client: for threads, for example a ``MemoryDynamoDB``.
    """

    def __init__(self, client: Any) -> None:
        async def call(operation: str, parameters: Mapping[str, Any]) -> Any:
            return getattr(client, operation)(**parameters)

        super().__init__(client, call)
