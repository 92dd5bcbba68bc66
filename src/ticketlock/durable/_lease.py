"""What a block has in its hands: the lease, and steps that run under it.

What an execution decides by must be the same at each replay: so the attributes of a lease are recorded values, and what
the table answers now is the result of an operation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Concatenate, ParamSpec, TypeVar

from ticketlock._decorating import signature_of
from ticketlock.durable._holding import DurableHolding
from ticketlock.durable._sdk import (
    DurableContext,
    StepConfig,
    StepContext,
    as_shown,
    check_context,
    check_name,
    with_outcome,
)
from ticketlock.errors import InvalidLockRequest, LockLost
from ticketlock.locks import Claim, Fence, LockName, Session
from ticketlock.units import unit_name

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class LockedStep(StepContext):
    """What a body gets that runs while the lock is held: the SDK's context of a step, and the lock.

    Attributes:
        attempt, logger: as of the SDK.
        fence: the lock with its fencing token, for ``units.begin(under=...)``.
        remaining: for how long the lock is surely held unless it is renewed, in seconds; asks no one.
    """

    fence: Fence
    remaining: Callable[[], float]

    @property
    def fencing_token(self) -> int:
        """Greater than that of every earlier grant of the lock."""
        return self.fence.fencing_token


class DurableLease:
    """A lock that an execution holds until the end of its ``with`` block, over any number of suspensions.

    Attributes:
        lock: the lock's name.
        owner: the holder: the execution, and the operation by which it began.
        fencing_token: greater than that of every earlier grant of the lock.
        fence: the lock, for ``units.begin(under=...)`` in the body of a step.
    """

    def __init__(
        self, holding: DurableHolding, context: Any, claim: Claim, session: Session, name: str, fence: Fence
    ) -> None:
        self.lock: LockName = claim.lock
        self.owner = claim.owner
        self.fencing_token = fence.fencing_token
        self.fence = fence
        self._holding = holding
        self._context = context
        self._session = session
        self._name = name

    def step(
        self,
        func: Callable[Concatenate[LockedStep, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """A step of the execution that runs only while the lock is held: ``func(step, *args, **kwargs)``.

        The end of the block, and a suspension, wait until its body has ended. ``within`` gives it another context, or a
        configuration of the SDK's.

        Raises:
            LockLost: the lock was lost before the body began; the body has not run in this try, and may have in an
                earlier one: if it has committed a unit, ``units.outcome`` says so.
        """
        return self.within().step(func, *args, **kwargs)

    def check(self) -> None:
        """An operation that makes sure that the lock is held.

        Raises:
            LockLost: it is not.
        """
        self.within(name=f"{self._name}: check").step(_nothing)

    def within(
        self, context: DurableContext | None = None, *, name: str | None = None, config: StepConfig | None = None
    ) -> "LockedSteps":
        """The same lock for steps with other settings.

        Args:
            context: of the branch, or child, in which the steps are called: a replay fails otherwise, or mixes results
                up. None for that of ``hold``.
            name: of the operation, in printable ASCII, up to 256 characters; None for the function's own.
            config: retries, semantics and serialisation of a step, as of the SDK.

        Raises:
            InvalidLockRequest: the context is none, or Lambda does not take the name.
        """
        if context is not None:
            check_context(context)
        if name is not None:
            check_name(name)
        return LockedSteps(self._holding, self.fence, self._context if context is None else context, name, config)

    def unit_name(self, *item: str | int) -> str:
        """The name of a unit of work that this hold commits once, however often its step is run.

        Args:
            item: distinguishes the units of one hold.
        """
        return unit_name(self._session.execution, self._session.fragment, *item)

    def __repr__(self) -> str:
        return f"<DurableLease {self.lock.entity!r} in {self.lock.namespace!r}, fencing token {self.fencing_token}>"


@dataclass(frozen=True)
class LockedSteps:
    """Steps under a lock, with their settings; ``DurableLease.within`` returns it."""

    _holding: DurableHolding
    _fence: Fence
    _context: Any
    _name: str | None
    _config: StepConfig | None

    def step(self, func: Callable[Concatenate[LockedStep, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As ``DurableLease.step``, with these settings."""
        if not callable(func):
            raise InvalidLockRequest("func", repr(func), "a function whose first argument is the LockedStep")
        _check_call(func, args, kwargs)

        def body(step: StepContext) -> dict[str, Any]:
            with self._holding.body() as why_lost:
                if why_lost is not None:
                    return {"lost": why_lost}
                of_the_sdk = {each.name: getattr(step, each.name) for each in fields(StepContext)}
                locked = LockedStep(**of_the_sdk, fence=self._fence, remaining=self._holding.remaining_s)
                return {"done": func(locked, *args, **kwargs)}

        name = self._name if self._name is not None else _name_of(func)
        found = self._context.step(body, name=name, config=with_outcome(self._config))
        if "lost" in found:
            raise LockLost(found["lost"])
        done: T = found["done"]
        return done


def _name_of(func: Callable[..., object]) -> str | None:
    """The name that the SDK would show: of what ``durable_step`` has made, that of the function in it."""
    return as_shown(getattr(func, "_original_name", getattr(func, "__name__", ""))) or None


def _check_call(func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Refuse a call that each try of the step would fail with.

    Raises:
        InvalidLockRequest: the function does not take these arguments after the ``LockedStep``.
    """
    try:
        signature = signature_of(func)
    except (TypeError, ValueError):
        # Some that are written in C tell none.
        return
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        allowed = (
            f"a function that takes the LockedStep and then the other arguments ({error}); a name and a configuration "
            "of the operation go to lease.within(name=..., config=...)"
        )
        raise InvalidLockRequest("func", f"{_name_of(func) or repr(func)}{signature}", allowed) from None


def _nothing(_: LockedStep) -> None:
    return None
