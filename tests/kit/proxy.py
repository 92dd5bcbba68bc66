"""A proxy between clients and the lock table: a test says what happens to a request or its reply.

It is a server on a port of its own, in a thread of the test's process; aiohttp speaks HTTP on both sides. With a
certificate it speaks HTTPS to the clients, who come to it through an HTTPS proxy's CONNECT (`kit.tunnel`).
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
from kit.certificates import Certificate
from kit.faults import Fault, Passage, swallowed, unharmed
from kit.tunnel import Tunnel

from ticketlock.testing import Sent


@dataclass
class Trouble:
    """A fault that is injected into the next requests of a kind.

    Attributes:
        times: how many requests will still get it.
        met: set when one has got it.
    """

    fault: Fault
    is_meant: Callable[[Sent], bool]
    times: float
    met: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on a port of 127.0.0.1 until the end of ``with``.

    Args:
        table_url: where the table is.
        certificate: what it shows to its clients; None for plain HTTP.

    Attributes:
        tunnel: with a certificate, the HTTPS proxy that leads here.
        keeps_alive: whether a connection is used again after an answer.
        random_faults: chooses the fault of every other request; None for no random faults.
        injected: how many requests have got each of the random faults.
        under_way: how many requests have not ended yet.
    """

    def __init__(self, table_url: str, certificate: Certificate | None = None) -> None:
        self._table_url = table_url
        self.certificate = certificate
        self.keeps_alive = True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="the proxy", daemon=True)
        # Bound, but not listening: until `listen` connections are refused.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        address = self._socket.getsockname()
        self.url = f"http://127.0.0.1:{address[1]}" if certificate is None else f"https://localhost:{address[1]}"
        self.tunnel = Tunnel(address) if certificate is not None else None
        self._troubles: list[Trouble] = []
        self.random_faults: Callable[[], Fault] | None = None
        self.injected: Counter[Fault] = Counter()
        self.under_way = 0

    def trouble(self, fault: Fault, is_meant: Callable[[Sent], bool] = lambda _: True, times: float = 1) -> Trouble:
        """Inject a fault into the next requests of a kind."""
        trouble = Trouble(fault, is_meant, times)
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
        """End fault injection."""
        self._troubles.clear()
        self.random_faults = None
        self.keeps_alive = True
        if self.tunnel is not None:
            self.tunnel.reception = "lets in"

    def listen(self) -> Self:
        """Accept connections from now on."""
        self._do(self._listen())
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

    async def _listen(self) -> None:
        context = self.certificate.context if self.certificate is not None else None
        await web.SockSite(self._runner, self._socket, ssl_context=context).start()
        if self.tunnel is not None:
            await self.tunnel.open()

    async def _close(self) -> None:
        if self.tunnel is not None:
            await self.tunnel.close()
        await self._runner.cleanup()
        await self._session.close()
        # Requests that were swallowed still wait, although their connections are gone.
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        passage = Passage(request, await request.read(), self._session, self._table_url)
        fault = self._fault(passage.sent)
        self.under_way += 1
        try:
            answer = await fault(passage)
        finally:
            self.under_way -= 1
        if not self.keeps_alive:
            answer.force_close()
        return answer

    def _fault(self, sent: Sent) -> Fault:
        for trouble in self._troubles:
            if trouble.times > 0 and trouble.is_meant(sent):
                trouble.times -= 1
                trouble.met.set()
                return trouble.fault
        if self.random_faults is None:
            return unharmed
        fault = self.random_faults()
        self.injected[fault] += 1
        return fault
