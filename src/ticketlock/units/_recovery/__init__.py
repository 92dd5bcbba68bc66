"""What another process does about a unit: it resumes, rolls back, finishes, repairs, sweeps."""

from ticketlock.units._recovery._operators import (
    Corrected,
    Correction,
    Counted,
    FoundMark,
    Inspected,
    OpenUnit,
    Outcome,
    Settled,
    Shown,
    UnitOutcome,
    correct,
    corrections,
    count_unfinished,
    inspect,
    inspect_name,
    open_units,
    outcome,
    outcome_of_rollback,
    repair,
    roll_back,
    settle,
    unfinished,
)
from ticketlock.units._recovery._saved import OWNER, Resumed, SavedUnit, end_owner, resume, save
from ticketlock.units._recovery._sweeping import SWEEP, Swept, sweep
