"""What every suite shares: the emulator, started once a session, stopped with it."""

import os
from collections.abc import Iterator

import pytest
from ticketlock_local.emulator import Emulator

# No test may reach an account, or a profile's settings, by accident; whoever names an endpoint means it.
_NOBODY = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
if "TICKETLOCK_TEST_ENDPOINT" not in os.environ:
    os.environ |= _NOBODY


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running
