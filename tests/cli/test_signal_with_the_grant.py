"""A signal that arrives together with the grant: the lock is not needed any more."""

import os
import signal
from collections.abc import Mapping

import pytest
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient
from ticketlock.cli._exits import Ended
from ticketlock.cli._settings import CommandSettings
from ticketlock.cli._signals import Signals
from ticketlock.cli._waiting import Wish, stand_in_line


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
