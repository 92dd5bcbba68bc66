"""The steps of the serialised workflow: what each function of the state machine does, as one call each.

The state machine passes one object, the *turn*, from step to step. Each call takes it in, drives the protocol, and
gives the next one back; the definition only routes by its ``status``:

    granted                    hold the lock
    waiting                    sleep for ``waitSeconds``, then look
    grantedMeanwhile           look again, for a whole lease: granted in an execution in which the wait went on
    parked, parkedBriefly      wait to be called, for half a lease or for ``poll`` at most, then look
    continued                  go on waiting in another execution, named ``continueName``
    InvalidLockRequest, TaskNotAllowed, PermitsMismatch, RecordWaitExceeded, EventBudgetExceeded      fail by this name

Every call may run twice with the same input.
"""

from ticketlock.workflow._steps import Step, Workflow

__all__ = ["Step", "Workflow"]
