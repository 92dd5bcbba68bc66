"""What processes do under a lock: read a counter, and write it back with one more, in ways that a pause breaks or not.

And what many of them do at random.
"""

import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

from botocore.exceptions import BotoCoreError
from kit.programs import Counter, Shared, meet_the_others, say
from kit.recorded import RecordedLease

from ticketlock import RecordWaitExceeded, TableError

TWO = 2
"""The permits of the lock with several holders."""
_LONGEST_PAUSE_S = 0.02

Write = Callable[[int], object]


def alone(entity: str) -> str:
    """A lock with one holder at a time, and a counter."""
    return f"{entity}, one at a time"


def several(entity: str) -> str:
    """A lock with permits."""
    return f"{entity}, {TWO} at a time"


def reading(entity: str) -> str:
    """A lock that readers share, and with a counter for writers."""
    return f"{entity}, readers and a writer"


# One increment each, with a pause between the read and the write. Each prints what it found, waits for a line, prints
# whether the write was applied, and releases.


def write_unfenced(shared: Shared) -> None:
    counter = Counter(shared)
    _add_one(shared, lambda _: (counter.read(), counter.write))


def write_in_a_transaction(shared: Shared) -> None:
    counter = Counter(shared)
    _add_one(shared, lambda lease: (counter.read(), counter.in_a_transaction(lease.lease)))


def write_with_the_token(shared: Shared) -> None:
    """The read writes the token as well, so that earlier readers are refused from then on."""
    counter = Counter(shared)

    def read_and_write(lease: RecordedLease) -> tuple[int, Write]:
        return _read_with_the_token(counter, lease), _with_the_token(counter, lease)

    _add_one(shared, read_and_write)


def write_with_the_token_after_a_plain_read(shared: Shared) -> None:
    counter = Counter(shared)
    _add_one(shared, lambda lease: (counter.read(), _with_the_token(counter, lease)))


def _add_one(shared: Shared, read_and_write: Callable[[RecordedLease], tuple[int, Write]]) -> None:
    with shared.locks() as locks:
        with shared.recorded(locks).acquire(shared.entity) as lease:
            found, write = read_and_write(lease)
            lease.check()
            say(found)
            assert sys.stdin.readline() == "go on\n"
            say(lease.update(found, write))
        say("done")


def _with_the_token(counter: Counter, lease: RecordedLease) -> Write:
    return lambda value: counter.client.put_item(**counter.table, **lease.lease.fenced_put(counter.item(value)))


def _read_with_the_token(counter: Counter, lease: RecordedLease) -> int:
    request = lease.lease.fenced_update(
        "SET #value = if_not_exists(#value, :none)",
        ExpressionAttributeNames={"#value": "value"},
        ExpressionAttributeValues={":none": {"N": "0"}},
    )
    answer = counter.client.update_item(**counter.table, Key=counter.key, ReturnValues="ALL_NEW", **request)
    return int(answer["Attributes"]["value"]["N"])


# At random.


def come_and_go(shared: Shared) -> None:
    """Acquire locks, work under them and release them, until a line is sent."""
    counters = {
        entity: Counter(replace(shared, entity=entity)) for entity in (alone(shared.entity), reading(shared.entity))
    }
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.readline()
        over.set()

    with shared.locks() as locks:
        recorded = shared.recorded(locks)
        meet_the_others()
        threading.Thread(target=wait_for_the_end, daemon=True).start()
        while not over.is_set():
            entity, wishes = random.choice(
                (
                    (alone(shared.entity), {}),
                    (several(shared.entity), {"permits": TWO}),
                    (reading(shared.entity), {"shared": True}),
                    (reading(shared.entity), {}),
                )
            )
            # Some give up soon; none waits for longer than a few leases.
            record_wait = random.choice((0.0, 0.1, 1.0, 30.0))
            try:
                with recorded.acquire(entity, record_wait=record_wait, **wishes) as lease:
                    over.wait(random.uniform(0, _LONGEST_PAUSE_S))
                    if entity in counters and not lease.lease.shared:
                        counter = counters[entity]
                        lease.update(counter.read(), counter.in_a_transaction(lease.lease))
                    lease.check()
            except (RecordWaitExceeded, TableError, BotoCoreError):
                # Recorded as refused, or unknown.
                pass
            over.wait(random.uniform(0, _LONGEST_PAUSE_S))
    say("done")
