"""What others have published or shipped."""

from dataclasses import replace
from typing import Any

from property import operators, scripts
from property.broken.lock import ALWAYS, BrokenLock, without
from property.broken.published import client

from ticketlock.locks import _conditions, _grants, _queue, _writes
from ticketlock.locks._modes import EXCLUSIVE
from ticketlock.wire import _driver
from ticketlock.wire._driver import Driver
from ticketlock.wire._requests import Write
from ticketlock.wire._table_time import Moment, Reading

_renew = _writes.renew
_moment = Driver._moment


def _reviving_renewal(claim: Any, fencing_token: int, now: Any, at_least_until_ms: int) -> Write:
    made = _renew(claim, fencing_token, now, at_least_until_ms)
    holder = {"M": _grants._holder(claim, now)}
    return replace(
        made,
        update="SET #me = :holder, #my_token = :token",
        condition=ALWAYS,
        values={**made.values, ":holder": holder},
    )


def _moment_by_the_wall_clock(driver: Driver, reading: Reading) -> Moment:
    return _moment(driver, reading) or Moment(reading.local_ms, reading.wall_ms, reading.wall_ms, reading.wall_ms)


BROKEN_ELSEWHERE = (
    BrokenLock(
        "the protocol as it was published",
        "Distributed Locking in DynamoDB (2020)",
        frozenset({"exclusion"}),
        (
            (scripts, "client", client),
            *((operators, each, lambda *_: client(0)) for each in ("operator", "freer", "heir", "pessimist")),
        ),
    ),
    BrokenLock(
        "a heartbeat that revives",
        "the same: its only condition is that the row exists",
        frozenset({"leases grow", "counts", "liveness"}),
        ((_writes, "renew", _reviving_renewal),),
    ),
    BrokenLock(
        "a release without a condition",
        "dynalock, dynamodblock: it frees the lock even if another owner holds it now",
        frozenset({"counts"}),
        ((_writes, "release", without(_writes.release, _conditions.I_HOLD_WITH_MY_TOKEN)),),
    ),
    BrokenLock(
        "wall clocks",
        "the published protocol, and every lock that compares two machines' clocks",
        frozenset({"exclusion", "no eviction", "no overtaking", "liveness"}),
        ((_queue, "is_over", lambda until_ms, now: until_ms < now.wall_ms),),
    ),
    BrokenLock(
        "a lease written by the wall clock",
        "the same, as long as a process has heard nothing from the table",
        frozenset({"exclusion", "no eviction", "no overtaking", "liveness", "nothing left"}),
        ((_driver.Driver, "_moment", _moment_by_the_wall_clock),),
    ),
    BrokenLock(
        "time to live as expiry",
        "locks that compare the attribute of time to live, in whole seconds",
        frozenset({"exclusion", "no eviction", "no overtaking"}),
        ((_queue, "is_over", lambda until_ms, now: until_ms // 1_000 <= now.latest_ms // 1_000),),
    ),
    BrokenLock(
        "count, then insert",
        "sfn-concurrency-lease: the limit is read, but the write has no condition on it",
        frozenset({"limit"}),
        (
            (
                _grants,
                "take_at_once",
                without(_grants.take_at_once, _conditions.A_PERMIT_IS_FREE, _conditions.NO_HOLDER_SHARES),
            ),
        ),
    ),
    BrokenLock(
        "not equal for the limit",
        "the AWS sample of a Step Functions semaphore, by <>: it never recovers from a lower limit",
        frozenset({"limit"}),
        ((type(EXCLUSIVE), "room_conditions", ("held <> permits", _conditions.NO_HOLDER_SHARES)),),
    ),
    BrokenLock(
        "an expired holder removed though it has renewed",
        "locks that delete what they have read",
        frozenset({"exclusion", "no eviction", "counts", "limit"}),
        ((_conditions, "expired_holder_as_seen", lambda _: ALWAYS),),
    ),
)
