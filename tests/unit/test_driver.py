"""The driver, driven by hand."""

import pytest
from botocore.exceptions import ClientError

from ticketlock._driver import Driver, Sleep
from ticketlock._requests import Write
from ticketlock.errors import RequestNotApplied
from ticketlock.testing import ManualClock

THROTTLED = ClientError({"Error": {"Code": "ThrottlingException", "Message": ""}}, "PutItem")


def test_what_is_not_to_be_sent_after_a_moment_is_not_repeated_after_it_either() -> None:
    clock = ManualClock()
    too_late_ms = clock.read().local_ms + 1_000
    write = Write("Put", {}, "attribute_not_exists(pk)", item={}, not_after_local_ms=too_late_ms)
    actions = Driver("locks", clock, 8_000, jitter=lambda: 0.5).perform(write)
    next(actions)
    assert isinstance(actions.throw(THROTTLED), Sleep)
    # The machine stands still for longer than it wanted to.
    clock.advance(70)
    with pytest.raises(RequestNotApplied):
        next(actions)
