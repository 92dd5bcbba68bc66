"""The construct ``TicketLock`` and its parts."""
