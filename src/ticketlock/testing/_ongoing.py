"""What a service remembers of transactions: which were applied, by their tokens, and which are in progress.

As documented, a token is valid for ten minutes after its first request is completed
(https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html), and an item that a
transaction is in progress on refuses other writes
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling).
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

from ticketlock.testing._faults import Refused

_TOKEN_VALID_MS = 600_000


@dataclass(frozen=True, slots=True)
class _Known:
    """The transaction of a token.

    Attributes:
        said: a copy of the parameters of its request, which later changes by the sender do not affect.
        at_ms: when it was applied, if that is known.
    """

    said: str
    at_ms: float


def _the_first(_left: int) -> int:
    return 0


class Transactions:
    """The transactions of a service.

    Args:
        wall_ms: the service's time.
        take_ms: for how long each stays in progress after it has changed its items. Its sender is answered at once, and
            meets a conflict as well if it writes again too early.

    Attributes:
        comes_next: from the number of items left, the position of the one that is changed next.
    """

    def __init__(self, wall_ms: Callable[[], int], take_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._take_ms = take_ms
        self.comes_next: Callable[[int], int] = _the_first
        self._known: dict[str, _Known] = {}
        self._at_work_until_ms: dict[Any, float] = {}

    def was_applied(self, token: str, items: Any) -> bool:
        """Whether a transaction with the token was applied; known for ten minutes.

        Raises:
            Refused: IdempotentParameterMismatchException: the token's transaction was a different one.
                TransactionInProgressException: it is still in progress.
        """
        known = self._known.get(token)
        now_ms = self._wall_ms()
        if known is None or now_ms >= known.at_ms + _TOKEN_VALID_MS:
            return False
        if known.said != _said(items):
            message = "The request was sent before, with the same token and other parameters"
            raise Refused("IdempotentParameterMismatchException", message)
        if now_ms < known.at_ms:
            message = "The transaction with the given request token is already in progress."
            raise Refused("TransactionInProgressException", message)
        return True

    def is_at_work(self, item: Any) -> bool:
        """Whether a transaction is in progress on this item."""
        # Usually none is.
        return bool(self._at_work_until_ms) and self._at_work_until_ms.get(item, 0) > self._wall_ms()

    def begins(self, token: str | None, items: Any) -> None:
        """Note that a transaction is in progress."""
        if token is not None:
            # A token that is used again after ten minutes moves to the end.
            self._known.pop(token, None)
            self._known[token] = _Known(_said(items), inf)

    def takes(self, item: Any) -> None:
        """Reserve an item for a transaction, for as long as it is in progress."""
        self._at_work_until_ms[item] = inf

    def was_refused(self, token: str | None, taken: Iterable[Any]) -> None:
        """Forget a transaction that was not applied."""
        self.forgets(token)
        for item in taken:
            del self._at_work_until_ms[item]

    def has_changed(self, item: Any) -> None:
        """A transaction has finished one of its items, and continues with the others."""
        if self._take_ms > 0:
            self._at_work_until_ms[item] = self._wall_ms() + self._take_ms
        else:
            del self._at_work_until_ms[item]

    def was_completed(self, token: str | None) -> None:
        """A transaction has finished all of its items."""
        now_ms = self._wall_ms()
        if self._take_ms > 0:
            self._at_work_until_ms = {item: at_ms for item, at_ms in self._at_work_until_ms.items() if at_ms > now_ms}
        if token is None:
            return
        said = self._known.pop(token).said
        self._known[token] = _Known(said, now_ms + self._take_ms)
        while (oldest := next(iter(self._known))) != token and now_ms >= self._known[oldest].at_ms + _TOKEN_VALID_MS:
            del self._known[oldest]

    def forgets(self, token: str | None) -> None:
        """Forget a token, as if it had never been used."""
        if token is not None:
            self._known.pop(token, None)


def _said(items: Any) -> str:
    return json.dumps(items, sort_keys=True, default=repr)
