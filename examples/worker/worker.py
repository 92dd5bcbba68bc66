"""A worker in a container: one of many that are started, and the only one that works. Python 3.11 or newer.

    make wheel && pip install dist/ticketlock-*.whl  # in a checkout of ticketlock
    LOCK_TABLE=locks JOB=nightly-report python worker.py

The orchestrator's SIGTERM ends it at once, and the next one in line begins: the lock is freed on the way out, also by
one that still waits. Exit codes: 0, the job is done; 143, it was told to stop.
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
    """End the program as an exception does, so that every ``with`` is left; by itself SIGTERM leaves none."""
    sys.exit(128 + signal_number)


def work(lease: Lease, pages: int) -> None:
    """The job, in steps that are shorter than what is made sure of."""
    for page in range(pages):
        lease.ensure(at_least=10)
        log.info("page %s", page)
        time.sleep(1)


def main() -> None:
    """Wait for the job's lock, however long that takes, and do the job."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    signal.signal(signal.SIGTERM, stop)
    log.info("waiting")
    with LockClient(os.environ["LOCK_TABLE"]) as locks, locks.acquire(os.environ["JOB"], record_wait=math.inf) as lease:
        work(lease, pages=int(os.environ.get("PAGES", "100")))


if __name__ == "__main__":
    main()
