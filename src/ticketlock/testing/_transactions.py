"""What a service remembers of transactions: which were applied, by their tokens, and which are still at work.

As it is documented: a token is valid for ten minutes after its first request is completed
(https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html), and an item that a
transaction is at work on refuses other writes
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ticketlock.testing._faults import Refused

_TOKEN_VALID_MS = 600_000


@dataclass(frozen=True, slots=True)
class _Done:
    items: Any
    at_ms: int


class Transactions:
    """The transactions of a service.

    Args:
        wall_ms: the service's time.
        take_ms: for how long each is at work on its items. What it changes is seen from its beginning, and its sender
            is answered at once: it meets a conflict as well if it writes again before.
    """

    def __init__(self, wall_ms: Callable[[], int], take_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._take_ms = take_ms
        self._done: dict[str, _Done] = {}
        self._at_work_until_ms: dict[Any, int] = {}

    def was_done(self, token: str, items: Any) -> bool:
        """Whether a transaction with the token was applied; it stays so for ten minutes.

        Raises:
            Refused: IdempotentParameterMismatchException: it was, and was another one. TransactionInProgressException:
                it is still at work.
        """
        done = self._done.get(token)
        now_ms = self._wall_ms()
        if done is None or now_ms >= done.at_ms + _TOKEN_VALID_MS:
            return False
        if done.items != items:
            message = "The request was sent before, with the same token and other parameters"
            raise Refused("IdempotentParameterMismatchException", message)
        if self._take_ms > 0 and now_ms < done.at_ms:
            message = "The transaction with the given request token is already in progress."
            raise Refused("TransactionInProgressException", message)
        return True

    def is_at_work(self, key: Any) -> bool:
        """Whether a transaction is at work on the item of this key."""
        return self._take_ms > 0 and self._at_work_until_ms.get(key, 0) > self._wall_ms()

    def note_applied(self, token: str | None, items: Any, keys: Iterable[Any]) -> None:
        """Remember a transaction that was applied."""
        now_ms = self._wall_ms()
        until_ms = now_ms + self._take_ms
        if self._take_ms > 0:
            others = {key: over_ms for key, over_ms in self._at_work_until_ms.items() if over_ms > now_ms}
            self._at_work_until_ms = {**others, **dict.fromkeys(keys, until_ms)}
        if token is None:
            return
        # One that is remembered again, after ten minutes, is the last.
        self._done.pop(token, None)
        self._done[token] = _Done(items, until_ms)
        while (oldest := next(iter(self._done))) != token and now_ms >= self._done[oldest].at_ms + _TOKEN_VALID_MS:
            del self._done[oldest]
