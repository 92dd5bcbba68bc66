"""The pictures of the docs, each drawn from what it shows: `python -m ticketlock_local diagrams`."""
