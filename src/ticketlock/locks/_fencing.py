"""Fencing tokens in a caller's own writes: a holder that was paused past its lease cannot write.

A ConditionCheck on the lock item requires that the lock is still held with this token. In one transaction with the
protected write, no later holder can come in between (etcd's ``IsOwner`` is the model). An item that stores the highest
token it has seen needs no transaction: it refuses a smaller one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ticketlock._checks import boolean, text
from ticketlock.errors import InvalidLockRequest, LockLost, OutcomeUnknown
from ticketlock.locks import _conditions as only_if
from ticketlock.locks._items import lock_key, token_attribute
from ticketlock.locks._names import LockName
from ticketlock.wire._actions import Actions
from ticketlock.wire._answers import Answer
from ticketlock.wire._attributes import number
from ticketlock.wire._requests import TOKEN_IS_SAFE_FOR_MS, Request, transact_write_call

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_ATTRIBUTE_BYTES = 65_535
_SEEN = "attribute_not_exists(#lockToken) OR #lockToken <= :lockToken"


def condition_check(table_name: str, lock: LockName, owner: str, fencing_token: int, *, native: bool) -> dict[str, Any]:
    """Return the ConditionCheck that a lock is held with this token."""
    boolean("native", native)
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
    """Return the arguments of a PutItem that stores the token in the item and fails if the item has a later one."""
    if not isinstance(item, Mapping):
        raise InvalidLockRequest("item", item, "an item, as a mapping")
    value = _token(fencing_token, attribute, native=native)
    return _fenced({"Item": {**item, attribute: value}}, value, attribute, more)


def fenced_update(
    fencing_token: int, update: str, *, attribute: str, native: bool, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of an UpdateItem that does the same; ``update`` begins with its SET clause."""
    clause, *rest = (update.split(maxsplit=1) if isinstance(update, str) else []) or [""]
    if clause.upper() != "SET" or not rest:
        raise InvalidLockRequest("update", update, "an update expression that begins with SET, to add the token")
    value = _token(fencing_token, attribute, native=native)
    return _fenced({"UpdateExpression": f"SET #lockToken = :lockToken, {rest[0]}"}, value, attribute, more)


def _token(fencing_token: int, attribute: str, *, native: bool) -> Any:
    text("attribute", attribute, _ATTRIBUTE_BYTES)
    return fencing_token if boolean("native", native) else number(fencing_token)


def _fenced(arguments: dict[str, Any], value: Any, attribute: str, more: Mapping[str, Any]) -> dict[str, Any]:
    condition = more.get("ConditionExpression")
    return {
        **more,
        **arguments,
        "ConditionExpression": f"({_SEEN}) AND ({condition})" if condition else _SEEN,
        "ExpressionAttributeNames": {**more.get("ExpressionAttributeNames", {}), "#lockToken": attribute},
        "ExpressionAttributeValues": {**more.get("ExpressionAttributeValues", {}), ":lockToken": value},
    }


@dataclass(frozen=True, slots=True)
class FencedTransaction(Request):
    """The check that a lock is held, and a caller's own writes, in one transaction.

    Each waiter's ticket and each renewal writes the lock item, and DynamoDB cancels a transaction that conflicts with
    such a write (``TransactionConflict``); SDKs do not retry that. The client that sends it need not be the one that
    measures table time.

    Attributes:
        check, writes: items of TransactWriteItems.
        patience_ms: for how long to retry, at most for as long as the service recognises the client request token.
    """

    may_write: ClassVar[bool] = True
    tells_time: ClassVar[bool] = False
    repeatable_for_ms: ClassVar[float] = TOKEN_IS_SAFE_FOR_MS

    check: Mapping[str, Any]
    writes: tuple[Mapping[str, Any], ...]
    patience_ms: int

    def tables(self, _table: str) -> tuple[str, ...]:
        """The tables of its items."""
        named = (item.get("TableName") for each in (self.check, *self.writes) for item in each.values())
        return tuple(sorted({str(name) for name in named}))

    def calls(self, _table: str, identity: str) -> Actions[Any]:
        """The transaction."""
        return (yield transact_write_call([self.check, *self.writes], identity))

    def gives_up_after_ms(self, _usual_ms: int) -> int:
        """For as long as its caller allows."""
        return self.patience_ms

    @staticmethod
    def check_applied(answer: Answer) -> None:
        """Raise the reason of a refusal.

        Raises:
            LockLost: the lock is not held with this token any more; nothing was written.
            OutcomeUnknown: another condition did not hold, but an earlier attempt was not answered.
            ClientError: DynamoDB's, because another condition of the transaction did not hold; nothing was written.
        """
        if answer.refusal is None:
            return
        if answer.refusal.refused[0]:
            # A late copy of an earlier attempt is refused too: no later grant has this token. One that was applied
            # would have answered this attempt, by its client request token.
            lost = LockLost("the lock is not held with this fencing token any more: nothing was written")
            raise lost from answer.error
        if answer.perhaps_applied:
            raise OutcomeUnknown(
                "an earlier attempt may still be applied: it was not answered, and a condition of the transaction "
                f"refused a later one ({answer.error})"
            ) from answer.error
        assert answer.error is not None
        raise answer.error
