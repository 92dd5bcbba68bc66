"""`ticketlock run` from start to end: the command's environment, its result, and when the lock is freed."""

import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from cli.seen import held, is_refused, waiters
from kit.command import Command, until
from kit.stopped import parking
from ticketlock_local.engines.emulator import Emulator

from ticketlock import Claim, LockClient, Position
from ticketlock.cli._exits import Ended
from ticketlock.cli._run import _released
from ticketlock.cli._settings import CommandSettings
from ticketlock.cli._signals import Signals
from ticketlock.cli._waiting import WaitOptions, stand_in_line
from ticketlock.locks._items import Session
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.shows("child of the command")
VERIFY = pytest.mark.verify("each run is a process")


def test_the_command_runs_under_the_lock_and_the_lock_is_free_afterwards(
    command: Command, locks: LockClient, entity: str
) -> None:
    run = command.start("run", entity, "--", "sh", "-c", "echo inside; read go; echo bye")
    assert run.line() == "inside"
    assert held(locks, entity)
    ended = run.end("on\n")
    assert (ended.exit_code, ended.out, ended.err) == (0, "bye\n", "")
    assert not held(locks, entity)


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
    ours = ("--namespace", "billing", entity, "--lease", "1h30m")
    ended = command.run("run", *ours, "echo", "--namespace", "prod", "--", "-q")
    assert (ended.exit_code, ended.out) == (0, "--namespace prod -- -q\n")
    used = [locks.inspect(entity, namespace=name).item is not None for name in ("billing", "prod", "default")]
    assert used == [True, False, False]


@VERIFY
def test_stdin_passes_through_byte_by_byte(command: Command, entity: str) -> None:
    script = f"printf '\\000\\377\\r\\n\\nno end' | ticketlock run {entity} -- od -An -tx1"
    run = command.start("-c", script, program=("sh",))
    assert bytes.fromhex(run.end().out) == b"\x00\xff\r\n\nno end"


@VERIFY
@pytest.mark.parametrize(
    ("ends", "code"),
    [("exit 0", 0), ("exit 1", 1), ("exit 75", 75), ("exit 255", 255), ("kill -KILL $$", 128 + signal.SIGKILL)],
)
def test_the_exit_code_is_the_commands_own_as_a_shell_has_it(
    command: Command, entity: str, ends: str, code: int
) -> None:
    assert command.run("run", entity, "--", "sh", "-c", ends).exit_code == code


def test_a_program_that_is_missing_or_not_executable_is_reported_before_the_wait(
    command: Command, locks: LockClient, entity: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_text("no program")
    with locks.acquire(entity):
        ended = [command.run("run", entity, "--", name) for name in ("no-such-command", str(data))]
    assert [(each.exit_code, each.err) for each in ended] == [
        (127, "ticketlock: cannot run 'no-such-command': there is no such command\n"),
        (126, f"ticketlock: cannot run '{data}': it is not an executable file\n"),
    ]


@VERIFY
def test_a_program_that_cannot_be_executed_frees_the_lock(
    command: Command, locks: LockClient, entity: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF and nothing else")
    broken.chmod(0o755)
    is_refused(command.run("run", entity, "--", str(broken)), 126, f"cannot run '{broken}'")
    assert not held(locks, entity)


def test_a_held_lock_ends_a_run_without_a_wait_at_once(command: Command, locks: LockClient, entity: str) -> None:
    with locks.acquire(entity, owner="build-7"):
        ended = command.run("run", entity, "--no-wait", "--", "echo", "inside")
        assert (ended.exit_code, ended.out) == (75, "")
        assert waiters(locks, entity) == 0
    assert ended.err.startswith(f"ticketlock: no lock on '{entity}' within the wait")
    assert 'held by "build-7" since 20' in ended.err


@VERIFY
def test_a_wait_that_ends_leaves_the_queue_with_a_given_exit_code(
    command: Command, locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity):
        ended = command.run("run", entity, "--wait", "0.5", "-E", "9", "--quiet", "--", "echo", "inside")
        assert (ended.exit_code, ended.out, ended.err) == (9, "", "")
        assert waiters(locks, entity) == 0


def test_a_closed_lock_is_reported_as_closed(command: Command, locks: LockClient, entity: str) -> None:
    locks.table.set_limit(locks.lock(entity), 0)
    ended = command.run("run", entity, "--wait", "forever", "--", "true")
    assert ended.exit_code == 75
    assert ended.err.endswith("closed: an operator has set its limit to 0\n")


@VERIFY
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


@VERIFY
def test_two_runs_share_a_lock_that_both_want_to_share(command: Command, entity: str) -> None:
    runs = [command.start("run", entity, "--shared", "--", "sh", "-c", "echo inside; read go") for _ in range(2)]
    assert [run.line() for run in runs] == ["inside", "inside"]
    assert [run.end("on\n").exit_code for run in runs] == [0, 0]


@VERIFY
def test_another_number_of_permits_than_the_locks_is_refused(command: Command, entity: str) -> None:
    assert command.run("run", entity, "--permits", "2", "--", "true").exit_code == 0
    ended = command.run("run", entity, "--permits", "3", "--", "true")
    assert (ended.exit_code, ended.err) == (
        78,
        f"ticketlock: the lock on '{entity}' has 2 permits, not 3: all its users must ask for the same number\n",
    )


@VERIFY
def test_files_that_were_left_open_for_the_command_stay_open(command: Command, entity: str) -> None:
    run = command.start("-c", f"exec 7<<<kept; ticketlock run {entity} -- cat /dev/fd/7", program=("bash",))
    assert run.end().out == "kept\n"


@VERIFY
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
    assert locks.table.contend(claim, parking(found.place, session, "the task token")) is not None


@pytest.mark.parametrize(("options", "wakes"), [((), True), (("--no-wake",), False)])
def test_a_parked_workflow_is_woken_when_the_command_has_ended_unless_told_otherwise(
    command: Command, locks: LockClient, entity: str, options: tuple[str, ...], wakes: bool
) -> None:
    run = command.start("-vv", "run", entity, *options, "--", "sh", "-c", "echo inside; read go")
    assert run.line() == "inside"
    park(locks, entity)
    ended = run.end("on\n")
    # The token is unknown there: a wake-up that fails is no error.
    assert (ended.exit_code, "OperationModel(name=SendTaskSuccess)" in ended.err) == (0, wakes)


@pytest.fixture
def settings(
    emulator: Emulator, environment: Mapping[str, str], table_name: str, monkeypatch: pytest.MonkeyPatch
) -> CommandSettings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return CommandSettings(table=table_name, endpoint_url=emulator.endpoint)


def is_signalled_before_its_grant(settings: CommandSettings, entity: str, owner: str | None = None) -> None:
    """A signal ends a command just before its grant: there is no wait, so it is noticed only once the lock is held."""
    options = WaitOptions(
        entity=entity,
        namespace="default",
        wait=60.0,
        no_wait=False,
        lease=60.0,
        shared=False,
        permits=1,
        data=None,
        wait_if_closed=False,
        quiet=True,
        conflict_exit_code=75,
        owner=owner,
    )
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Ended) as ended:
            stand_in_line(settings, options, signals, heartbeat=False)
    assert ended.value.exit_code == 128 + signal.SIGTERM


def test_a_signal_just_before_a_new_grant_frees_the_lock_with_what_was_left(
    settings: CommandSettings, locks: LockClient, entity: str
) -> None:
    locks.acquire(entity).release(data_left="page 7")
    is_signalled_before_its_grant(settings, entity)
    assert locks.acquire(entity, record_wait=0).data_left == "page 7"


def test_a_signal_just_before_the_grant_leaves_the_lock_to_an_owner_that_had_it_before(
    settings: CommandSettings, locks: LockClient, entity: str
) -> None:
    lease = locks.acquire(entity, owner="build-7")
    is_signalled_before_its_grant(settings, entity, owner="build-7")
    lease.renew()
