"""Requests as values, and what performs them: retries, table time, the meaning of the SDK's errors. Knows no lock."""
