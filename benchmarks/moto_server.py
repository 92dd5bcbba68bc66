"""moto's DynamoDB behind HTTP, for other processes: prints its port, and ends with its standard input."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peers.building import installed
from programs import program

_REQUIREMENTS = Path(__file__).with_name("units-peer-requirements.txt")


@contextmanager
def moto_server() -> Iterator[str]:
    """Start one, and end it; yields its URL."""
    command = [sys.executable, __file__, str(installed("moto-server", _REQUIREMENTS))]
    with program("moto's server", command, quiet=True) as server:
        yield f"http://127.0.0.1:{int(server.line())}"


def _serve(folder: str) -> None:
    sys.path.append(folder)
    from moto.core.common_types import TYPE_RESPONSE
    from moto.dynamodb import responses
    from moto.server import ThreadedMotoServer

    # As of DynamoDB since 2022; moto still refuses a TransactGetItems of more than 25.
    responses.TRANSACTION_MAX_ITEMS = 100
    # moto is not made for several threads: a refused write would return half of an item that another one is creating.
    perform, one_at_a_time = responses.DynamoHandler.call_action, threading.Lock()

    def call_action(handler: responses.DynamoHandler) -> TYPE_RESPONSE:
        with one_at_a_time:
            reply: TYPE_RESPONSE = perform(handler)
        return reply

    responses.DynamoHandler.call_action = call_action  # type: ignore[method-assign]
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    _serve(sys.argv[1])
