"""Creates a lock table without the CDK, as the construct would."""

from typing import TYPE_CHECKING, Any

from ticketlock.wire._create_table import TableKind

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LOCK_TABLE = TableKind("lock table", ("pk", "sk"), is_ours=lambda item: "/" in item["sk"]["S"])


def create_table(table_name: str, *, client: "DynamoDBClient | None" = None, **more: Any) -> bool:
    """Create a lock table, unless there is one of that name, and wait until it is active.

    Args:
        table_name: its name.
        client: a DynamoDB client with permission to create tables.
        more: further arguments of CreateTable, for example ``Tags`` or ``DeletionProtectionEnabled``.

    Returns:
        Whether the table was created.

    Raises:
        InvalidLockRequest: no Region is set, or ``client`` is not a low-level client (for example a
            ``boto3.resource``).
        ValueError: the table of that name is not a lock table; nothing was changed.
    """
    return LOCK_TABLE.create(table_name, client, more)
