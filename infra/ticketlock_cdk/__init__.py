"""CDK constructs of ticketlock."""

from ticketlock_cdk.stack import TicketlockStack
from ticketlock_cdk.ticket_lock import TicketLock

__all__ = ["TicketLock", "TicketlockStack"]
