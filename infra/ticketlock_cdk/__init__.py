"""CDK constructs of ticketlock."""

from ticketlock_cdk.alarms import AlarmThresholds
from ticketlock_cdk.settings import HandOver
from ticketlock_cdk.stack import TicketlockStack
from ticketlock_cdk.ticket_lock import TicketLock

__all__ = ["AlarmThresholds", "HandOver", "TicketLock", "TicketlockStack"]
