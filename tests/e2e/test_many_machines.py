"""A hundred state machines with one lock, deployed; tests/infra/test_sizes.py asks whether they fit IAM's sizes."""

from pathlib import Path

import pytest
from e2e.cloud import Cloud
from ticketlock_local.cloud.deploy import deploy
from ticketlock_local.engines.emulator import Emulator

pytestmark = [
    pytest.mark.verify("a deployment of its own, of a hundred state machines"),
    # On a busy machine the CDK alone takes minutes for it.
    pytest.mark.timeout(900),
]

APP = Path(__file__).with_name("many.py")
# Longer than the test.
WORK_S = 30


@pytest.fixture(scope="module")
def many(emulator: Emulator) -> Cloud:
    return Cloud(emulator.endpoint, deploy(emulator, app=APP, stack="TicketlockMany"))


def test_the_last_machine_gets_the_lock_and_a_stopped_waiter_of_it_is_cleaned_up(many: Cloud, entity: str) -> None:
    assert many.ended(many.start({"entity": entity, "seconds": 0})).status == "SUCCEEDED"
    holder = many.start({"entity": entity, "seconds": WORK_S})
    many.wait_until_held(entity)
    waiter = many.start({"entity": entity, "seconds": 0})
    many.wait_until(lambda: len(many.lock(entity).rows) == 1, f"{waiter} to queue")
    many.stop(waiter)
    many.wait_until_queued(entity)
    many.stop(holder)
