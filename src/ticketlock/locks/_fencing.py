"""The fencing token in somebody's own writes: what makes them safe, also from a holder that was paused.

A ConditionCheck on the lock item says that the lock is still held with this very token: in one transaction with the
write that it protects, no later holder can have come in between (etcd's ``IsOwner`` is the model). A store that keeps
the last token it has seen needs no transaction: it refuses a smaller one.
"""

import itertools
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ticketlock.errors import LockLost, OutcomeUnknown, RequestNotApplied, TableError
from ticketlock.locks import _conditions as only_if
from ticketlock.locks._items import lock_key, token_attribute
from ticketlock.locks._names import LockName
from ticketlock.wire import _sdk
from ticketlock.wire._actions import Actions, Call, Sleep
from ticketlock.wire._attributes import number
from ticketlock.wire._clocks import Clocks

_FIRST_BACKOFF_MS = 20
_LONGEST_BACKOFF_MS = 500
_SEEN = "attribute_not_exists(#lockToken) OR #lockToken <= :lockToken"


def condition_check(table_name: str, lock: LockName, owner: str, fencing_token: int, *, native: bool) -> dict[str, Any]:
    """The ConditionCheck that a lock is held with this token."""
    key = lock_key(lock)
    return {
        "ConditionCheck": {
            "TableName": table_name,
            "Key": {name: value["S"] for name, value in key.items()} if native else key,
            "ConditionExpression": only_if.I_HOLD_WITH_MY_TOKEN,
            "ExpressionAttributeNames": {"#my_token": token_attribute(owner)},
            "ExpressionAttributeValues": {":token": fencing_token if native else number(fencing_token)},
        }
    }


def fenced_put(
    fencing_token: int, item: Mapping[str, Any], *, attribute: str, native: bool, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a PutItem that keeps the token in the item, and is refused by a later one's."""
    value = fencing_token if native else number(fencing_token)
    return _fenced({"Item": {**item, attribute: value}}, value, attribute, more)


def fenced_update(
    fencing_token: int, update: str, *, attribute: str, native: bool, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of an UpdateItem that does the same; ``update`` begins with its SET clause."""
    clause, *rest = update.split(maxsplit=1) or [""]
    if clause.upper() != "SET" or not rest:
        raise ValueError(f"the update begins with {clause!r}; begin with SET, to which the token is added")
    value = fencing_token if native else number(fencing_token)
    return _fenced({"UpdateExpression": f"SET #lockToken = :lockToken, {rest[0]}"}, value, attribute, more)


def _fenced(arguments: dict[str, Any], value: Any, attribute: str, more: Mapping[str, Any]) -> dict[str, Any]:
    condition = more.get("ConditionExpression")
    return {
        **more,
        **arguments,
        "ConditionExpression": f"({_SEEN}) AND ({condition})" if condition else _SEEN,
        "ExpressionAttributeNames": {**more.get("ExpressionAttributeNames", {}), "#lockToken": attribute},
        "ExpressionAttributeValues": {**more.get("ExpressionAttributeValues", {}), ":lockToken": value},
    }


def transact_write(
    check: Mapping[str, Any], items: Sequence[Mapping[str, Any]], clocks: Clocks, give_up_after_ms: int
) -> Actions[None]:
    """Write in one transaction with the check that the lock is held, however often it conflicts with waiters.

    Each waiter's ticket and each renewal writes the lock item, and DynamoDB cancels a transaction that meets such a
    write (``TransactionConflict``); SDKs do not repeat it.

    Raises:
        LockLost: the lock is not held with this token any more; nothing was written.
        ClientError: another condition of the transaction did not hold, as DynamoDB said it; nothing was written.
        RequestNotApplied, OutcomeUnknown, TableError: as the names say.
    """
    last_ms = clocks.read().local_ms + give_up_after_ms
    call = Call(
        "dynamodb",
        "transact_write_items",
        {"TransactItems": [check, *items], "ClientRequestToken": str(uuid.uuid4())},
    )
    perhaps_applied = False
    for attempt in itertools.count():
        try:
            yield call
        except (BotoCoreError, ClientError) as error:
            meaning = _sdk.meaning(error)
            if isinstance(meaning, _sdk.Refusal):
                if meaning.refused[0]:
                    raise LockLost(
                        "the lock is not held with this fencing token any more: nothing was written"
                    ) from error
                raise
            if isinstance(meaning, TableError):
                raise meaning from error
            perhaps_applied |= meaning.perhaps_applied
            pause_ms = random.random() * min(_LONGEST_BACKOFF_MS, _FIRST_BACKOFF_MS << attempt)
            if clocks.read().local_ms + pause_ms > last_ms:
                given_up = OutcomeUnknown if perhaps_applied else RequestNotApplied
                raise given_up(f"gave up after {attempt + 1} attempts: {error}") from error
            yield Sleep(pause_ms)
        else:
            return
