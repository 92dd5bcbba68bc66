"""`ticketlock run` when the connection to its table is cut, its table is silent, or its process is suspended."""

import os
import signal
from collections.abc import Iterator

import pytest
from kit.command import Command, lives, until
from kit.faults import reply_broken_off, reply_lost, request_lost
from kit.places import is_grant, is_release, is_renewal
from kit.proxy import Proxy
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient
from ticketlock.cli._exits import LEASE_LOST
from ticketlock.wire._sdk import make_client

SAYS_ITS_TOKEN = ("sh", "-c", "echo $TICKETLOCK_FENCING_TOKEN $$; read go; echo bye")
NEVER_ENDS = ("sh", "-c", "echo $TICKETLOCK_FENCING_TOKEN $$; exec sleep 1000")


@pytest.fixture
def near(emulator: Emulator, lock_table: str) -> Iterator[LockClient]:
    """The client of another process, beside the table."""
    with LockClient(lock_table, client=make_client(endpoint_url=emulator.endpoint)) as locks:
        yield locks


def stopping(entity: str) -> str:
    return f"ticketlock: the lease on '{entity}' is lost: stopping the command"


def lost_before_the_end(entity: str) -> str:
    return f"ticketlock: the lease on '{entity}' was lost before the end"


def test_a_program_runs_once_under_a_grant_whose_reply_was_lost(
    command: Command, proxy: Proxy, near: LockClient, entity: str
) -> None:
    trouble = proxy.trouble(reply_lost, is_grant)
    ended = command.run("run", entity, "--", *SAYS_ITS_TOKEN, text="on\n")
    assert trouble.met.is_set()
    token, _, bye = ended.out.split()
    assert (ended.exit_code, bye, ended.err) == (0, "bye", "")
    assert near.acquire(entity, record_wait=0).fencing_token == int(token) + 1


@pytest.mark.verify("processes, on a network that fails")
def test_a_program_survives_short_interruptions_of_the_network(
    command: Command, proxy: Proxy, near: LockClient, entity: str
) -> None:
    run = command.start("run", entity, "--lease", "4", "--", *SAYS_ITS_TOKEN)
    token, _ = map(int, run.line().split())
    cuts = [proxy.trouble(fault, is_renewal) for fault in (reply_lost, request_lost, reply_broken_off)]

    def lease_until_ms() -> int:
        item = near.inspect(entity).item
        assert item is not None
        (holder,) = item.holders
        assert holder.fencing_token == token
        return holder.lease_until_ms

    first_ms = lease_until_ms()
    until(lambda: all(cut.met.is_set() for cut in cuts) and lease_until_ms() > first_ms)
    ended = run.end("on\n")
    assert (ended.exit_code, ended.out, ended.err) == (0, "bye\n", "")


def test_a_program_is_stopped_when_its_table_is_silent_for_longer_than_its_lease(
    command: Command, proxy: Proxy, entity: str
) -> None:
    run = command.start("run", entity, "--lease", "2", "--", *NEVER_ENDS)
    _, child = map(int, run.line().split())
    with proxy.black_hole():
        assert run.error_line() == stopping(entity)
        until(lambda: not lives(child))
    ended = run.end()
    assert (ended.exit_code, ended.err.splitlines()) == (LEASE_LOST, [lost_before_the_end(entity)])


def test_a_release_whose_reply_was_lost_lets_the_next_one_in_at_once(
    command: Command, proxy: Proxy, near: LockClient, entity: str
) -> None:
    trouble = proxy.trouble(reply_lost, is_release)
    ended = command.run("run", entity, "--", "sh", "-c", "exit 3")
    assert trouble.met.is_set()
    assert (ended.exit_code, ended.err) == (3, "")
    assert near.acquire(entity, record_wait=0).is_held()


@pytest.mark.verify("processes, on a network that fails")
def test_a_supervisor_that_was_suspended_past_its_lease_stops_its_program_at_once(
    command: Command, near: LockClient, entity: str
) -> None:
    run = command.start("run", entity, "--lease", "2", "--", *NEVER_ENDS)
    token, child = map(int, run.line().split())
    os.kill(run.process.pid, signal.SIGSTOP)
    try:
        following = near.acquire(entity)
        assert following.fencing_token == token + 1
        assert lives(child)
    finally:
        os.kill(run.process.pid, signal.SIGCONT)
    ended = run.end()
    assert (ended.exit_code, ended.err.splitlines()) == (LEASE_LOST, [stopping(entity), lost_before_the_end(entity)])
    assert not lives(child)
    following.renew()
