"""A table of units' own, made by hand."""

from typing import TYPE_CHECKING, Any

from ticketlock.units._ids import is_id
from ticketlock.units._places import SWEEP
from ticketlock.units._refusing import as_a_unit_request
from ticketlock.units._rows import KEY, receipt_key
from ticketlock.wire._create_table import TableKind

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_OF_NAMES = receipt_key("")["unit"]["S"]


def _is_row(item: Any) -> bool:
    unit: str = item["unit"]["S"]
    return is_id(unit) or unit.startswith(_OF_NAMES) or unit == SWEEP


UNITS_TABLE = TableKind("table of units", KEY, _is_row)


def create_units_table(table_name: str, *, client: "DynamoDBClient | None" = None, **more: Any) -> bool:
    """Make a table of units' own, unless there is one of that name, and wait until it can be used.

    Its keys are ``unit`` and ``row``, both text; it is billed on demand, and its time to live is on ``expiresAt``.

    Args:
        table_name: its name.
        client: a DynamoDB client that may create tables.
        more: further arguments of CreateTable, for example ``Tags`` or ``DeletionProtectionEnabled``.

    Returns:
        Whether it was made.

    Raises:
        InvalidUnitRequest: no Region is set, or ``client`` is not a low-level client (for example a
            ``boto3.resource``).
        ValueError: there is a table of that name, and it is no table of units; nothing was changed.
    """
    with as_a_unit_request(client=client):
        return UNITS_TABLE.create(table_name, client, more)
