"""Fencing tokens in a caller's own writes: a holder that was paused past its lease cannot write.

A ConditionCheck on the lock item requires that the lock is still held with this token. In one transaction with the
protected write, no later holder can come in between (etcd's ``IsOwner`` is the model). An item that stores the highest
token it has seen needs no transaction: it refuses a smaller one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ticketlock._checks import boolean, text, whole_number
from ticketlock.errors import InvalidLockRequest, LockLost, OutcomeUnknown
from ticketlock.locks import _conditions as only_if
from ticketlock.locks._items import LockName, lock_key, owner_id, token_attribute
from ticketlock.wire import TOKEN_IS_SAFE_FOR_MS, Actions, Answer, Request, number, transact_write_call

_FIELDS = ("entity", "namespace", "owner", "fencingToken")
_WHOLE = f"the lock as the workflow passes it to its task: an object with {', '.join(_FIELDS)}"
# A table by its ARN: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ConditionCheck.html
_TABLE_BYTES = 1_024
# DynamoDB's numbers have as many digits.
_LARGEST_TOKEN = 10**38

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
_ATTRIBUTE_BYTES = 65_535
_SEEN = "attribute_not_exists(#lockToken) OR #lockToken <= :lockToken"


class Fence:
    """A lock that a workflow holds while it runs your task. The task gets it in its input.

        def handler(event, context):
            fence = Fence(event["lock"], os.environ["LOCK_TABLE"])
            with units.begin(under=fence) as unit:
                ...

    A fence sends no request: it neither renews nor releases the lock. A unit of work under it commits only while the
    lock is held with this fencing token.

    Args:
        lock: what the workflow puts into the task's input: ``entity``, ``namespace``, ``owner`` and ``fencingToken``.
        table_name: the lock's table, by its name or its ARN. Take it from the deployment, never from the task's input:
            a caller that may start the task must not choose the table.

    Attributes:
        lock: the lock's name.
        owner: the holder: the execution's ARN; for a fragment, the ARN, the fragment's id and a UUID of this entry.
        fencing_token: the grant's.
        table_name: as given.

    Raises:
        InvalidLockRequest: a field is missing or malformed; names it, such as ``lock.fencingToken``. Nothing was sent.
    """

    __slots__ = ("fencing_token", "lock", "owner", "table_name")

    def __init__(self, lock: Mapping[str, Any], table_name: str) -> None:
        if not isinstance(lock, Mapping):
            raise InvalidLockRequest("lock", lock, _WHOLE)
        missing = [name for name in _FIELDS if name not in lock]
        if missing:
            raise InvalidLockRequest("lock", dict(lock), f"{_WHOLE}; {', '.join(missing)} is missing")
        try:
            self.lock = LockName(lock["entity"], lock["namespace"])
            self.owner = owner_id(lock["owner"])
            self.fencing_token = whole_number("fencingToken", lock["fencingToken"], 1, _LARGEST_TOKEN)
        except InvalidLockRequest as wrong:
            raise InvalidLockRequest(f"lock.{wrong.field}", lock[wrong.field], wrong.allowed) from None
        self.table_name = text("table_name", table_name, _TABLE_BYTES)

    def condition_check(self, *, native: bool = False) -> dict[str, Any]:
        """Return a ConditionCheck for your ``TransactWriteItems``: the lock is still held with this fencing token.

        Args:
            native: True for Python types, for the client of a ``boto3.resource``; False for a low-level client.
        """
        return condition_check(self.table_name, self.lock, self.owner, self.fencing_token, native=native)

    def __repr__(self) -> str:
        lock = self.lock
        return f"Fence(entity={lock.entity!r}, namespace={lock.namespace!r}, fencing_token={self.fencing_token})"


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
