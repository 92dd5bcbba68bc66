"""Names that the run of a checklist and its stack share."""

PREFIX = "ticketlock-check-"
"""Of the stack and of the bucket with its files."""

RUN_TAG = "ticketlock:run"
"""The stack's tag: which run has made it."""

LEASE_S = 40
"""Of the lock: a beat each 20 s."""

ERROR = "OutOfPaint"
"""What the works that fail fail with."""
