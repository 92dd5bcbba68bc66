"""`ticketlock local`: a table for trials, deleted when the command ends."""

import signal
import socket
import struct
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kit.command import Command, Running, until

from ticketlock import LockClient
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("a server in a process of its own")


def endpoint_and_lines(local: Running) -> tuple[str, str]:
    lines = [local.line() for _ in range(3)]
    return lines[0].split()[1].partition("=")[2], "\n".join(lines)


def test_its_lines_make_the_command_work_in_another_shell(command: Command, entity: str, tmp_path: Path) -> None:
    local = command.start("local", env={"TICKETLOCK_TABLE": ""})
    (tmp_path / "lines").write_text(endpoint_and_lines(local)[1])
    bare = {"AWS_ENDPOINT_URL": "", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_REGION": ""}
    script = f". {tmp_path / 'lines'}; ticketlock run {entity} -- ticketlock show {entity}; ticketlock doctor"
    ended = command.start("-c", script, program=("bash",), env=bare).end()
    assert (ended.exit_code, ended.err) == (0, "")
    assert f"{entity} in default" in ended.out
    assert "1 permit" in ended.out
    assert "dynamodb:ConditionCheckItem: permitted" in ended.out


def test_runs_beside_each_other_wait_for_each_other_there(command: Command, entity: str) -> None:
    local = command.start("local", env={"TICKETLOCK_TABLE": "locks"})
    here = {"AWS_ENDPOINT_URL": endpoint_and_lines(local)[0], "TICKETLOCK_TABLE": "locks"}
    locks = LockClient("locks", client=make_client(endpoint_url=here["AWS_ENDPOINT_URL"], region_name="us-east-1"))
    holder = command.start("run", entity, "--", "sh", "-c", "echo inside; read go", env=here)
    assert holder.line() == "inside"
    waiter = command.start("run", entity, "--", "echo", "next", env=here)
    until(lambda: len(locks.inspect(entity).rows) == 1)
    assert holder.end("on\n").exit_code == 0
    assert waiter.end().out == "next\n"


def test_it_answers_on_the_loopback_interface_until_a_signal_and_says_nothing_of_a_client_that_is_killed(
    command: Command,
) -> None:
    local = command.start("local")
    endpoint, _ = endpoint_and_lines(local)
    assert endpoint.startswith("http://127.0.0.1:")
    for sent in (
        b"",
        b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    ):
        client = socket.create_connection(("127.0.0.1", int(endpoint.rpartition(":")[2])))
        client.sendall(sent)
        # As the system ends the connections of a killed process that has data left to read: with a reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    with pytest.raises(urllib.error.HTTPError) as answered:
        urllib.request.urlopen(urllib.request.Request(endpoint, data=b"{}"), timeout=10)
    assert answered.value.code == 400
    answered.value.close()
    local.send(signal.SIGINT)
    ended = local.end()
    assert (ended.exit_code, "Traceback" in ended.err, "Exception" in ended.err) == (0, False, False)
    # It was started in a checkout.
    assert "`make local`" in ended.err
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(endpoint, timeout=10)


@pytest.mark.parametrize(
    "body",
    [
        b"7",
        b"{",
        b'{"Item":' * 100_000,
        b'{"TableName": "locks", "Item": {"pk": {"S": 1}}}',
        b'{"TableName": "locks", "Item": {"pk": {"B": "a?=="}}}',
    ],
    ids=["no object", "cut", "nested", "a number for a text", "not in base64"],
)
def test_a_body_that_cannot_be_read_is_refused(command: Command, body: bytes) -> None:
    endpoint, _ = endpoint_and_lines(command.start("local"))
    asked = urllib.request.Request(endpoint, data=body, headers={"X-Amz-Target": "DynamoDB_20120810.PutItem"})
    with pytest.raises(urllib.error.HTTPError) as answered:
        urllib.request.urlopen(asked, timeout=10)
    with answered.value as reply:
        assert b"SerializationException" in reply.read()
