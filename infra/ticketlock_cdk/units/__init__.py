"""The construct ``TransactionTables`` and its parts."""

from ticketlock_cdk.units.monitoring import UnitsAlarmThresholds
from ticketlock_cdk.units.transaction_tables import TransactionTables
