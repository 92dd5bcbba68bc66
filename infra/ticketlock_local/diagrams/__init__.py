"""The diagrams of the docs, each drawn from its source: `python -m ticketlock_local diagrams`."""
