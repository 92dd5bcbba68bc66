"""CDK constructs of ticketlock."""

from ticketlock_cdk.lock.alarms import AlarmThresholds
from ticketlock_cdk.lock.settings import HandOver
from ticketlock_cdk.lock.ticket_lock import TicketLock
from ticketlock_cdk.stack import TicketlockStack

__all__ = ["AlarmThresholds", "HandOver", "TicketLock", "TicketlockStack"]
