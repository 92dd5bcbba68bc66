"""Values and tables, as callers have them and as DynamoDB has them."""

from ticketlock.units._words._tables import NAME_BYTES, VERSION_BYTES, ItemKey, Pairs, Tables, UnitTable
from ticketlock.units._words._values import (
    LOW_LEVEL,
    PYTHON,
    REFUSED,
    Phrase,
    Python,
    advice,
    check_apart,
    condition_in,
    expression,
    expressions_in,
    refused,
    refused_expressions,
)
