"""Requests as values, and what performs them: repeats, the table's time, what the SDK's errors mean. Knows no lock."""
