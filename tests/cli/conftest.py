"""Services for which the command fails."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class _Answers(BaseHTTPRequestHandler):
    """A service that answers each request in the same way."""

    server: "_Service"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        content = json.dumps(
            {"__type": f"com.amazonaws.dynamodb.v20120810#{self.server.code}", "message": "no"}
        ).encode()
        self.send_response_only(400)
        self.send_header("Date", formatdate(time.time() + self.server.ahead_s, usegmt=True))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Service(ThreadingHTTPServer):
    """That service.

    Args:
        code: the error code of its answers.
        ahead_s: by how much its clock is ahead of ours.
    """

    def __init__(self, code: str, ahead_s: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.code = code
        self.ahead_s = ahead_s


@contextmanager
def _answering(code: str, ahead_s: int = 0) -> Iterator[str]:
    with _Service(code, ahead_s) as server, _serving(server) as url:
        yield url


@contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def throttling() -> Iterator[str]:
    """The URL of a service that is always busy."""
    with _answering("ThrottlingException") as url:
        yield url


@pytest.fixture
def denying() -> Iterator[str]:
    """The URL of a service that permits nothing."""
    with _answering("AccessDeniedException") as url:
        yield url


@pytest.fixture
def an_hour_ahead() -> Iterator[str]:
    """The URL of a service whose clock is an hour ahead of ours."""
    with _answering("AccessDeniedException", ahead_s=3_600) as url:
        yield url


class _WebPage(BaseHTTPRequestHandler):
    """A server of web pages."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response_only(404)
        content = b"<html>There is no such page.</html>"
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web_page() -> Iterator[str]:
    """The URL of a server that is not DynamoDB."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _WebPage) as server, _serving(server) as url:
        yield url


@pytest.fixture
def closed_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
