"""CDK constructs of ticketlock."""

from ticketlock_cdk.lock.monitoring import AlarmThresholds
from ticketlock_cdk.lock.settings import HandOver
from ticketlock_cdk.lock.ticket_lock import TicketLock
from ticketlock_cdk.managed_policies import use_managed_policies
from ticketlock_cdk.stack import TicketlockStack
from ticketlock_cdk.units.monitoring import UnitsAlarmThresholds
from ticketlock_cdk.units.transaction_tables import TransactionTables

__all__ = [
    "AlarmThresholds",
    "HandOver",
    "TicketLock",
    "TicketlockStack",
    "TransactionTables",
    "UnitsAlarmThresholds",
    "use_managed_policies",
]
