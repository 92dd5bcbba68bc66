"""`ticketlock run` from start to end: the command's environment, its result, and when the lock is freed."""

import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from cli.seen import is_held, waiters
from kit.command import Command, until
from ticketlock_local.engines.emulator import Emulator

from ticketlock import Claim, LockClient, Position
from ticketlock.cli._exits import Ended
from ticketlock.cli._run import _released
from ticketlock.cli._settings import CommandSettings
from ticketlock.cli._signals import Signals
from ticketlock.cli._waiting import Wish, stand_in_line
from ticketlock.locks._hand_over import await_wake_up
from ticketlock.locks._items import Session
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

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


def test_a_failed_release_is_reported_and_not_retried_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)
    with LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep) as locks:
        lease = locks.acquire("order-42")
        with memory.outage(Fault.REQUEST_LOST):
            assert _released(lease, "order-42")
            tries = len(memory.sent)
            locks.close()
    assert len(memory.sent) == tries
    assert capsys.readouterr().err.startswith("ticketlock: 'order-42' was not released; it is free when its lease ends")


def park(locks: LockClient, entity: str) -> None:
    """Join the queue like a workflow that waits to be woken."""
    session = Session(f"arn:aws:states:us-east-1:000000000000:execution:orders:{entity}", "Serialize")
    claim = Claim(locks.lock(entity), owner=session.execution, lease_ms=60_000, session=session)
    found = locks.table.take_ticket(claim, None)
    assert isinstance(found, Position)
    parked = locks.table.contend(
        claim, lambda me: await_wake_up(me, found.place, session, "the task token", 1, lambda _: True)
    )
    assert parked is not None


def test_a_parked_workflow_is_woken_when_the_command_has_ended(
    command: Command, locks: LockClient, entity: str
) -> None:
    run = command.start("-vv", "run", entity, "--", "sh", "-c", "echo inside; read go")
    assert run.line() == "inside"
    park(locks, entity)
    ended = run.end("on\n")
    assert ended.exit_code == 0
    # The token is unknown there: a wake-up that fails is no error.
    assert "OperationModel(name=SendTaskSuccess)" in ended.err


def test_a_command_wakes_no_one_if_told_so(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("-vv", "run", entity, "--no-wake", "--", "sh", "-c", "echo inside; read go")
    assert run.line() == "inside"
    park(locks, entity)
    ended = run.end("on\n")
    assert ended.exit_code == 0
    assert "SendTaskSuccess" not in ended.err


@pytest.fixture
def settings(
    emulator: Emulator, environment: Mapping[str, str], table_name: str, monkeypatch: pytest.MonkeyPatch
) -> CommandSettings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return CommandSettings(table=table_name, endpoint_url=emulator.endpoint)


def stand_in_line_after_a_signal(settings: CommandSettings, entity: str, owner: str | None = None) -> int:
    """There is no wait, so the signal is noticed only once the lock is held."""
    wish = Wish(
        entity=entity,
        namespace="default",
        wait=60.0,
        no_wait=False,
        lease=60.0,
        shared=False,
        permits=1,
        data=None,
        quiet=True,
        conflict_exit_code=75,
        owner=owner,
    )
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Ended) as ended:
            stand_in_line(settings, wish, signals, heartbeat=False)
    return ended.value.exit_code


def test_the_lock_is_free_again_and_what_was_left_is_there(
    settings: CommandSettings, locks: LockClient, entity: str
) -> None:
    locks.acquire(entity).release(data_left="page 7")
    assert stand_in_line_after_a_signal(settings, entity) == 128 + signal.SIGTERM
    assert locks.acquire(entity, record_wait=0).data_left == "page 7"


def test_a_grant_that_the_owner_had_before_is_left_to_it(
    settings: CommandSettings, locks: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity, owner="build-7")
    assert stand_in_line_after_a_signal(settings, entity, "build-7") == 128 + signal.SIGTERM
    lease.renew()
