"""Settings of the ready-made stack, read from the CDK's context: text from the command line, or JSON from cdk.json.

An empty text counts as not given: a shell passes it for a variable that is not set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Node

from ticketlock_cdk.lock import AlarmThresholds, HandOver, RecordWait

_REMOVAL_POLICIES = {
    None: RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    "retain": RemovalPolicy.RETAIN,
    "destroy": RemovalPolicy.DESTROY,
}
_ARCHITECTURES = {"arm64": lambda_.Architecture.ARM_64, "x86_64": lambda_.Architecture.X86_64}
_FLAGS = {"true": True, "false": False}
# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html
RETENTION_DAYS = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
    1096: logs.RetentionDays.THREE_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    2192: logs.RetentionDays.SIX_YEARS,
    2557: logs.RetentionDays.SEVEN_YEARS,
    2922: logs.RetentionDays.EIGHT_YEARS,
    3288: logs.RetentionDays.NINE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}


class Context:
    """The context of one construct's node.

    Every method raises a ValueError that names the setting, its value and what is allowed.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def text(self, name: str) -> str | None:
        """Any text."""
        value = self._given(name)
        if value is not None and not isinstance(value, str):
            raise _refused(name, value, "text")
        return value

    def texts(self, name: str) -> Sequence[str]:
        """Read a list, or text with commas between its parts."""
        value = self._given(name)
        if value is None:
            return []
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise _refused(name, value, "a list of texts, or text with commas between them")
        return [part.strip() for part in parts if part.strip()]

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self._given(name)
        if value is None:
            return default
        found = _FLAGS.get(str(value).lower())
        if found is None:
            raise _refused(name, value, " or ".join(_FLAGS))
        return found

    def seconds(self, name: str) -> Duration | None:
        """Read a number of seconds; the construct checks its bounds."""
        value = self._given(name)
        return None if value is None else _duration(name, value, "a number of seconds")

    def whole_number(self, name: str) -> int | None:
        """Read a whole number; the construct checks its bounds."""
        value = self._given(name)
        if value is not None and not str(value).strip().isdecimal():
            raise _refused(name, value, "a whole number")
        return None if value is None else int(value)

    def bound(self, name: str) -> int | None:
        """Read a whole number, or ``none``, as if it were not given; the construct checks its bounds."""
        value = self._given(name)
        if value is None or value == "none":
            return None
        if not str(value).strip().isdecimal():
            raise _refused(name, value, "a whole number, or none")
        return int(value)

    def architecture(self, name: str) -> lambda_.Architecture:
        """``arm64``, which is the default, or ``x86_64``."""
        value = self._given(name) or "arm64"
        if value not in _ARCHITECTURES:
            raise _refused(name, value, " or ".join(_ARCHITECTURES))
        return _ARCHITECTURES[value]

    def log_level(self, name: str) -> sfn.LogLevel:
        """``all``, which is the default, ``error``, ``fatal`` or ``off``."""
        value = str(self._given(name) or sfn.LogLevel.ALL.name)
        if value.upper() not in sfn.LogLevel.__members__:
            raise _refused(name, value, " or ".join(each.lower() for each in sfn.LogLevel.__members__))
        return sfn.LogLevel[value.upper()]

    def hand_over(self, name: str) -> HandOver:
        """``callback``, which is the default, or ``poll``."""
        value = self._given(name) or HandOver.CALLBACK
        if value not in list(HandOver):
            raise _refused(name, value, " or ".join(HandOver))
        return HandOver(value)

    def record_wait(self, name: str) -> RecordWait:
        """A number of seconds, or ``Infinity``."""
        value = self._given(name)
        if value is None or value == "Infinity":
            return "Infinity"
        return _duration(name, value, 'a number of seconds from 0 on, or "Infinity"')

    def removal_policy(self, name: str) -> RemovalPolicy:
        """``retain`` or ``destroy``; if not given, what a deployment made that is rolled back is not retained."""
        value = self._given(name)
        if value not in _REMOVAL_POLICIES:
            raise _refused(name, value, "retain or destroy")
        return _REMOVAL_POLICIES[value]

    def retention(self, name: str) -> logs.RetentionDays:
        """One of the numbers of days that CloudWatch Logs knows, or ``infinite``; 30 days if not given."""
        value = self._given(name)
        if value is None:
            return logs.RetentionDays.ONE_MONTH
        if value == "infinite":
            return logs.RetentionDays.INFINITE
        days = RETENTION_DAYS.get(int(value)) if str(value).isdecimal() else None
        if days is None:
            raise _refused(name, value, f"infinite, or a number of days out of {', '.join(map(str, RETENTION_DAYS))}")
        return days

    def alarm_thresholds(self, name: str) -> AlarmThresholds:
        """Thresholds by name: an object, or text such as ``lost_leases=2,oldest_waiter=1800`` (seconds)."""
        value = self._given(name)
        if value is None:
            return AlarmThresholds()
        known = [field.name for field in fields(AlarmThresholds)]
        allowed = f"name=number with commas between them, or an object; names: {', '.join(known)}"
        given = dict(part.partition("=")[::2] for part in self.texts(name)) if isinstance(value, str) else value
        if not isinstance(given, Mapping):
            raise _refused(name, value, allowed)
        thresholds: dict[str, Any] = {}
        for key, number in given.items():
            threshold = key.strip()
            if threshold not in known:
                raise _refused(name, value, allowed)
            if threshold == "oldest_waiter":
                thresholds[threshold] = _duration(f"{name}.oldest_waiter", number, "a number of seconds")
            elif str(number).strip().isdecimal():
                thresholds[threshold] = int(number)
            else:
                raise _refused(f"{name}.{threshold}", number, "a whole number from 1 on")
        return AlarmThresholds(**thresholds)

    def _given(self, name: str) -> Any:
        value = self._node.try_get_context(name)
        return None if value == "" else value


def _duration(name: str, value: Any, allowed: str) -> Duration:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1
    # Not NaN, not infinite, not negative; the construct checks the rest.
    if not 0 <= number < float("inf"):
        raise _refused(name, value, allowed)
    return Duration.millis(1_000 * number)


def _refused(name: str, value: Any, allowed: str) -> ValueError:
    return ValueError(f"{name} is {value!r}; allowed: {allowed}")
