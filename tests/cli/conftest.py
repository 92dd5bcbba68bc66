"""Real processes of the installed command, beside a lock table on the emulator."""

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from cli.processes import Command
from contract.promises import counts_are_kept, kept_by, stored
from ticketlock_local.cloud.deploy import client_arguments, client_environment
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient, create_table
from ticketlock.wire._sdk import make_client


@pytest.fixture(scope="session")
def table_name(emulator: Emulator) -> str:
    name = f"locks-{uuid.uuid4().hex[:8]}"
    create_table(name, client=boto3.client("dynamodb", **client_arguments(emulator.endpoint)))
    return name


@pytest.fixture(scope="session")
def environment(emulator: Emulator, table_name: str) -> dict[str, str]:
    """That of a shell whose AWS tools and locks are on the emulator."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        **client_environment(emulator.endpoint),
        "PATH": os.pathsep.join([scripts, os.environ["PATH"]]),
        "TICKETLOCK_TABLE": table_name,
        "TERM": "xterm",
    }


@pytest.fixture(scope="session")
def dynamodb(emulator: Emulator) -> Any:
    return make_client(endpoint_url=emulator.endpoint, region_name="us-east-1")


@pytest.fixture
def entity() -> str:
    return f"order-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def locks(dynamodb: Any, table_name: str) -> Iterator[LockClient]:
    """Locks of the same table, for the test itself."""
    with LockClient(table_name, client=dynamodb) as made:
        yield made


@pytest.fixture
def command(
    environment: dict[str, str], dynamodb: Any, table_name: str, entity: str, request: pytest.FixtureRequest
) -> Iterator[Command]:
    with ExitStack() as stack:
        yield Command(environment, stack)
    with kept_by(request):
        counts_are_kept(stored(dynamodb, table_name, entity), int(time.time() * 1_000))


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
        code: of the error that it answers.
        ahead_s: how far its clock is ahead of ours.
    """

    def __init__(self, code: str, ahead_s: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.code = code
        self.ahead_s = ahead_s


@contextmanager
def _answering(code: str, ahead_s: int = 0) -> Iterator[str]:
    with _Service(code, ahead_s) as server:
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
