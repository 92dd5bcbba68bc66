"""Creates a units table."""

from typing import TYPE_CHECKING, Any

from ticketlock.units._guards import GUARDS_OF
from ticketlock.units._ids import is_id
from ticketlock.units._owners import OWNER
from ticketlock.units._places import SWEEP
from ticketlock.units._refusing import as_a_unit_request
from ticketlock.units._rows import KEY, NAME
from ticketlock.wire._create_table import TableKind

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def _is_row(item: Any) -> bool:
    unit: str = item["unit"]["S"]
    return is_id(unit) or unit.startswith((NAME, OWNER, GUARDS_OF)) or unit == SWEEP


UNITS_TABLE = TableKind("table of units", KEY, _is_row)


def create_units_table(table_name: str, *, client: "DynamoDBClient | None" = None, **more: Any) -> bool:
    """Create a units table, unless a table of that name exists, and wait until it can be used.

    Its keys are ``unit`` and ``row``, both text. It is billed on demand, with TTL on ``expiresAt``. A units table that
    exists without TTL, for example after a restore, gets that.

    Args:
        table_name: its name.
        client: a DynamoDB client that may create tables.
        more: further arguments of CreateTable, for example ``Tags`` or ``DeletionProtectionEnabled``.

    Returns:
        Whether it was created.

    Raises:
        InvalidUnitRequest: no Region is set, or ``client`` is not a low-level client (for example a
            ``boto3.resource``).
        ValueError: a table of that name exists, and it is not a units table; nothing was changed.
    """
    with as_a_unit_request(client=client):
        return UNITS_TABLE.create(table_name, client, more)
