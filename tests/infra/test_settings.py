"""Settings that cannot work are refused when the template is synthesised, by name."""

import pytest
from aws_cdk import CfnParameter, Duration
from ticketlock_cdk import TicketLock

SECONDS = Duration.seconds


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lease": SECONDS(8)}, "lease is 8 seconds; allowed: whole, even seconds from 10 to 604,800"),
        ({"lease": SECONDS(15)}, "lease is 15 seconds; allowed: whole, even seconds"),
        ({"lease": Duration.millis(10_500)}, "lease is 10.5 seconds; allowed: whole, even seconds"),
        ({"lease": Duration.days(8)}, "lease is 691200 seconds; allowed: whole, even seconds"),
        ({"lease": 60}, "lease is 60; allowed: a Duration"),
        ({"poll": Duration.millis(1_500)}, "poll is 1.5 seconds; allowed: whole seconds from 1"),
        ({"poll": SECONDS(0)}, "poll is 0 seconds; allowed: whole seconds from 1"),
        ({"poll": SECONDS(31)}, "poll is 31 seconds; allowed: whole seconds from 1 to half the lease, which is 30"),
        ({"default_record_wait": "never"}, "default_record_wait is 'never'; allowed: a Duration or \"Infinity\""),
        ({"default_record_wait": -1}, 'default_record_wait is -1; allowed: a Duration or "Infinity"'),
        ({"permits": 0}, "permits is 0; allowed: a whole number from 1 to 100"),
        ({"permits": 101}, "permits is 101; allowed: a whole number from 1 to 100"),
        ({"permits": 1.5}, "permits is 1.5; allowed: a whole number"),
        ({"permits": True}, "permits is True; allowed: a whole number"),
        ({"permits": "2"}, "permits is '2'; allowed: a whole number"),
        *(
            ({name: value}, f"{name} is {value!r}; allowed: True or False")
            for name in ("heartbeat", "dashboard", "alarms")
            for value in ("false", 0, None)
        ),
        ({"default_record_wait": None}, 'default_record_wait is None; allowed: a Duration or "Infinity"'),
    ],
)
def test_a_bad_setting_is_refused(settings, message, stack):
    with pytest.raises((TypeError, ValueError)) as refused:
        TicketLock(stack, "Lock", **settings)
    assert message in str(refused.value)


def test_a_setting_that_is_known_only_at_deploy_time_is_refused(stack):
    lease = SECONDS(CfnParameter(stack, "LeaseSeconds", type="Number").value_as_number)
    with pytest.raises(ValueError, match="lease is known only at deploy time"):
        TicketLock(stack, "Lock", lease=lease)
