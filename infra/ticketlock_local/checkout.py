"""Paths in the checkout: the local cloud runs only from a checkout, never from a wheel."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the checkout's lock of this name; the kernel releases it when the process ends."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
