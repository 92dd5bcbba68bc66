"""An HTTPS proxy: on CONNECT it passes the bytes of both sides on, unread, or it fails."""

import asyncio
import socket
from typing import Literal

from kit.faults import reset_connection

Reception = Literal["lets in", "refuses", "resets", "breaks off"]
"""What happens to a CONNECT: it is accepted; refused with a 502; reset without an answer; or accepted, and reset before
TLS has begun."""

_MOST_BYTES = 65_536
"""How many it reads at once."""


class Tunnel:
    """Connects each client to one server, whatever host its CONNECT names.

    Args:
        target: the server's address.

    Attributes:
        reception: what happens to each further CONNECT.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.reception: Reception = "lets in"
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server: asyncio.Server | None = None
        self._passing: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        """Begin to accept connections."""
        self._server = await asyncio.start_server(self._receive, sock=self._socket)

    async def close(self) -> None:
        """Accept no more connections, and end those that there are."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for writer in self._passing.values():
            writer.transport.abort()
        await asyncio.gather(*self._passing)

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing[task] = writer
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            reset_connection(writer.transport)
        finally:
            del self._passing[task]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT ")
        if self.reception == "refuses":
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        if self.reception == "resets":
            reset_connection(writer.transport)
            return
        breaks_off = self.reception == "breaks off"
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        if breaks_off:
            # The first byte of TLS shows that the client has read the reply.
            await reader.read(1)
            reset_connection(writer.transport)
            return
        there, back = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            back.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side ends its connection; the other one is ended, or reset, in the same way."""
    try:
        while data := await reader.read(_MOST_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        reset_connection(writer.transport)
    else:
        writer.close()
