"""How a unit ends."""

from ticketlock.units._commit._behind import MOST_BEHIND, BehindThreads, log_unfinished
from ticketlock.units._commit._commit import (
    Behind,
    Commit,
    commit_natively,
    in_front,
    may_be_sent_blindly,
    name_refused,
)
from ticketlock.units._commit._marked import MarkedCommit
from ticketlock.units._commit._read_locks import ReadLockLease, ReadLocks
from ticketlock.units._commit._state import UnitState
