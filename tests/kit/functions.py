"""The lock's functions, as Lambda would invoke them, over a table of a test."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import _observed
from kit.events import MACHINE

from ticketlock import LockTable


@contextmanager
def functions_over(table: LockTable | None = None, *, lease_s: int = 60, level: str = "INFO") -> Iterator[io.StringIO]:
    """Until the end of the block the handlers use this table, or a table ``locks`` of their own client; what they log
    is in what this yields.
    """
    environment = {"TABLE_NAME": "locks", "STATE_MACHINE_ARN": MACHINE, "LEASE_SECONDS": f"{lease_s}"}
    environment |= {"POWERTOOLS_SERVICE_NAME": "lock"}
    lines: Any = _observed.logger.registered_handler
    before, stream = _observed.logger.log_level, io.StringIO()
    _observed.workflow.cache_clear()
    with patch.dict(os.environ, environment), patch.object(lines, "stream", stream):
        _observed.logger.setLevel(level)
        if table is not None:
            _observed.workflow()._table = table
        try:
            yield stream
        finally:
            _observed.logger.setLevel(before)
            _observed.workflow.cache_clear()
