"""An SDK client whose calls are awaited, as those of aiobotocore are, over one whose calls are not."""

from typing import Any


class Awaited:
    """The same client for tasks; no call waits for anything.

    Args:
        client: for threads, for example a ``MemoryDynamoDB``.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.meta = client.meta

    def __getattr__(self, name: str) -> Any:
        async def call(**parameters: Any) -> Any:
            return getattr(self._client, name)(**parameters)

        return call
