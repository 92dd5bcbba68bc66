"""The diagrams of docs/how-it-works.md, each drawn from what it shows: `python -m ticketlock_local diagrams`."""
