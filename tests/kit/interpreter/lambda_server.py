"""The Invoke API of Lambda on a loopback port, running Python handlers in this process.

Replies have the form of the real service: an exception of a handler becomes `X-Amz-Function-Error` with the
class name as `errorType`, which is the error name that a state machine sees.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import unquote

Handler = Callable[[Any, "LambdaContext"], Any]
Hook = Callable[[Any], None]
Twice = Literal["no", "second reply", "first reply"]


class ServiceError(Exception):
    """Raised by a hook: Lambda itself refuses the invocation, under the name `Lambda.<code>`."""

    def __init__(self, code: str, status: int = 500) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


@dataclass(frozen=True)
class LambdaContext:
    """The context that a handler gets."""

    function_name: str


@dataclass
class Function:
    """A handler, and the faults to inject; the fields may be changed while executions run."""

    handler: Handler
    twice: Twice = "no"
    """Run every event twice: before the reply, which is the second run's, or once more after the reply."""
    delay_s: float = 0.0
    """A delay before the handler starts; cut short when the server closes."""
    before: Hook | None = None
    """Called with the event before the handler; may raise (the handler does not run) or block."""
    after: Hook | None = None
    """Called with the event when the handler is done; may raise (its reply is lost) or block."""


@dataclass(frozen=True)
class Invocation:
    """One finished run of a handler, by the monotonic clock."""

    function: str
    event: Any
    result: Any
    exception: BaseException | None
    started: float
    ended: float


def function_arn(name: str) -> str:
    return f"arn:aws:lambda:us-east-1:123456789012:function:{name}"


class LambdaServer:
    """Serves `functions` until closed; `invocations` lists the finished runs in the order of their ends."""

    def __init__(self, functions: dict[str, Function], patience_s: float) -> None:
        self.functions = functions
        self.patience_s = patience_s
        self.invocations: list[Invocation] = []
        self._closing = threading.Event()
        self._http = _HttpServer(self)
        self._accepting = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="lambda-server", daemon=True
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Refuse new invocations and wait for the running ones; raise if one does not end in time."""
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._accepting.join()
        deadline = time.monotonic() + self.patience_s
        for thread in self._http.connections:
            thread.join(max(0.0, deadline - time.monotonic()))
        stuck = [thread.name for thread in self._http.connections if thread.is_alive()]
        for thread, connection in self._http.connections.items():
            if thread.is_alive():  # at least its caller continues
                connection.shutdown(socket.SHUT_RDWR)
        if stuck:
            raise RuntimeError(f"{len(stuck)} invocations are still running: {', '.join(stuck)}")

    def respond(self, name: str, event: Any, send: Callable[[int, dict[str, str], Any], None]) -> None:
        """Run the function for one request and send its reply."""
        function = self.functions.get(name)
        if function is None:
            return _refuse(send, ServiceError("ResourceNotFoundException", 404))
        try:
            invocation = self._run(name, function, event)
            if function.twice == "second reply":
                invocation = self._run(name, function, event)
        except ServiceError as error:
            return _refuse(send, error)
        raised = invocation.exception
        if raised is None:
            send(200, {}, invocation.result)
        else:
            body = {
                "errorMessage": str(raised),
                "errorType": type(raised).__name__,
                "requestId": str(uuid.uuid4()),
                "stackTrace": traceback.format_tb(raised.__traceback__),
            }
            send(200, {"X-Amz-Function-Error": "Unhandled"}, body)
        if function.twice == "first reply":
            self._run(name, function, event)
        return None

    def _run(self, name: str, function: Function, event: Any) -> Invocation:
        started = time.monotonic()
        result: Any = None
        exception: BaseException | None = None
        try:
            self._closing.wait(function.delay_s)
            if function.before is not None:
                function.before(event)
            context = LambdaContext(name)
            # Each run has its own copy, and a reply that is not JSON is an error here, as on the service.
            result = json.loads(json.dumps(function.handler(json.loads(json.dumps(event)), context)))
            if function.after is not None:
                function.after(event)
        except ServiceError:
            raise
        except BaseException as error:
            exception = error
        invocation = Invocation(name, event, result, exception, started, time.monotonic())
        self.invocations.append(invocation)
        return invocation


def _refuse(send: Callable[[int, dict[str, str], Any], None], error: ServiceError) -> None:
    send(error.status, {"x-amzn-ErrorType": error.code}, {"Type": "Service", "Message": error.code})


class _HttpServer(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, service: LambdaServer) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.service = service
        self.connections: dict[threading.Thread, socket.socket] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self.connections[thread] = request
        thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have disconnected; anything else is an error of this server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_POST(self) -> None:
        target = unquote(self.path).removeprefix("/2015-03-31/functions/").removesuffix("/invocations")
        name = target.split(":function:")[-1].split(":")[0]
        threading.current_thread().name = name
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.service.respond(name, json.loads(body or b"{}"), self._send)

    def _send(self, status: int, headers: dict[str, str], payload: Any) -> None:
        body = json.dumps(payload).encode()
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the records are in `invocations`."""
