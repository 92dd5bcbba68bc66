"""The construct ``TicketLock`` and its parts."""

from ticketlock_cdk.lock.grants import Grantee, Grantees, beside, to_each
from ticketlock_cdk.lock.monitoring import AlarmThresholds
from ticketlock_cdk.lock.settings import HandOver, RecordWait
from ticketlock_cdk.lock.targets import executions_arn, is_express
from ticketlock_cdk.lock.ticket_lock import TicketLock
