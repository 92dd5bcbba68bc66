"""`ticketlock run` from start to end: the command's environment, its result, and when the lock is freed."""

import sys
from functools import partial
from pathlib import Path

import pytest
from cli.seen import is_held, waiters
from kit.command import Command, until

from ticketlock import LockClient

pytestmark = pytest.mark.shows("child of the command")


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


def test_options_after_the_program_belong_to_it_even_without_two_dashes(
    command: Command, locks: LockClient, entity: str
) -> None:
    ended = command.run("run", entity, "--wait", "5m", "echo", "--namespace", "prod", "--", "-q")
    assert (ended.exit_code, ended.out) == (0, "--namespace prod -- -q\n")
    assert locks.inspect(entity).item is not None
    assert locks.inspect(entity, namespace="prod").item is None


@pytest.mark.verify("each run is a process")
def test_our_options_may_be_on_both_sides_of_the_entity(command: Command, locks: LockClient, entity: str) -> None:
    ended = command.run("run", "--namespace", "billing", entity, "--lease", "1h30m", "sh", "-c", "echo inside")
    assert (ended.exit_code, ended.out) == (0, "inside\n")
    assert locks.inspect(entity, namespace="billing").item is not None


@pytest.mark.verify("each run is a process")
@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("--", "true"), "which lock? Put ENTITY before '--'."),
        (("--wait", "5m", "--", "true"), "which lock? Put ENTITY before '--'."),
        (("order-42", "--"), "nothing follows '--': give a COMMAND, or leave '--' out to hold the lock."),
        (("order-42", "--no-such-option", "true"), "No such option '--no-such-option'."),
    ],
)
def test_without_an_entity_or_a_program_where_one_is_announced_no_lock_is_taken(
    command: Command, locks: LockClient, words: tuple[str, ...], wrong: str
) -> None:
    ended = command.run("run", *words)
    assert (ended.exit_code, ended.out, ended.err.splitlines()[-1]) == (2, "", f"ticketlock: {wrong}")
    assert [lock for lock in locks.list() if lock.lock.entity in ("true", "order-42")] == []


@pytest.mark.verify("each run is a process")
def test_stdin_passes_through_byte_by_byte(command: Command, entity: str) -> None:
    text = "a line\n\n  another, without an end"
    assert command.run("run", entity, "--", "cat", text=text).out == text


@pytest.mark.verify("each run is a process")
@pytest.mark.parametrize("code", [0, 1, 75, 255])
def test_the_exit_code_is_the_commands_own(command: Command, entity: str, code: int) -> None:
    assert command.run("run", entity, "--", "sh", "-c", f"exit {code}").exit_code == code


def test_a_missing_program_is_reported_before_the_wait(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity):
        ended = command.run("run", entity, "--", "no-such-command")
    assert ended.exit_code == 127
    assert ended.err == "ticketlock: cannot run 'no-such-command': there is no such command\n"


def test_a_program_without_execute_permission_is_reported_before_the_wait(
    command: Command, locks: LockClient, entity: str, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("no program")
    with locks.acquire(entity):
        ended = command.run("run", entity, "--", str(tmp_path / "data"))
    assert ended.exit_code == 126


@pytest.mark.verify("each run is a process")
def test_a_program_that_cannot_be_executed_frees_the_lock(
    command: Command, locks: LockClient, entity: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF and nothing else")
    broken.chmod(0o755)
    ended = command.run("run", entity, "--", str(broken))
    assert ended.exit_code == 126
    assert "cannot run" in ended.err
    assert not is_held(locks, entity)


def test_a_held_lock_ends_it_at_once_with_a_wait_of_0(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, owner="build-7"):
        ended = command.run("run", entity, "--no-wait", "--", "echo", "inside")
        assert (ended.exit_code, ended.out) == (75, "")
        assert waiters(locks, entity) == 0
    assert ended.err.startswith(f"ticketlock: no lock on '{entity}' within the wait")
    assert 'held by "build-7" since 20' in ended.err


@pytest.mark.verify("each run is a process")
def test_a_wait_that_ends_leaves_the_queue_with_a_given_exit_code(
    command: Command, locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity):
        ended = command.run("run", entity, "--wait", "0.5", "-E", "9", "--quiet", "--", "echo", "inside")
        assert (ended.exit_code, ended.out, ended.err) == (9, "", "")
        assert waiters(locks, entity) == 0


def test_a_closed_lock_is_reported_as_closed(command: Command, locks: LockClient, entity: str) -> None:
    locks.table.set_limit(locks.lock(entity), 0)
    ended = command.run("run", entity, "--wait", "500ms", "--", "true")
    assert ended.exit_code == 75
    assert ended.err.endswith("closed: an operator has set its limit to 0\n")


@pytest.mark.verify("each run is a process")
def test_two_runs_that_wait_run_in_the_order_of_their_arrival(
    command: Command, locks: LockClient, entity: str, tmp_path: Path
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


@pytest.mark.verify("each run is a process")
def test_two_runs_share_a_lock_that_both_want_to_share(command: Command, entity: str) -> None:
    runs = [command.start("run", entity, "--shared", "--", "sh", "-c", "echo inside; read go") for _ in range(2)]
    assert [run.line() for run in runs] == ["inside", "inside"]
    assert [run.end("on\n").exit_code for run in runs] == [0, 0]


@pytest.mark.verify("each run is a process")
def test_another_number_of_permits_than_the_locks_is_refused(command: Command, entity: str) -> None:
    assert command.run("run", entity, "--permits", "2", "--", "true").exit_code == 0
    ended = command.run("run", entity, "--permits", "3", "--", "true")
    assert (ended.exit_code, ended.err) == (
        78,
        f"ticketlock: the lock on '{entity}' has 2 permits, not 3: all its users must ask for the same number\n",
    )


@pytest.mark.verify("each run is a process")
def test_files_that_were_left_open_for_the_command_stay_open(command: Command, entity: str) -> None:
    run = command.start("-c", f"exec 7<<<kept; ticketlock run {entity} -- cat /dev/fd/7", program=("bash",))
    assert run.end().out == "kept\n"


@pytest.mark.verify("each run is a process")
def test_it_runs_as_a_module_too(command: Command, entity: str) -> None:
    run = command.start("-m", "ticketlock", "run", entity, "--", "echo", "inside", program=(sys.executable,))
    assert run.end().out == "inside\n"
