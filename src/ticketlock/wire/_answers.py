"""What the service answers to a request, and what of that a protocol is told."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ticketlock.wire._attributes import Item
from ticketlock.wire._table_time import Moment, Reading


class InconclusiveAnswer(Exception):
    """The service answered, and yet it is not known what became of the request: it is to be repeated.

    Attributes:
        perhaps_applied: whether it may have been applied.
    """

    perhaps_applied: ClassVar[bool] = True


class BrokenReply(InconclusiveAnswer):
    """The service said yes, and the rest of its reply got lost."""

    def __str__(self) -> str:
        return "the reply broke off"


class Unprocessed(InconclusiveAnswer):
    """The service read some of the items, and is throttled for the others.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html
    """

    perhaps_applied: ClassVar[bool] = False

    def __str__(self) -> str:
        return "some of the items were not read: the table is throttled"


class StillRunning(InconclusiveAnswer):
    """An execution that was stopped is not seen closed yet; descriptions are eventually consistent."""

    perhaps_applied: ClassVar[bool] = False

    def __str__(self) -> str:
        return "the execution is not seen closed yet"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A condition did not hold: for each write whether it was the one, and the item that stood there."""

    refused: tuple[bool, ...]
    items: tuple[Item | None, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answered to a request.

    Attributes:
        response: the reply, or that of the error which refused it.
        received: when it came.
        perhaps_applied: whether an attempt has written, or may have.
        items: of an applied request.
        refusal, error: of a refused one; the error as the SDK raised it.
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
    """What came back.

    Attributes:
        applied: False when a condition did not hold (or when nobody waits for the answer to a callback task any more).
        items: of a Read the items; of an applied Write what it returns; of a refused Write the item that refused it;
            of a refused TransactWrite one entry a write. None stands for "no such item" and "not asked for".
        refused: of a refused TransactWrite, which of its writes were refused.
        now: the moment of the reply.
        last_key: of a Read, where to go on; None at the end.
        repeated: of a refusal, whether an earlier attempt of the same request may have been applied, and the refusal
            be due to it.
        unanswered: whether an earlier attempt had no answer, and may be on its way still.
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
