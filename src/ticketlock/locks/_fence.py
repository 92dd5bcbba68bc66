"""``Fence``: a task's view of the lock that its workflow holds; makes the check of the fencing token."""

from collections.abc import Mapping
from typing import Any

from ticketlock._checks import text, whole_number
from ticketlock.errors import InvalidLockRequest
from ticketlock.locks._fencing import condition_check
from ticketlock.locks._names import LockName, owner_id

_FIELDS = ("entity", "namespace", "owner", "fencingToken")
_WHOLE = f"the lock as the workflow passes it to its task: an object with {', '.join(_FIELDS)}"
# A table by its ARN: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_ConditionCheck.html
_TABLE_BYTES = 1_024
# DynamoDB's numbers have as many digits.
_LARGEST_TOKEN = 10**38


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
