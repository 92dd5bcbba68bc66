"""Histories of real runs: recorded, checked against a model of a FIFO lock with fencing tokens, and drawn."""
