"""The construct ``TransactionTables`` and its parts."""
