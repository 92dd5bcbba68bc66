"""What a performer does: a call of an SDK's client, or a sleep."""

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
        service: which client.
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
    """Several courses of actions at once: what comes of each, its result or the ``TableError`` that it ended with.

    Attributes:
        courses: generators of actions that were not begun.
    """

    courses: "tuple[Actions[Any], ...]"


Actions = Generator[Call | Sleep | Fork, Any, T]
"""Yields calls and sleeps; is sent what a call returned, or thrown what it raised; returns its result."""


class NoAnswer(BaseException):
    """What a caller's own ``sleep`` has raised, or an error of ours that a signal handler has.

    It is no answer of a service, so nothing on the way takes it for one.

    Attributes:
        error: what it has raised.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Course(Generic[T]):
    """Actions while they are performed: hands them whatever became of the last one, until they have ended.

    Whatever is raised meanwhile, and wherever, a user's interrupt or a cancellation too, is thrown into them: the steps
    have their own ends. So no interrupt leaves a release half done, with nobody left to repeat it.

    Attributes:
        answer: of the last call.
        result: what they have returned.
    """

    def __init__(self, actions: Actions[T]) -> None:
        self.answer: Any = None
        self.result: T
        self._actions = actions
        self._error: BaseException | None = None

    def next(self) -> Call | Sleep | Fork | None:
        """What to perform next; None once they have returned."""
        try:
            if self._error is None:
                action = self._actions.send(self.answer)
            else:
                if getgeneratorstate(self._actions) == GEN_CREATED:
                    # What has not begun has no ends yet.
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
            # They have ended without an action, and would not have caught it.
            assert self._error is not None
            raise self._error from None

    def take(self, raised: BaseException) -> None:
        """Take in what was raised since ``next``.

        Raises:
            BaseException: the same, where the actions have ended by it.
        """
        if getgeneratorstate(self._actions) != GEN_CLOSED:
            # Of these the actions themselves raise all that are answers.
            self._error = NoAnswer(raised) if isinstance(raised, TicketLockError) else raised
            return
        # An error has the frame that performs in its traceback, which has this.
        self._error = None
        if isinstance(raised, NoAnswer):
            raise raised.error from None
        raise raised
