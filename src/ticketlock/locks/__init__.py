"""The ticket lock: the stored items, every condition, every write, every decision."""
