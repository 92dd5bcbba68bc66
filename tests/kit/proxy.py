"""A proxy between clients and the lock table: what becomes of a request, or of its reply, is for a test to say.

It is a server on a port of its own, in a thread of the test's process; aiohttp speaks HTTP on both sides.
"""

import asyncio
import math
import socket
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from aiohttp import web
from kit.mishaps import Mishap, Passage, swallowed, unharmed

from ticketlock.testing import Sent


@dataclass
class Trouble:
    """A mishap that the next requests of a kind meet.

    Attributes:
        times: how many still will.
        met: set when one did.
    """

    mishap: Mishap
    is_meant: Callable[[Sent], bool]
    times: float
    met: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on a port of 127.0.0.1 until the end of ``with``.

    Args:
        table_url: where the table is.

    Attributes:
        weather: the mishap of each request that no trouble awaits; none while it is fair.
        struck: how many requests met what in bad weather, until now.
    """

    def __init__(self, table_url: str) -> None:
        self._table_url = table_url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="the proxy", daemon=True)
        # Bound, and not listening: until `listen` connections are refused.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:{1}".format(*self._socket.getsockname())
        self._troubles: list[Trouble] = []
        self.weather: Callable[[], Mishap] | None = None
        self.struck: Counter[Mishap] = Counter()

    def trouble(self, mishap: Mishap, is_meant: Callable[[Sent], bool] = lambda _: True, times: float = 1) -> Trouble:
        """Let the next requests of a kind meet a mishap."""
        trouble = Trouble(mishap, is_meant, times)
        self._troubles.append(trouble)
        return trouble

    @contextmanager
    def black_hole(self) -> Iterator[Trouble]:
        """Within the block, nothing arrives and nothing is answered."""
        trouble = self.trouble(swallowed, times=math.inf)
        try:
            yield trouble
        finally:
            trouble.times = 0

    def clear_up(self) -> None:
        """No trouble, and fair weather."""
        self._troubles.clear()
        self.weather = None

    def listen(self) -> Self:
        """Accept connections from now on."""
        self._do(web.SockSite(self._runner, self._socket).start())
        return self

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._socket.close()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _open(self) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()
        # Whoever was swallowed waits still, though its connection is gone.
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        passage = Passage(request, await request.read(), self._session, self._table_url)
        return await self._mishap(passage.sent)(passage)

    def _mishap(self, sent: Sent) -> Mishap:
        for trouble in self._troubles:
            if trouble.times > 0 and trouble.is_meant(sent):
                trouble.times -= 1
                trouble.met.set()
                return trouble.mishap
        if self.weather is None:
            return unharmed
        mishap = self.weather()
        self.struck[mishap] += 1
        return mishap
