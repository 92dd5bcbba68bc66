"""The ticket lock: what is stored, every condition, every write, every decision."""
