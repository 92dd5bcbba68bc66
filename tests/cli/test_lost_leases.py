"""`ticketlock run` and its lease: renewed while the command runs, and what happens when it is lost."""

import os
import signal
import sys

import pytest
from kit.command import Command, lives, until

from ticketlock import LockClient

pytestmark = [
    pytest.mark.shows("child of the command"),
    pytest.mark.verify("each command is a process, and leases are waited for"),
]


def test_a_lost_lease_stops_the_command(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start(
        "run", entity, "--lease", "3", "--", "sh", "-c", "echo $TICKETLOCK_FENCING_TOKEN; exec sleep 1000"
    )
    locks.table.force_release(locks.lock(entity), int(run.line()))
    ended = run.end()
    assert ended.exit_code == 76
    assert ended.err.splitlines() == [
        f"ticketlock: the lease on '{entity}' is lost: stopping the command",
        f"ticketlock: the lease on '{entity}' was lost before the end",
    ]


def test_a_command_that_ends_before_the_heartbeat_finds_its_lock_freed_has_an_exit_code_of_its_own(
    command: Command, locks: LockClient, entity: str
) -> None:
    run = command.start("run", entity, "--", "sh", "-c", "echo $TICKETLOCK_FENCING_TOKEN; read go")
    locks.table.force_release(locks.lock(entity), int(run.line()))
    with locks.acquire(entity):
        ended = run.end("on\n")
    assert ended.exit_code == 76
    assert ended.err.splitlines()[-1] == f"ticketlock: the lease on '{entity}' was lost before the end"


def test_a_command_that_does_not_stop_for_a_lost_lease_is_killed_with_all_that_it_has_started(
    command: Command, locks: LockClient, entity: str
) -> None:
    deaf = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'deaf\\n'))\n"
        "other = os.fork()\n"
        "if other: print(os.environ['TICKETLOCK_FENCING_TOKEN'], os.getpid(), other, flush=True)\n"
        "while True: signal.pause()\n"
    )
    run = command.start("run", entity, "--lease", "3", "--kill-after", "0.3", "--", sys.executable, "-c", deaf)
    token, *pids = run.line().split()
    locks.table.force_release(locks.lock(entity), int(token))
    ended = run.end()
    assert ended.exit_code == 76
    assert "deaf" in ended.out
    until(lambda: not any(lives(int(pid)) for pid in pids))


def test_processes_that_a_stopped_command_leaves_behind_are_killed_too(
    command: Command, locks: LockClient, entity: str
) -> None:
    script = "(trap '' TERM; sleep 1000) & echo $TICKETLOCK_FENCING_TOKEN $!; wait"
    run = command.start("run", entity, "--lease", "3", "--kill-after", "0.3", "--", "bash", "-c", script)
    token, left = run.line().split()
    locks.table.force_release(locks.lock(entity), int(token))
    assert run.end().exit_code == 76
    until(lambda: not lives(int(left)))


def test_without_a_command_a_lost_lease_ends_it(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("run", entity, "--lease", "3")
    token = int(run.error_line().rpartition(" ")[2])
    locks.table.force_release(locks.lock(entity), token)
    assert run.end().exit_code == 76


def test_the_lock_is_renewed_past_its_lease(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("run", entity, "--lease", "3", "--", "sh", "-c", "echo inside; read go")
    assert run.line() == "inside"

    def lease_until_ms() -> int:
        item = locks.inspect(entity).item
        assert item is not None
        return item.holders[0].lease_until_ms

    first_ms = lease_until_ms()
    until(lambda: lease_until_ms() > first_ms + 1_000)
    assert run.end("on\n").exit_code == 0


def test_a_crashed_holder_is_replaced_after_its_lease(command: Command, entity: str) -> None:
    run = command.start("run", entity, "--lease", "3", "--", "sh", "-c", "echo $$; read go")
    child = int(run.line())
    run.send(signal.SIGKILL)
    run.process.wait()
    os.kill(child, signal.SIGKILL)
    assert command.run("run", entity, "--wait", "30", "--", "echo", "inside").out == "inside\n"
