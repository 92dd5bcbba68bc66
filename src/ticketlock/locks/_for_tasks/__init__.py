"""The lock table for tasks."""

from ticketlock.locks._for_tasks._lock_table import LockTable
