"""The steps of the serialised workflow: one call for each function of the state machine.

The state machine passes one object, the *turn*, from step to step. Each call gets the turn, drives the protocol, and
returns the next turn; the definition only routes by its ``status``:

    granted                    hold the lock
    waiting                    sleep for ``waitSeconds``, then poll
    grantedMeanwhile           granted in a continuation: poll again, for a full lease
    parked, parkedBriefly      wait to be woken, for at most half a lease or ``poll``, then poll
    continued                  continue the wait in another execution, named ``continueName``
    InvalidLockRequest, TaskNotAllowed, PermitsMismatch, RecordWaitExceeded, EventBudgetExceeded    fail with this name

Every call may run twice with the same input.
"""

from ticketlock.workflow._steps import Step, Workflow

# For other rooms.
from ticketlock.workflow._turn import BEATS_AN_EXECUTION as BEATS_AN_EXECUTION
from ticketlock.workflow._turn import PARKS_PER_POLL as PARKS_PER_POLL
from ticketlock.workflow._turn import LockRequest as LockRequest
from ticketlock.workflow._turn import most_polls_an_execution as most_polls_an_execution

__all__ = ["Step", "Workflow"]
