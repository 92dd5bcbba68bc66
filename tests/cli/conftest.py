"""Services for which the command fails, and tables in memory with what units have left."""

import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kit.engines import Engine
from kit.units import KEYS, Books, make_table, make_tables

from ticketlock.testing import MemoryDynamoDB


@contextmanager
def _answering(status: int, content: str, ahead_s: int = 0) -> Iterator[str]:
    """The URL of a service that answers each request in this way, and whose clock is so far ahead of ours."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response_only(status)
            self.send_header("Date", formatdate(time.time() + ahead_s, usegmt=True))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _error(code: str) -> str:
    return json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"})


@pytest.fixture
def throttling() -> Iterator[str]:
    """The URL of a service that is always busy."""
    with _answering(400, _error("ThrottlingException")) as url:
        yield url


@pytest.fixture
def denying() -> Iterator[str]:
    """The URL of a service that permits nothing."""
    with _answering(400, _error("AccessDeniedException")) as url:
        yield url


@pytest.fixture
def an_hour_ahead() -> Iterator[str]:
    """The URL of a service whose clock is an hour ahead of ours."""
    with _answering(400, _error("AccessDeniedException"), ahead_s=3_600) as url:
        yield url


@pytest.fixture
def web_page() -> Iterator[str]:
    """The URL of a server that is not DynamoDB."""
    with _answering(404, "<html>There is no such page.</html>") as url:
        yield url


@pytest.fixture
def nobody() -> str:
    """The URL of a port at which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def memory() -> MemoryDynamoDB:
    """By the clock of this machine, as the command has it."""
    return MemoryDynamoDB(lock_table=None)


@pytest.fixture
def books(memory: MemoryDynamoDB) -> Books:
    """The tables of units, in memory, each by the name of its use."""
    engine = Engine("memory", None, "locks", memory)
    made = Books(engine, engine.client(), {use: use for use in KEYS})
    make_tables(made.plain_client, made.tables)
    return made


@pytest.fixture
def keyed_otherwise(dynamodb: Any) -> Iterator[str]:
    """The name of a table whose keys are not those of a lock table."""
    name = f"other-{uuid.uuid4().hex[:8]}"
    make_table(dynamodb, name, {"id": "S"})
    yield name
    dynamodb.delete_table(TableName=name)
