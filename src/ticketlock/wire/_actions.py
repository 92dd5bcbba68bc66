"""Actions that a performer performs, a call of an SDK's client or a sleep; and the answers to them."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from inspect import GEN_CLOSED, GEN_CREATED, getgeneratorstate
from traceback import walk_tb
from typing import Any, ClassVar, Generic, Literal, TypeVar

from ticketlock._value import value
from ticketlock.errors import TicketLockError
from ticketlock.wire._table_time import Moment, Reading

Item = Mapping[str, Mapping[str, Any]]
"""An item in the low-level format: attribute name to {type: value}."""

TIME_TO_LIVE = "expiresAt"
"""The time to live attribute of all our tables: whole seconds since the epoch."""

T = TypeVar("T")


def number(value: int) -> dict[str, str]:
    """An integer in the low-level format."""
    return {"N": str(value)}


def integer(value: Mapping[str, Any]) -> int:
    """Read an integer attribute; engines may write large ones with an exponent."""
    try:
        return int(value["N"])
    except ValueError:
        return int(Decimal(value["N"]))


ServiceName = Literal["dynamodb", "stepfunctions", "lambda"]
"""An AWS service, as the SDK names it."""


@value(frozen=True, slots=True)
class Call:
    """One call of an SDK's client.

    Attributes:
        service: the client: DynamoDB, Step Functions or Lambda.
        operation: the method, in snake case.
        parameters: its keyword arguments.
    """

    service: ServiceName
    operation: str
    parameters: Mapping[str, Any]


@value(frozen=True, slots=True)
class Sleep:
    """Do nothing for a while."""

    ms: float


@dataclass(frozen=True, slots=True)
class Fork:
    """Several generators of actions to perform at once; each ends with its result or a ``TableError``.

    Attributes:
        courses: generators of actions that have not started.
    """

    courses: "tuple[Actions[Any], ...]"


Actions = Generator[Call | Sleep | Fork, Any, T]
"""Yields calls and sleeps; is sent what a call returned, or thrown what it raised; returns its result."""


class NoAnswer(BaseException):
    """Wraps an error of the caller's own ``sleep``, or a TicketLockError that a signal handler has raised.

    It is not an answer of a service, and the wrapper keeps the code in between from treating it as one.

    Attributes:
        error: the wrapped error.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


OURS = {"ticketlock"}
"""The packages whose code is ours. A test that performs steps itself, or replaces a part of them, adds its own."""


def is_foreign(error: BaseException) -> bool:
    """Whether an error that is caught here has passed through other code than ours.

    Such code runs between any two of our opcodes: a handler of signals, or of log records. It may use ticketlock, too,
    and raise an error of ours: that says nothing about the work that it has interrupted. Its own frames tell it apart,
    as the class does not.
    """
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").partition(".")[0] not in OURS for frame in frames)


def raise_if_foreign(error: BaseException) -> None:
    """Raise a foreign error again, which is treated as an interrupt."""
    if is_foreign(error):
        raise error


def briefly(error: BaseException) -> BaseException:
    """An error of ours without its traceback so far, if all its frames are ours: its message tells what was wrong.

    A bug, an interrupt, and an error that has passed through the caller's code keep all their frames; causes stay.
    """
    return error.with_traceback(None) if isinstance(error, TicketLockError) and not is_foreign(error) else error


class Course(Generic[T]):
    """A generator of actions that is being performed: passes it the outcome of each action until it ends.

    Anything raised in between, including an interrupt or a cancellation, is thrown into the generator, which then
    cleans up. So no interrupt leaves a release half done.

    Attributes:
        answer: the return value of the last call.
        result: what the generator returned.
    """

    def __init__(self, actions: Actions[T]) -> None:
        self.answer: Any = None
        self.result: T
        self._actions = actions
        self._error: BaseException | None = None

    def next(self) -> Call | Sleep | Fork | None:
        """The next action; None once the generator has returned."""
        try:
            if self._error is None:
                action = self._actions.send(self.answer)
            else:
                if getgeneratorstate(self._actions) == GEN_CREATED:
                    # Start it first: before its first action it has no clean-up to run.
                    self._begin()
                action = self._actions.throw(self._error)
        except StopIteration as end:
            self.result = end.value
            return None
        self.answer = self._error = None
        return action

    def _begin(self) -> None:
        try:
            next(self._actions)
        except StopIteration:
            # It ended without an action, and could not have caught the error.
            assert self._error is not None
            raise self._error from None

    def goes_on(self, raised: BaseException) -> bool:
        """Record what was raised since ``next``; return False if it has ended the generator: see ``end_by``.

        Also if Python has no frame left in which the generator could be told of it.
        """
        is_untold = isinstance(raised, RecursionError) and isinstance(self._error, RecursionError)
        if getgeneratorstate(self._actions) != GEN_CLOSED and not is_untold:
            # The generator treats a TicketLockError as an answer; this one is not.
            self._error = NoAnswer(raised) if isinstance(raised, TicketLockError) else raised
            return True
        # The error's traceback refers to the performing frame, which refers to this object: break the cycle.
        self._error = None
        return False

    @staticmethod
    def end_by(raised: BaseException) -> BaseException:
        """The error that the caller gets."""
        if isinstance(raised, NoAnswer):
            # As by `from None`.
            raised.error.__cause__ = None
            return raised.error
        return briefly(raised)


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


class NoClient(Exception):
    """A call for a service of which the caller has given no client; nothing was sent."""


class HasEnded(Exception):
    """What was to be answered, or described, is not there any more."""


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


@value(frozen=True, slots=True)
class Refusal:
    """A condition did not hold. For each write: whether it was refused, and the item that refused it."""

    refused: tuple[bool, ...]
    items: tuple[Item | None, ...]


@value(frozen=True, slots=True)
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


@value(frozen=True, slots=True)
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
        consumed: of a read that asked for it: the capacity units that each table took, as the service has told.
    """

    applied: bool
    items: tuple[Item | None, ...]
    now: Moment
    refused: tuple[bool, ...] = ()
    last_key: Item | None = None
    repeated: bool = False
    unanswered: bool = False
    consumed: Sequence[Mapping[str, Any]] = ()

    @property
    def units(self) -> float:
        """The capacity units of all tables."""
        return sum(float(each.get("CapacityUnits", 0)) for each in self.consumed)

    @property
    def item(self) -> Item | None:
        """The only or first item."""
        return self.items[0] if self.items else None
