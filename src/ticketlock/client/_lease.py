"""Leases of the client for threads: one, and several that are held together."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ticketlock._checks import Seconds
from ticketlock.client._arguments import Acquisition
from ticketlock.client._base_lease import BaseLease, StaysHere
from ticketlock.client._blocks import Block
from ticketlock.client._holdings import TRANSACTION_PATIENCE_S, Holdings
from ticketlock.client._under_way import UnderWay
from ticketlock.errors import LockLost
from ticketlock.locks import Claim, Grant, LockTable
from ticketlock.wire import Actions, Clocks, check_is_client

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class Lease(BaseLease):
    """A held lock. Use it in ``with``: its end releases the lock, and exceptions from the block pass through."""

    def __init__(
        self,
        acquisition: Acquisition,
        grant: Grant,
        clocks: Clocks,
        table: LockTable,
        holdings: "Holdings[Lease]",
        under_way: UnderWay,
    ) -> None:
        super().__init__(table.table_name, acquisition, grant, clocks)
        self._table, self._holdings, self._under_way = table, holdings, under_way

    def renew(self) -> None:
        """Give the lock a full new lease now.

        A call that begins before the lease's end sends nothing after it. One that begins after the end asks the table,
        unless the loss was told before: the lease may be over here and not yet there.

        Raises:
            LockLost: the lock is no longer held, or its lease ended before the table answered.
            TableError: the table could not be used; the lease keeps the end that it had: `is_held` says whether it
                still runs.
        """
        self._check_held()
        self._table.drive(self._holdings.renew(self))

    def extend(self, seconds: Seconds) -> datetime:
        """Let this lease last for so long from now on, once: the heartbeat next renews it half a lease before that end.

        Nothing shortens the lease: if it, or a full new lease, would end later, that end counts.

        Args:
            seconds: 1 second to 7 days.

        Returns:
            The new ``deadline``.

        Raises:
            LockLost: as from ``renew``.
            InvalidLockRequest: ``seconds`` is out of its bounds; nothing was written.
            TableError: as from ``renew``.
        """
        self._table.drive(self._holdings.extend(self, seconds))
        return self.deadline

    def ensure(self, at_least: Seconds) -> None:
        """Make sure that the lock is held for this long from now on; renew it if necessary.

        Args:
            at_least: seconds; up to three quarters of the lease are left after each renewal.

        Raises:
            LockLost: as from ``renew``.
            InvalidLockRequest: the lock is held, but a renewal does not give it that long.
            TableError: the table could not be used, and the lease ends earlier than that, or has ended.
        """
        self._table.drive(self._holdings.ensure(self, at_least))

    def set_data(self, data: str | None) -> None:
        """Replace the data that is shown beside the holder, up to 1,024 bytes; None removes it.

        Raises:
            LockLost: the lock is no longer held.
        """
        self._table.drive(self._holdings.set_data(self, data))

    def transact_write(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        client: "DynamoDBClient | None" = None,
        patience: Seconds = TRANSACTION_PATIENCE_S,
    ) -> None:
        """Write in one transaction with the check that this lock is held; retry while waiters' writes conflict with it.

        Args:
            items: up to 99 items of ``TransactWriteItems``, in the low-level format.
            client: a DynamoDB client with permission to write them; by default the lock's own.
            patience: for how long to retry; never longer than four minutes, so that DynamoDB cannot apply it twice.

        Raises:
            LockLost: the lock is no longer held with this token; nothing was written.
            InvalidLockRequest: ``items`` is not a valid list of TransactWriteItems.
            ClientError: DynamoDB's, because another condition did not hold; nothing was written.
            OutcomeUnknown: an attempt was not answered, and may be applied still, also if a condition of yours refused
                a later attempt.
            TableError: the table could not be used.
        """
        dynamodb = client if client is not None else self._table.client
        check_is_client(dynamodb)
        self._table.drive(self._holdings.transact_write(self, items, dynamodb, patience), dynamodb=dynamodb)

    def release(self, *, data_left: str | None = None, best_effort: bool = False) -> None:
        """Free the lock. A lock that is held several times is freed by the last release. Releasing it again does
        nothing.

        Args:
            data_left: up to 1,024 bytes, which the next holder gets as ``data_left``; not stored if the lock stays held
                for its ``hold_at_least``.
            best_effort: log an error instead of raising it.

        Raises:
            InvalidLockRequest: ``data_left`` is too long; the lock is still held.
            LockLost: the lease had ended before, or another client has freed the lock; another owner may have held it
                since.
            TableError: the table could not be used; the lease runs until its end.
        """
        again = self._again
        try:
            self._check_process()
            self._under_way.release(self._holdings.release(self, data_left, best_effort=best_effort))
        except BaseException as error:
            self._mark_interrupted(error, again)
            raise

    def detach(self) -> None:
        """Leave the lock held, also at the end of ``with``, for another process (``LockClient.resume``)."""
        self._holdings.detach(self)

    def _give_back(self) -> None:
        self._under_way.release(self._holdings.give_back(self))

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        block: Block | None = None,
    ) -> None:
        again: tuple[Claim, ...] | None = self._again
        try:
            ends_it = self._leave(block)
            if not ends_it:
                # It is renewed on, also after an interrupt.
                again = None
            if self._is_left():
                return
            self._under_way.release(self._holdings.leave_block(self, error, ends_it=ends_it))
        except BaseException as raised:
            self._mark_interrupted(raised, again)
            raise

    def _begin(self) -> Block:
        self._check_may_be_entered()
        try:
            return self._enter()
        except BaseException as error:
            # No one is in the block.
            self.__exit__(type(error), error, None)
            raise


class LeaseGroup(StaysHere):
    """Several locks that are held together. Use it in ``with``.

    Attributes:
        leases: in the order in which they were acquired.
    """

    def __init__(self, leases: Sequence[Lease], holdings: Holdings[Lease], under_way: UnderWay) -> None:
        self.leases = tuple(leases)
        self._holdings, self._under_way = holdings, under_way

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {list(self.leases)}>"

    def is_held(self) -> bool:
        """Whether the holder may rely on all of them now."""
        return all(lease.is_held() for lease in self.leases)

    def release(self) -> None:
        """Free them all, the last one first.

        Raises:
            LockLost, TableError: from the first one that could not be released; the others were released.
        """
        before = None
        try:
            before = [lease._again for lease in self.leases]
            self._each(lambda lease: self._holdings.release(lease))
        except BaseException as error:
            self._mark_interrupted(error, before)
            raise

    def __enter__(self) -> Self:
        try:
            for lease in self.leases:
                lease._check_may_be_entered()
        except LockLost:
            self._each(lambda lease: self._holdings.release(lease, best_effort=True))
            raise
        try:
            self._enter()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        before = None
        try:
            before = [lease._again for lease in self.leases]
            ends_it = self._leave()
            if all(lease._is_left() for lease in self.leases):
                return
            self._each(lambda lease: self._holdings.leave_block(lease, error, ends_it=ends_it[lease]))
        except BaseException as raised:
            self._mark_interrupted(raised, before)
            raise

    def _enter(self, within: FrameType | None = None) -> None:
        for lease in self.leases:
            lease._enter(within)

    def _leave(self) -> dict[Lease, bool]:
        return {lease: lease._leave() for lease in reversed(self.leases)}

    def _mark_interrupted(self, error: BaseException, before: Sequence[tuple[Claim, ...]] | None) -> None:
        for at, lease in enumerate(self.leases):
            # Without `before` nothing had changed.
            lease._mark_interrupted(error, lease._again if before is None else before[at])

    def _each(self, end: Callable[[Lease], Actions[None]]) -> None:
        self._under_way.release(self._holdings.each(self.leases, end))
