"""A service's answer to a request, and the reply that a protocol gets for it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ticketlock.wire._attributes import Item
from ticketlock.wire._table_time import Moment, Reading


class InconclusiveAnswer(Exception):
    """The service answered, but the answer does not show the outcome: the request must be sent again.

    Attributes:
        perhaps_applied: whether the request may have been applied.
    """

    perhaps_applied: ClassVar[bool] = True


class BrokenReply(InconclusiveAnswer):
    """The service reported success, but the rest of its reply was lost."""

    def __str__(self) -> str:
        return "the reply broke off"


class Unprocessed(InconclusiveAnswer):
    """The service read some of the items, and throttled the others.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
    """

    perhaps_applied: ClassVar[bool] = False

    def __str__(self) -> str:
        return "some of the items were not read: the table is throttled"


class StillRunning(InconclusiveAnswer):
    """A stopped execution is not reported as closed yet; descriptions are eventually consistent."""

    perhaps_applied: ClassVar[bool] = False

    def __str__(self) -> str:
        return "the execution is not seen closed yet"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A condition did not hold. For each write: whether it was refused, and the item that refused it."""

    refused: tuple[bool, ...]
    items: tuple[Item | None, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A service's answer to a request.

    Attributes:
        response: the reply, or the error reply that refused the request.
        received: when it came.
        perhaps_applied: whether an attempt has written, or may have.
        items: those of an applied request.
        refusal, error: those of a refused request; the error as the SDK raised it.
        unanswered: whether an earlier attempt had no answer.
    """

    response: Any
    received: Reading
    perhaps_applied: bool
    items: tuple[Item | None, ...] = ()
    refusal: Refusal | None = None
    error: Exception | None = None
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply that a protocol gets.

    Attributes:
        applied: False if a condition did not hold, or if the callback task to be answered has ended.
        items: of a Read the items; of an applied Write what it returns; of a refused Write the item that refused it; of
            a refused TransactWrite one entry for each write. None means "no such item" or "not asked for".
        refused: of a refused TransactWrite: for each write whether it was refused.
        now: the moment of the reply.
        last_key: of a Read: the key after which the next page begins; None at the end.
        repeated: of a refusal: whether an earlier attempt of the same request may have been applied and caused it.
        unanswered: whether an earlier attempt had no answer, and may still arrive.
    """

    applied: bool
    items: tuple[Item | None, ...]
    now: Moment
    refused: tuple[bool, ...] = ()
    last_key: Item | None = None
    repeated: bool = False
    unanswered: bool = False

    @property
    def item(self) -> Item | None:
        """The only or first item."""
        return self.items[0] if self.items else None
