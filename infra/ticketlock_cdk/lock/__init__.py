"""The construct ``TicketLock``, and what it is made of."""
