"""``ticketlock local``: a DynamoDB in memory with a lock table, on the loopback interface, to try ticketlock."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
from botocore.exceptions import ParamValidationError

import ticketlock
from ticketlock.cli._exits import OUTPUT_LOST, USAGE, Explained
from ticketlock.cli._settings import settings_of
from ticketlock.cli._signals import Signals
from ticketlock.testing import MemoryDynamoDB, decoded, encoded, failure

_HOST = "127.0.0.1"


@click.command(cls=Explained, example="ticketlock local --port 8000", ends=(0, USAGE, OUTPUT_LOST))
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port to listen on.  [default: a free one]")
@click.pass_context
def local(context: click.Context, /, port: int) -> None:
    """Serve an empty lock table from memory until a signal arrives, and print how to use it.

    It listens on 127.0.0.1 only, checks no credentials, and forgets everything when it ends.
    """
    table_name = settings_of(context).table or "locks"
    with Signals() as signals, serving(MemoryDynamoDB(lock_table=table_name), port) as endpoint:
        click.echo(
            f"export AWS_ENDPOINT_URL={endpoint} AWS_DEFAULT_REGION=us-east-1\n"
            "export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local\n"
            f"export TICKETLOCK_TABLE={table_name}"
        )
        click.echo("Paste these lines into another shell. Ctrl-C ends the server.", err=True)
        if _checkout() is not None:
            click.echo(f"With workflows too: `make local` in {_checkout()}.", err=True)
        while signals.ending() is None:
            signals.wait(None)


@contextmanager
def serving(memory: MemoryDynamoDB, port: int) -> Iterator[str]:
    """Answer requests over HTTP within the block; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, content = _answer(memory, self.headers.get("X-Amz-Target", ""), body)
            # The memory keeps its requests for tests.
            memory.sent.clear()
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            # A client that was killed has reset its connection: no one waits for the answer.
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    with Server((_HOST, port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield f"http://{_HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _answer(memory: MemoryDynamoDB, target: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    service, _, operation = target.partition(".")
    try:
        if not service.startswith("DynamoDB"):
            raise NotImplementedError(f"there is no {service or 'service of that kind'} here")
        status, reply = memory._service.answer(operation, decoded(body))
    except NotImplementedError as unknown:
        return _refusal("UnknownOperationException", unknown)
    except ValueError as wrong:
        return _refusal("SerializationException", wrong)
    except ParamValidationError as wrong:
        return _refusal("SerializationException" if "Invalid type" in str(wrong) else "ValidationException", wrong)
    return status, *encoded(reply)


def _refusal(code: str, why: Exception) -> tuple[int, dict[str, str], bytes]:
    return 400, {}, json.dumps({**failure(code), "message": str(why)}).encode()


def _checkout() -> Path | None:
    folder = Path(ticketlock.__file__).parents[2]
    return folder if (folder / "infra" / "ticketlock_local").is_dir() else None
