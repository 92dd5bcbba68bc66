"""`ticketlock run`, signals and lost leases: which process gets a signal, and what the command leaves."""

import os
import signal
import sys

import pytest
from cli.seen import held, waiters
from kit.command import Command, lives, until

from ticketlock import LockClient

pytestmark = [
    pytest.mark.shows("child of the command"),
    pytest.mark.verify("each command is a process; signals are sent to it, and leases are waited for"),
]

SHORT_LEASE = ("--lease", "10")
KILLED_SOON = ("--kill-after", "0.3")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_reaches_the_command_once_and_the_lock_is_released_only_after_its_end(
    command: Command, locks: LockClient, entity: str, name: str
) -> None:
    number = getattr(signal, name)
    script = (
        "import os, signal\n"
        # Not `print`: the signal may arrive inside the `print` below, which raises if it is entered again.
        f"signal.signal({int(number)}, lambda *_: os.write(1, b'got it\\n'))\n"
        "print('ready', os.getpgrp() == os.getpid(), flush=True)\n"
        "input(); print('bye'); raise SystemExit(3)\n"
    )
    run = command.start("run", entity, "--", sys.executable, "-c", script)
    assert run.line() == "ready True"
    run.send(number)
    assert run.line() == "got it"
    assert held(locks, entity)
    ended = run.end("on\n")
    assert (ended.exit_code, ended.out) == (3, "bye\n")
    assert not held(locks, entity)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_while_it_waits_leaves_the_queue(command: Command, locks: LockClient, entity: str, name: str) -> None:
    number = getattr(signal, name)
    with locks.acquire(entity):
        run = command.start("run", entity, "--wait", "forever", "--", "echo", "inside")
        until(lambda: waiters(locks, entity) == 1)
        run.send(number)
        ended = run.end()
        assert (ended.exit_code, ended.out, ended.err) == (128 + number, "", "")
        assert waiters(locks, entity) == 0


def test_a_signal_that_it_was_started_to_ignore_stays_ignored(command: Command, entity: str) -> None:
    script = "trap '' HUP; exec ticketlock run " + entity + " -- sh -c 'echo ready; read go; echo bye'"
    run = command.start("-c", script, program=("sh",))
    assert run.line() == "ready"
    run.send(signal.SIGHUP)
    ended = run.end("on\n")
    assert (ended.exit_code, ended.out) == (0, "bye\n")


def test_without_a_command_it_holds_until_a_signal(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("run", entity)
    assert run.error_line().startswith(f"ticketlock: holding '{entity}', fencing token ")
    assert held(locks, entity)
    run.send(signal.SIGTERM)
    assert run.end().exit_code == 0
    assert not held(locks, entity)


def test_a_command_may_be_waited_for_by_a_process_that_was_started_to_ignore_its_children(
    command: Command, entity: str
) -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    program = (sys.executable, "-c", ignoring, "ticketlock")
    assert command.start("run", entity, "--", "sh", "-c", "exit 3", program=program).end().exit_code == 3


def test_a_lost_lease_stops_the_command(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start(
        "run", entity, *SHORT_LEASE, "--", "sh", "-c", "echo $TICKETLOCK_FENCING_TOKEN; exec sleep 1000"
    )
    locks.table.force_release(locks.lock(entity), int(run.line()))
    ended = run.end()
    assert ended.exit_code == 76
    assert ended.err.splitlines() == [
        f"ticketlock: the lease on '{entity}' is lost: stopping the command",
        f"ticketlock: the lease on '{entity}' was lost before the end",
    ]


def test_a_lost_lease_stops_the_command_also_if_no_one_can_be_told(
    command: Command, locks: LockClient, entity: str
) -> None:
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'told\\n'), os._exit(0)))\n"
        "print(os.environ['TICKETLOCK_FENCING_TOKEN'], flush=True)\n"
        "while True: signal.pause()\n"
    )
    run = command.start("run", entity, *SHORT_LEASE, "--", sys.executable, "-c", script)
    token = int(run.line())
    assert run.process.stderr is not None
    run.process.stderr.close()
    locks.table.force_release(locks.lock(entity), token)
    ended = run.end()
    assert (ended.exit_code, ended.out) == (76, "told\n")


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
    run = command.start("run", entity, *SHORT_LEASE, *KILLED_SOON, "--", sys.executable, "-c", deaf)
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
    run = command.start("run", entity, *SHORT_LEASE, *KILLED_SOON, "--", "bash", "-c", script)
    token, left = run.line().split()
    locks.table.force_release(locks.lock(entity), int(token))
    assert run.end().exit_code == 76
    until(lambda: not lives(int(left)))


def test_without_a_command_a_lost_lease_ends_it(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("run", entity, *SHORT_LEASE)
    token = int(run.error_line().rpartition(" ")[2])
    locks.table.force_release(locks.lock(entity), token)
    assert run.end().exit_code == 76


def test_the_lock_is_renewed_past_its_lease(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("run", entity, *SHORT_LEASE, "--", "sh", "-c", "echo inside; read go")
    assert run.line() == "inside"

    def lease_until_ms() -> int:
        item = locks.inspect(entity).item
        assert item is not None
        return item.holders[0].lease_until_ms

    first_ms = lease_until_ms()
    until(lambda: lease_until_ms() > first_ms + 1_000)
    assert run.end("on\n").exit_code == 0


def test_a_crashed_holder_is_replaced_after_its_lease(command: Command, entity: str) -> None:
    run = command.start("run", entity, *SHORT_LEASE, "--", "sh", "-c", "echo $$; read go")
    child = int(run.line())
    run.send(signal.SIGKILL)
    run.process.wait()
    os.kill(child, signal.SIGKILL)
    assert command.run("run", entity, "--wait", "30", "--", "echo", "inside").out == "inside\n"
