"""What the unit tests share."""

import pytest
from hypothesis import HealthCheck, settings

from ticketlock.testing import ManualClock, MemoryDynamoDB

# On a busy machine an example may take longer than hypothesis would let it: that is no finding here.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryDynamoDB:
    return MemoryDynamoDB(clock=clock)
