"""`ticketlock run` from start to end: what the command gets, what comes back, and when the lock goes free."""

import os
import signal
import sys
from functools import partial

import pytest
from cli.processes import Command, lives, until

from ticketlock import LockClient


def is_held(locks: LockClient, entity: str) -> bool:
    item = locks.inspect(entity).item
    return item is not None and item.held > 0


def waiters(locks: LockClient, entity: str) -> int:
    return len(locks.inspect(entity).rows)


def test_the_command_runs_under_the_lock_and_the_lock_is_free_afterwards(
    command: Command, locks: LockClient, entity: str
) -> None:
    run = command.start("run", entity, "--", "sh", "-c", "echo inside; read go; echo bye")
    assert run.line() == "inside"
    assert is_held(locks, entity)
    ended = run.end("on\n")
    assert (ended.exit_code, ended.out, ended.err) == (0, "bye\n", "")
    assert not is_held(locks, entity)


def test_the_command_knows_its_lock(command: Command, locks: LockClient, entity: str, table_name: str) -> None:
    ended = command.run("run", entity, "--namespace", "billing", "--", "sh", "-c", "env | grep ^TICKETLOCK_ | sort")
    told = dict(line.split("=", 1) for line in ended.out.splitlines())
    item = locks.inspect(entity, namespace="billing").item
    assert item is not None
    assert told.pop("TICKETLOCK_OWNER")
    assert told == {
        "TICKETLOCK_ENTITY": entity,
        "TICKETLOCK_FENCING_TOKEN": str(item.fencing_token),
        "TICKETLOCK_NAMESPACE": "billing",
        "TICKETLOCK_TABLE": table_name,
    }


def test_stdin_passes_through_byte_by_byte(command: Command, entity: str) -> None:
    text = "a line\n\n  another, without an end"
    assert command.run("run", entity, "--", "cat", text=text).out == text


@pytest.mark.parametrize("code", [0, 1, 75, 255])
def test_the_exit_code_is_the_commands_own(command: Command, entity: str, code: int) -> None:
    assert command.run("run", entity, "--", "sh", "-c", f"exit {code}").exit_code == code


def test_a_command_that_a_signal_has_ended_ends_it_as_a_shell_says(command: Command, entity: str) -> None:
    assert command.run("run", entity, "--", "sh", "-c", "kill -KILL $$").exit_code == 128 + signal.SIGKILL


def test_what_is_not_there_is_said_before_the_wait(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        ended = command.run("run", entity, "--", "no-such-command")
    assert ended.exit_code == 127
    assert ended.err == "ticketlock: cannot run 'no-such-command': there is no such command\n"


def test_what_may_not_be_executed_is_said_before_the_wait(
    command: Command, locks: LockClient, entity: str, tmp_path
) -> None:
    (tmp_path / "data").write_text("no program")
    with locks.acquire(entity):
        ended = command.run("run", entity, "--", str(tmp_path / "data"))
    assert ended.exit_code == 126


def test_what_cannot_be_executed_frees_the_lock(command: Command, locks: LockClient, entity: str, tmp_path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF and nothing else")
    broken.chmod(0o755)
    ended = command.run("run", entity, "--", str(broken))
    assert ended.exit_code == 126
    assert "cannot run" in ended.err
    assert not is_held(locks, entity)


def test_a_held_lock_ends_it_at_once_if_it_may_not_wait(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        ended = command.run("run", entity, "--no-wait", "--", "echo", "inside")
        assert (ended.exit_code, ended.out) == (75, "")
        assert waiters(locks, entity) == 0
    assert ended.err.startswith(f"ticketlock: no lock on '{entity}' within the wait")


def test_a_wait_in_vain_leaves_the_queue_with_an_exit_code_of_ones_own(
    command: Command, locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity):
        ended = command.run("run", entity, "--wait", "0.5", "-E", "9", "--quiet", "--", "echo", "inside")
        assert (ended.exit_code, ended.out, ended.err) == (9, "", "")
        assert waiters(locks, entity) == 0


def test_two_runs_that_wait_run_in_the_order_of_their_arrival(
    command: Command, locks: LockClient, entity: str, tmp_path
) -> None:
    order = tmp_path / "order"
    lease = locks.acquire(entity)

    def waits_at(place: int) -> bool:
        return waiters(locks, entity) == place

    runs = []
    for place, name in enumerate(("first", "second"), start=1):
        runs.append(command.start("run", entity, "--wait", "forever", "--", "sh", "-c", f"echo {name} >> {order}"))
        until(partial(waits_at, place))
    lease.release()
    assert [run.end().exit_code for run in runs] == [0, 0]
    assert order.read_text() == "first\nsecond\n"


def test_two_runs_share_a_lock_that_both_want_to_share(command: Command, entity: str) -> None:
    runs = [command.start("run", entity, "--shared", "--", "sh", "-c", "echo inside; read go") for _ in range(2)]
    assert [run.line() for run in runs] == ["inside", "inside"]
    assert [run.end("on\n").exit_code for run in runs] == [0, 0]


def test_another_number_of_permits_than_the_locks_is_refused(command: Command, entity: str) -> None:
    assert command.run("run", entity, "--permits", "2", "--", "true").exit_code == 0
    ended = command.run("run", entity, "--permits", "3", "--", "true")
    assert (ended.exit_code, ended.err) == (
        78,
        "ticketlock: the lock has 2 permits, not 3: all its users must ask for the same number\n",
    )


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


def test_a_command_that_does_not_stop_for_a_lost_lease_is_killed_with_all_that_it_has_started(
    command: Command, locks: LockClient, entity: str
) -> None:
    deaf = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('deaf', flush=True))\n"
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


def test_what_a_stopped_command_leaves_behind_is_killed_too(command: Command, locks: LockClient, entity: str) -> None:
    script = "(trap '' TERM; sleep 1000) & echo $TICKETLOCK_FENCING_TOKEN $!; wait"
    run = command.start("run", entity, "--lease", "3", "--kill-after", "0.3", "--", "bash", "-c", script)
    token, left = run.line().split()
    locks.table.force_release(locks.lock(entity), int(token))
    assert run.end().exit_code == 76
    until(lambda: not lives(int(left)))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_reaches_the_command_once(command: Command, entity: str, name: str) -> None:
    number = getattr(signal, name)
    script = (
        "import os, signal\n"
        f"signal.signal({int(number)}, lambda *_: print('got it', flush=True))\n"
        "print('ready', os.getpgrp() == os.getpid(), flush=True)\n"
        "input(); print('bye')\n"
    )
    run = command.start("run", entity, "--", sys.executable, "-c", script)
    assert run.line() == "ready True"
    run.send(number)
    assert run.line() == "got it"
    ended = run.end("on\n")
    assert (ended.exit_code, ended.out) == (0, "bye\n")


def test_the_lock_is_released_only_after_the_end_of_a_command_that_takes_its_time(
    command: Command, locks: LockClient, entity: str
) -> None:
    slow = (
        "import signal, sys\n"
        "def stop(*_):\n"
        "    print('stopping', flush=True); input(); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    run = command.start("run", entity, "--", sys.executable, "-c", slow)
    assert run.line() == "ready"
    run.send(signal.SIGTERM)
    assert run.line() == "stopping"
    assert is_held(locks, entity)
    assert run.end("on\n").exit_code == 3
    assert not is_held(locks, entity)


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
    assert is_held(locks, entity)
    run.send(signal.SIGTERM)
    assert run.end().exit_code == 0
    assert not is_held(locks, entity)


def test_without_a_command_a_lost_lease_ends_it(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("run", entity, "--lease", "3")
    token = int(run.error_line().rpartition(" ")[2])
    locks.table.force_release(locks.lock(entity), token)
    assert run.end().exit_code == 76


def test_files_that_were_left_open_for_the_command_stay_open(command: Command, entity: str) -> None:
    run = command.start("-c", f"exec 7<<<kept; ticketlock run {entity} -- cat /dev/fd/7", program=("bash",))
    assert run.end().out == "kept\n"


def test_it_runs_as_a_module_too(command: Command, entity: str) -> None:
    run = command.start("-m", "ticketlock", "run", entity, "--", "echo", "inside", program=(sys.executable,))
    assert run.end().out == "inside\n"


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


def test_a_holder_that_died_is_followed_after_its_lease(command: Command, entity: str) -> None:
    run = command.start("run", entity, "--lease", "3", "--", "sh", "-c", "echo $$; read go")
    child = int(run.line())
    run.send(signal.SIGKILL)
    run.process.wait()
    os.kill(child, signal.SIGKILL)
    assert command.run("run", entity, "--wait", "30", "--", "echo", "inside").out == "inside\n"
