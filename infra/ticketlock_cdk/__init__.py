"""CDK constructs of ticketlock."""

from ticketlock_cdk.functions import code_with_ticketlock
from ticketlock_cdk.lock import AlarmThresholds, HandOver, TicketLock
from ticketlock_cdk.managed_policies import use_managed_policies
from ticketlock_cdk.stack import TicketlockStack
from ticketlock_cdk.units import TransactionTables, UnitsAlarmThresholds

__all__ = [
    "AlarmThresholds",
    "HandOver",
    "TicketLock",
    "TicketlockStack",
    "TransactionTables",
    "UnitsAlarmThresholds",
    "code_with_ticketlock",
    "use_managed_policies",
]
