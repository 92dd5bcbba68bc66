"""Actions that a performer performs: a call of an SDK's client, or a sleep."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from inspect import GEN_CLOSED, GEN_CREATED, getgeneratorstate
from typing import Any, Generic, Literal, TypeVar

from ticketlock.errors import TicketLockError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an SDK's client.

    Attributes:
        service: the client: DynamoDB or Step Functions.
        operation: the method, in snake case.
        parameters: its keyword arguments.
    """

    service: Literal["dynamodb", "stepfunctions"]
    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
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

    def take(self, raised: BaseException) -> None:
        """Record what was raised since ``next``.

        Raises:
            BaseException: the same error, if it has ended the generator.
        """
        if getgeneratorstate(self._actions) != GEN_CLOSED:
            # The generator treats a TicketLockError as an answer; this one is not.
            self._error = NoAnswer(raised) if isinstance(raised, TicketLockError) else raised
            return
        # The error's traceback refers to the performing frame, which refers to this object: break the cycle.
        self._error = None
        if isinstance(raised, NoAnswer):
            raise raised.error from None
        raise raised
