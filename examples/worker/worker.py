"""A worker in a container: several are started, and one at a time works. Python 3.11 or newer.

    pip install .  # in a checkout of ticketlock
    LOCK_TABLE=locks JOB=nightly-report python worker.py

The orchestrator's SIGTERM ends it at once. It frees the lock, or leaves the queue if it still waits, and the next one
in line begins. Exit codes: 0, the job is done; 143, a signal has stopped it.
"""

import logging
import math
import os
import signal
import sys
import time
from types import FrameType

from ticketlock import Lease, LockClient

log = logging.getLogger("worker")


def stop(signal_number: int, _: FrameType | None) -> None:
    """Raise an exception, so that every ``with`` block is left; by default SIGTERM ends the process without that."""
    sys.exit(128 + signal_number)


def work(lease: Lease, pages: int) -> None:
    """The job, in steps that are shorter than the time for which the lock is ensured."""
    for page in range(pages):
        lease.ensure(at_least=10)
        log.info("page %s", page)
        time.sleep(1)


def main() -> None:
    """Wait for the job's lock, as long as it takes, and do the job."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    signal.signal(signal.SIGTERM, stop)
    log.info("waiting")
    with LockClient(os.environ["LOCK_TABLE"]) as locks, locks.acquire(os.environ["JOB"], record_wait=math.inf) as lease:
        work(lease, pages=int(os.environ.get("PAGES", "100")))


if __name__ == "__main__":
    main()
