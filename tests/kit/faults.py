"""What can happen to a request on its way to the table, and to the reply on its way back."""

import asyncio
import json
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, log
from types import MappingProxyType

import aiohttp
from aiohttp import web

from ticketlock.testing import Sent

# Headers of the connection, or that aiohttp writes anew.
_NOT_HANDED_ON = ("Connection", "Content-Length", "Transfer-Encoding")


class Passage:
    """One request on its way.

    Attributes:
        sent: what it asks of the table.
    """

    def __init__(self, request: web.BaseRequest, body: bytes, session: aiohttp.ClientSession, table_url: str) -> None:
        self.sent = Sent(request.headers.get("X-Amz-Target", "").rpartition(".")[2], json.loads(body))
        self._request = request
        self._body = body
        self._session = session
        self._table_url = table_url

    async def deliver(self) -> web.Response:
        """Send it to the table, and return the reply."""
        async with self._session.post(self._table_url, data=self._body, headers=self._request.headers) as reply:
            headers = reply.headers.copy()
            for name in _NOT_HANDED_ON:
                headers.popall(name, None)
            return web.Response(status=reply.status, headers=headers, body=await reply.read())

    async def break_off(self, reply: web.Response) -> web.StreamResponse:
        """Pass on half of a reply, and end the connection."""
        assert isinstance(reply.body, bytes)
        broken = web.StreamResponse(status=reply.status, headers=reply.headers)
        broken.content_length = len(reply.body)
        await broken.prepare(self._request)
        await broken.write(reply.body[: len(reply.body) // 2])
        self._end(lambda connection: connection.abort())
        return broken

    def reset(self) -> web.StreamResponse:
        """Reset the connection."""
        return self._end(reset_connection)

    def hang_up(self) -> web.StreamResponse:
        """End the connection in good order, without an answer."""
        return self._end(lambda connection: connection.close())

    def _end(self, how: Callable[[asyncio.Transport], None]) -> web.Response:
        """End the connection, unless its client has; the answer reaches nobody."""
        if self._request.transport is not None:
            how(self._request.transport)
        return web.Response()


def reset_connection(transport: asyncio.WriteTransport | asyncio.Transport) -> None:
    """Reset a connection."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # Closing the socket resets it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


Fault = Callable[[Passage], Awaitable[web.StreamResponse]]
"""What happens to a request; returns what its sender gets, if it is still connected."""


async def unharmed(passage: Passage) -> web.StreamResponse:
    """It is delivered and answered."""
    return await passage.deliver()


async def request_lost(passage: Passage) -> web.StreamResponse:
    """The connection is reset before the request reaches the table."""
    return passage.reset()


async def reply_lost(passage: Passage) -> web.StreamResponse:
    """It is applied, or refused, and the connection is reset."""
    await passage.deliver()
    return passage.reset()


async def reply_withheld(passage: Passage) -> web.StreamResponse:
    """It is applied, or refused, and the connection ends without an answer."""
    await passage.deliver()
    return passage.hang_up()


async def reply_garbled(passage: Passage) -> web.StreamResponse:
    """It is applied, or refused, and the reply ends in half of a character."""
    reply = await passage.deliver()
    return web.Response(status=reply.status, headers=reply.headers, body=b'{"message": "\xc3')


async def gateway_failed(passage: Passage) -> web.StreamResponse:
    """It is applied, or refused, and a gateway in between reports a time-out."""
    await passage.deliver()
    return web.Response(status=504, text="<html>Gateway Time-out</html>")


async def reply_broken_off(passage: Passage) -> web.StreamResponse:
    """It is applied, or refused, and half of the reply arrives."""
    return await passage.break_off(await passage.deliver())


async def delivered_twice(passage: Passage) -> web.StreamResponse:
    """It arrives twice, and the second reply is returned."""
    await passage.deliver()
    return await passage.deliver()


async def swallowed(_: Passage) -> web.StreamResponse:
    """It never arrives, and the connection stays open."""
    return await asyncio.Future[web.StreamResponse]()


async def reply_swallowed(passage: Passage) -> web.StreamResponse:
    """It is applied, or refused, nothing is answered, and the connection stays open."""
    await passage.deliver()
    return await swallowed(passage)


def slow_by(seconds: float) -> Fault:
    """It arrives so many seconds later."""

    async def slow(passage: Passage) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await passage.deliver()

    return slow


@dataclass
class Late:
    """It arrives when a test opens the gate; its sender may have given it up by then.

    Attributes:
        gate: a test sets it.
        arrived: set when it has arrived, and was applied or refused.
    """

    gate: threading.Event = field(default_factory=threading.Event)
    arrived: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, passage: Passage) -> web.StreamResponse:
        await asyncio.to_thread(self.gate.wait)
        reply = await passage.deliver()
        self.arrived.set()
        return reply


DEFAULT_ODDS: Mapping[Fault, int] = MappingProxyType(
    {
        unharmed: 12,
        reply_lost: 1,
        reply_withheld: 1,
        request_lost: 1,
        reply_broken_off: 1,
        reply_garbled: 1,
        gateway_failed: 1,
        delivered_twice: 1,
        slow_by(0.02): 3,
    }
)
"""The relative frequency of each fault."""
_RUNS_THAT_MISS_ONE = 1e-6
_RAREST = min(DEFAULT_ODDS.values()) / sum(DEFAULT_ODDS.values())
SURELY_INJECTED = ceil(log(_RUNS_THAT_MISS_ONE / len(DEFAULT_ODDS)) / log(1 - _RAREST))
"""Among so many requests each fault is injected at least once, except in one of a million runs."""


class RandomFaults:
    """Chooses the fault of each request.

    Args:
        seed: the same seed gives the same sequence of faults; their requests depend on the order of the clients, too.
        odds: the relative frequency of each fault.
    """

    def __init__(self, seed: str, odds: Mapping[Fault, int] = DEFAULT_ODDS) -> None:
        self._chance = random.Random(seed)
        self._faults, self._weights = tuple(odds), tuple(odds.values())

    def __call__(self) -> Fault:
        return self._chance.choices(self._faults, self._weights)[0]
