"""Histories of real runs: recorded as they happen, judged against a FIFO lock with fencing tokens, drawn."""
