"""The client for threads: acquires, holds and renews locks."""
