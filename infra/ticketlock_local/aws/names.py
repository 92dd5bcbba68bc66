"""Names that a run of the checklist and its stack share."""

PREFIX = "ticketlock-check-"
"""The prefix of the names of the stack and of the bucket with its files."""

RUN_TAG = "ticketlock:run"
"""The stack's tag with the run that has made it."""

LEASE_S = 40
"""The lock's lease: a heartbeat every 20 s."""

ERROR = "OutOfPaint"
"""The error of the work that fails."""
