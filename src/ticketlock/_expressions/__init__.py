"""Evaluates DynamoDB's conditions, projections and updates on items in memory."""

from ticketlock._expressions._evaluated import Branch, Expressions, branched, members_shown
from ticketlock._expressions._grammar import (
    MAX_EXPRESSION_BYTES,
    BeginsWith,
    Condition,
    Placeholder,
    Tokens,
    written_value,
)
from ticketlock._expressions._key_conditions import KeyRange, key_range
from ticketlock._expressions._parser import parse
from ticketlock._expressions._schemas import Index, KeyAttribute, Schema, check_item, check_key, size_of_update
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import (
    MAX_ITEM_BYTES,
    MAX_NAME_BYTES,
    Attributes,
    ExpressionInvalid,
    ItemInvalid,
    ItemTooBig,
    Value,
    canonical,
    canonical_item,
    check_text,
    copy_of_item,
    order_of,
    size_of,
)
