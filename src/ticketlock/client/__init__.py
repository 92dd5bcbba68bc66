"""The client for threads: what it asks for, holds and renews."""
