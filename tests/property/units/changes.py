"""What more is changed in units that are broken on purpose: precautions against what comes late, or again."""

import math
from dataclasses import replace
from typing import Any

from ticketlock.errors import TableRefused, TicketLockError
from ticketlock.units import _sweeping
from ticketlock.units._heads import Head, Heads
from ticketlock.units._marked import MarkedCommit
from ticketlock.units._marks import Marks
from ticketlock.wire._requests import ForkingSteps, Write
from ticketlock.wire._table_time import Moment

ALWAYS = "attribute_not_exists(nothing)"
LONGEST_MS = 2**63 - 1


def commit_that_creates(self: Heads, head: Head, now_ms: int) -> Write:
    """Where there is no head it makes one.

    A process sends the commit again after it slept for days: its unit was rolled back, closed and forgotten meanwhile.
    It is told that it is committed, and so is everybody who asks; no item is written.
    """
    made = _COMMIT(self, head, now_ms)
    return replace(made, condition=f"attribute_not_exists(#unit) OR ({made.condition})")


_COMMIT = Heads.commit


def open_again(self: Heads, head: Head) -> Write:
    """Whatever stands there.

    A late copy of the head's first write comes after the commit: the unit is pending once more, and whoever meets one
    of its marks rolls the rest of it back.
    """
    return replace(_OPEN(self, head), condition=ALWAYS)


_OPEN = Heads.open


class MarkedThatStaysWhenRefused(MarkedCommit):
    """What DynamoDB refuses for its contents is told, and nothing is rolled back.

    Upstream's bug: the marks stand until the lease is over, and everybody waits for them.
    """

    def _abort(self, error: TicketLockError) -> ForkingSteps[bool]:
        if isinstance(error, TableRefused):
            return False
        return (yield from super()._abort(error))


def sweep_of_any_age(seen: Head, now: Moment, heads: Heads, marks: Marks, swept: Any) -> ForkingSteps[Any]:
    """Every unit is old enough, as by an age that is beyond the range: upstream's bug.

    A unit whose lease runs is rolled back; a record is closed before the last copy of a mark has come.
    """
    return (yield from _SWEEP_ONE(seen, replace(now, earliest_ms=LONGEST_MS), heads, marks, swept))


_SWEEP_ONE = _sweeping._sweep_one

FOR_EVER_MS = math.inf
"""A transaction is sent again under its token however long ago the first attempt was.

The service has forgotten it after ten minutes. What only the token knows of, a blind append, is applied once more.
"""
