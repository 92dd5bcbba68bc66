"""``ticketlock.testing``'s DynamoDB behind HTTP, for other processes: prints its port, and ends with its stdin.

For measurements of time: every request takes about the same fraction of a millisecond, so many clients wait for each
other, not for the engine. ministack evaluates expressions slowly, and copies the whole table at each transaction.
"""

import asyncio
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from programs import program

from ticketlock.testing import MemoryDynamoDB
from ticketlock.testing._service import decoded, encoded


@contextmanager
def memory_server(delay_s: float = 0, *, tls: Path | str = "") -> Iterator[str]:
    """Start one, and end it; yields its URL.

    Args:
        delay_s: how long each request waits before it is served, as on its way through a network.
        tls: a folder with ``certificate.pem`` for localhost and ``key.pem``; by default it speaks plain HTTP.
    """
    with program("the engine in memory", [sys.executable, __file__, str(delay_s), str(tls)]) as server:
        yield f"{'https://localhost' if tls else 'http://127.0.0.1'}:{int(server.line())}"


async def serve(delay_s: float, tls: str) -> None:
    """Serve until the process that started it has ended."""
    memory = MemoryDynamoDB(lock_table=None)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))
                }
                body = await reader.readexactly(int(headers["content-length"]))
                if delay_s:
                    await asyncio.sleep(delay_s)
                writer.write(_answer(memory, headers["x-amz-target"], body))
                # The list of all sent requests is for tests.
                memory.sent.clear()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{tls}/certificate.pem", f"{tls}/key.pem")
    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def _answer(memory: MemoryDynamoDB, target: str, body: bytes) -> bytes:
    service, operation = target.split(".")
    if service.startswith("DynamoDB"):
        asked = decoded(body)
        # It reports no units; a proxy that counts asks any engine for them.
        asked.pop("ReturnConsumedCapacity", None)
        status, reply = memory._service.answer(operation, asked)
        headers, content = encoded(reply)
    else:
        # An answer to a callback task of Step Functions.
        status, headers, content = 200, {}, b"{}"
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines += ["content-type: application/x-amz-json-1.0", f"content-length: {len(content)}"]
    return "\r\n".join([f"HTTP/1.1 {status} -", *lines, "", ""]).encode() + content


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), sys.argv[2]))
