"""The CONNECT of an HTTPS proxy: passes on bytes that it cannot read, or does not."""

import asyncio
import socket
from typing import Literal

from kit.faults import RESET

Reception = Literal["lets in", "refuses", "resets", "breaks off"]
"""What happens to a CONNECT: it is accepted; refused with a 502; reset without an answer; or accepted, and reset before
TLS has begun."""

_PASSED_ON = 65_536


class Tunnel:
    """Connects each client to one server, whichever host a CONNECT names.

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
        self.url = "http://127.0.0.1:{1}".format(*self._socket.getsockname())
        self._server: asyncio.Server | None = None
        self._passing: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._receive, sock=self._socket)

    async def close(self) -> None:
        """Stop listening."""
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
            await self._pass(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            _reset(writer)
        finally:
            del self._passing[task]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT ")
        if self.reception == "refuses":
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        if self.reception == "resets":
            _reset(writer)
            return
        breaks_off = self.reception == "breaks off"
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.drain()
        if breaks_off:
            # After the client has got the reply that accepts it.
            await reader.read(1)
            _reset(writer)
            return
        there, back = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(_hand_on(reader, back), _hand_on(there, writer))
        finally:
            back.close()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end; one that is a reset is handed on as one."""
    try:
        while data := await reader.read(_PASSED_ON):
            writer.write(data)
            await writer.drain()
    except OSError:
        _reset(writer)
    else:
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
