"""The clean-up after a durable execution of Lambda has ended: its queue rows, and the locks that it holds suspended.

The service runs none of its code any more: not that of a branch that was suspended when `parallel` had enough, and not
the block of an execution that was stopped. What may still run is the invocation that was under way: stopping does not
end it, and an execution that has failed at a quota has one that goes on. So a grant is freed only if it is flagged as
suspended, and has not changed since; any other is renewed for as long as its invocation runs, and its lease ends soon.

https://docs.aws.amazon.com/lambda/latest/dg/durable-monitoring.html
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ticketlock.locks import Contender, Session, hold_of
from ticketlock.wire import Steps
from ticketlock.workflow._clean_up import CleanedUp, left_queue, wake_a_waiter


def clean_up_durable(me: Contender, session: Session, ended_at_ms: int) -> Steps[CleanedUp]:
    """Clean up after one hold of an execution that has ended; the arguments are those of ``find``."""
    state, left = yield from left_queue(me, session, ended_at_ms)
    item, holder, freed = state.item, state.holder, False
    if item is not None and holder is not None and holder.suspended:
        freed = yield from me.free_suspended(hold_of(me.claim.lock, holder, item))
    yield from wake_a_waiter(me, item, left or freed)
    return CleanedUp(left=left, freed=freed, left_to_lease=holder is not None and not freed)


def is_durable(event: Mapping[str, Any]) -> bool:
    """Whether a status event is that of a durable execution."""
    return event.get("source") == "aws.lambda"


def ended_at_ms(detail: Mapping[str, Any]) -> int:
    """When an execution ended, by its status event."""
    return int(datetime.fromisoformat(detail["endTimestamp"]).timestamp() * 1_000)
