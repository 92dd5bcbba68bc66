"""Locks for AWS Lambda durable functions: an execution waits for its turn, and holds its lock, while nothing runs.

    locks = DurableLocks("locks")

    @durable_execution
    def handler(event, context):
        with locks.hold(context, event["order"]) as lease:
            lease.step(charge, event)
            context.wait(Duration.from_days(1))
            lease.step(ship, event)

They stand in the same queue as workflows, Python clients and the command. Needs ``pip install ticketlock[durable]``,
AWS's SDK for durable functions.
"""

from ticketlock.durable._lease import DurableLease, LockedStep, LockedSteps
from ticketlock.durable._locks import DurableHold, DurableLocks

__all__ = ["DurableHold", "DurableLease", "DurableLocks", "LockedStep", "LockedSteps"]
