"""Transactions in steps: other requests may be performed between any two of them.

They follow the description of DynamoDB's in "Distributed Transactions at Scale in Amazon DynamoDB"
(https://www.usenix.org/conference/atc23/presentation/idziorek). One that writes is prepared item by item: its condition
is checked, and the item is reserved. Then it is decided, and then applied item by item, in no particular order. Until
an item is changed, a plain read returns its old state, so two plain reads may see half a transaction. Writes and other
transactions are refused while the item is reserved. A transaction that reads reserves nothing: it reads all of its
items, and then checks whether any of them was changed or reserved meanwhile.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from ticketlock._expressions import size_of
from ticketlock.testing import _requests
from ticketlock.testing._capacity import IN_A_TRANSACTION, Meter, read_units
from ticketlock.testing._parameters import check_count
from ticketlock.testing._refusals import Mismatched, Reason, Refused, cancelled, conflict_reason, error_of, invalid
from ticketlock.testing._tables import Change, ItemId, MemoryTables, Parameters, Reply, check_size_of_transaction

_MOST_ACTIONS = 100
_LONGEST_TOKEN = 36

_Action = TypeVar("_Action", _requests.ItemRead, _requests.ItemWrite)
TransactionSteps = Generator[None, None, Reply]
"""Yields between any two steps; returns the reply, or raises Refused."""


class InSteps:
    """A transaction that the service has received and performs step by step; ``MemoryDynamoDB.in_steps`` makes it.

    A TransactWriteItems of n actions has 2n + 1 steps: n check one condition each and reserve its item, one decides,
    and n change one item each. A TransactGetItems of n items has 2n: n read one each, and n check whether it has
    changed. A transaction that is refused ends earlier.

    It does not need its sender: it belongs to the service, and is in ``MemoryDynamoDB.ongoing`` until it is over.

    Attributes:
        operation: ``"TransactWriteItems"`` or ``"TransactGetItems"``.
        is_over: whether the service has finished it: all is applied or read, or it is refused.
    """

    def __init__(
        self,
        operation: str,
        lock: threading.RLock,
        steps: Generator[None, None, Reply],
        *,
        ends: Callable[["InSteps"], None],
        replies: Callable[[int, Reply], tuple[int, Reply]],
    ) -> None:
        self.operation = operation
        self.is_over = False
        self._lock = lock
        self._steps = steps
        self._ends = ends
        self._replies = replies
        self._outcome: tuple[int, Reply] = (0, {})

    def step(self) -> bool:
        """Perform one step; False if it is over."""
        with self._lock:
            if self.is_over:
                return False
            try:
                next(self._steps)
            except StopIteration as end:
                self._finish(200, end.value)
            except Refused as refused:
                self._finish(400, refused.failure())
            except BaseException:
                # What `comes_next` raises is not a reply of the service.
                self._finish(500, {})
                raise
            return not self.is_over

    def finish(self) -> Any:
        """Perform all steps that are left, and return its reply as the client's method does.

        Raises:
            ClientError: it is refused.
            ReadTimeoutError: it has met the fault that its reply is lost.
        """
        with self._lock:
            self._go_to_the_end()
            status, reply = self._replies(*self._outcome)
        if status >= 300:
            raise error_of(reply, self.operation)
        return reply

    def _go_to_the_end(self) -> None:
        while self.step():
            pass

    def _finish(self, status: int, reply: Reply) -> None:
        self._outcome = status, reply
        self.is_over = True
        self._ends(self)


def at_once(steps: TransactionSteps) -> Reply:
    """Perform all steps of a transaction, without another request in between."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            reply: Reply = end.value
            return reply


def transact_write_items(tables: MemoryTables, parameters: Parameters) -> TransactionSteps:
    """TransactWriteItems: all of the writes, or none of them.

    One step for each write prepares it, the next step decides, and then one step for each write applies it.
    """
    items, token, transactions = _actions(parameters), parameters.get("ClientRequestToken"), tables.transactions
    if token is not None:
        _check_token(token)
        done = transactions.applied(token, items)
        if done is not None:
            return _told_again(parameters, done)
    writes = _matched(_requests.writes_of_a_transaction(tables, items))
    check_size_of_transaction(len(writes), (write.payload for write in writes))
    transactions.begins(token, items)
    taken: list[ItemId] = []
    try:
        plans: list[_requests.WritePlan] = []
        reasons: list[Reason | None] = []
        for write in writes:
            # If another transaction has reserved the item, nothing else is checked.
            reason: Reason | None = conflict_reason()
            if not transactions.is_at_work(write.item):
                plan = write.planned()
                plans.append(plan)
                reason = plan.reason
            if reason is None:
                transactions.takes(write.item)
                taken.append(write.item)
            reasons.append(reason)
            yield
        _check_reasons(reasons)
    except BaseException:
        # Refused or abandoned: the items that it has reserved are free again.
        transactions.note_refusal(token, taken)
        raise
    named = [(next(iter(action.values()))["TableName"], plan) for action, plan in zip(items, plans, strict=True)]
    while plans:
        yield
        plan = plans.pop(transactions.comes_next(len(plans)))
        plan.carry_out()
        transactions.note_change(plan.item)
    transactions.note_completion(token, [(name, plan.before, plan.after) for name, plan in named])
    return _told(parameters, named)


def _told(parameters: Parameters, named: Sequence[tuple[str, Any]]) -> Reply:
    """What the reply to a transaction that writes tells of its writes, by the names of their tables."""
    meter = Meter(parameters, "Write")
    for name, plan in named:
        meter.take_write(name, plan.table.indexes.values(), plan.before, plan.after, IN_A_TRANSACTION)
    collections = _requests.collections_of(parameters, named)
    return {**meter.of_all(), **({"ItemCollectionMetrics": collections} if collections else {})}


def _told_again(parameters: Parameters, changes: Sequence[Change]) -> Reply:
    """The reply to a repetition, which has only read the items.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """
    meter = Meter(parameters, "Read")
    if meter.counts:
        for name, before, after in changes:
            size = max(size_of(before or {}), size_of(after or {}))
            meter.take(name, IN_A_TRANSACTION * read_units(size, is_consistent=True))
    return meter.of_all()


def transact_get_items(tables: MemoryTables, parameters: Parameters) -> TransactionSteps:
    """TransactGetItems: all of the items as they stood at one moment, or none of them.

    One step for each item reads it, and then one step for each item checks it again.
    """
    reads = _matched(_requests.reads_of_a_transaction(tables, _actions(parameters)))
    with tables.watched() as changed:
        found, reasons = [], []
        for read in reads:
            changed.discard(read.item)
            found.append(read.found())
            reasons.append(conflict_reason() if tables.transactions.is_at_work(read.item) else None)
            yield
        _check_reasons(reasons)
        again: list[Reason | None] = []
        for read in reads:
            if again:
                yield
            has_met = read.item in changed or tables.transactions.is_at_work(read.item)
            again.append(conflict_reason() if has_met else None)
        _check_reasons(again)
    check_size_of_transaction(len(found), found)
    meter = Meter(parameters, "Read")
    if meter.counts:
        for action, item in zip(parameters["TransactItems"], found, strict=True):
            units = IN_A_TRANSACTION * read_units(size_of(item or {}), is_consistent=True)
            meter.take(action["Get"]["TableName"], units)
    return {"Responses": [read.reply(item) for read, item in zip(reads, found, strict=True)], **meter.of_all()}


def _actions(parameters: Parameters) -> Sequence[Any]:
    items: Sequence[Any] = parameters["TransactItems"]
    check_count("transactItems", len(items), _MOST_ACTIONS, [*items])
    return items


def _check_token(token: str) -> None:
    if not 1 <= len(token) <= _LONGEST_TOKEN:
        raise invalid(f"Value at 'clientRequestToken' must have 1 to {_LONGEST_TOKEN} characters, and has {len(token)}")


def _matched(actions: Sequence[_Action | Mismatched]) -> list[_Action]:
    """All actions, if each matches its table: of others only the first is told, and no condition is judged."""
    found = [action for action in actions if not isinstance(action, Mismatched)]
    if len({action.item for action in found}) < len(found):
        raise invalid("Transaction request cannot include multiple operations on one item")
    wrong = next((action for action in actions if isinstance(action, Mismatched)), None)
    if wrong is not None:
        reason = {"Code": "ValidationError", "Message": wrong.message}
        raise cancelled([reason if action is wrong else {"Code": "None"} for action in actions])
    return found


def _check_reasons(reasons: Sequence[Reason | None]) -> None:
    if any(reason is not None for reason in reasons):
        raise cancelled([reason if reason is not None else {"Code": "None"} for reason in reasons])
