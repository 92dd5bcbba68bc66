"""Tools for tests of code that takes locks: a DynamoDB in memory, and clocks that a test moves.

    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)
    locks = LockClient("locks", client=memory.client, clocks=clock, sleep=clock.sleep)

Nothing here opens a connection, needs credentials or waits. ticketlock's own contract tests run on it as well.
"""

from ticketlock.testing._clock import ManualClock, lose
from ticketlock.testing._faults import Fault, FaultOn
from ticketlock.testing._memory import MemoryDynamoDB
from ticketlock.testing._service import Sent

# For other rooms.
from ticketlock.testing._service import decoded as decoded
from ticketlock.testing._service import encoded as encoded
from ticketlock.testing._service import failure as failure
from ticketlock.testing._transactions import InSteps

__all__ = ["Fault", "FaultOn", "InSteps", "ManualClock", "MemoryDynamoDB", "Sent", "lose"]
