"""How the engines of the tests behave, tested one by one; docs/engines.md says what of it matters for a lock.

    PYTHONPATH=tests python benchmarks/differences.py

Takes about five minutes, since it waits for TTL. An engine that does not start is reported and left out: dynoxide if
cargo cannot build it. If an engine fails at a question, the answer is the error's name.
"""

import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from botocore.exceptions import ClientError
from kit.engines import Engine, engine_named
from rich.console import Console
from rich.table import Table
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.dynoxide import dynoxide
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import LocalCloudError

THREADS = 8
EACH = 50
TTL_WAIT_S = 75
THROUGHPUT_S = 2.0
_KB = 1_024


class Subject:
    """An engine under test, and its table."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.client: Any = engine.client()
        self.table = {"TableName": engine.table_name}

    def key(self) -> dict[str, Any]:
        """The key of an item that does not exist yet."""
        return {"pk": {"S": uuid.uuid4().hex}, "sk": {"S": "-"}}

    def put(self, item: Mapping[str, Any], **more: Any) -> Any:
        """Store an item."""
        return self.client.put_item(**self.table, Item=item, **more)

    def add(self, key: Mapping[str, Any], by: int = 1, **more: Any) -> Mapping[str, Any]:
        """One update that adds to the number ``n``, for UpdateItem or a transaction."""
        values = {":by": {"N": f"{by}"}, ":zero": {"N": "0"}}
        return {
            **self.table,
            "Key": key,
            "UpdateExpression": "SET n = if_not_exists(n, :zero) + :by",
            "ExpressionAttributeValues": values | more.pop("values", {}),
            **more,
        }

    def number(self, key: Mapping[str, Any]) -> int:
        """The value of ``n``."""
        found = self.client.get_item(**self.table, Key=key, ConsistentRead=True)
        return int(found.get("Item", {}).get("n", {"N": "0"})["N"])


def outcome(do: Callable[[], object]) -> str:
    """How a request ends: ``done``, or the error's name."""
    try:
        do()
    except Exception as error:  # an engine in this process raises its internal errors
        return _name(error)
    return "done"


def answer(ask: Callable[[], str]) -> str:
    """An engine's answer to a question, or the name of the error that it fails with."""
    try:
        return ask()
    except Exception as error:
        return _name(error)


def _name(error: Exception) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__


def in_threads(subject: Subject, do: Callable[[Any], object]) -> Counter[str]:
    """The outcomes of many requests at once; ``do`` gets a client."""

    def one_after_the_other(client: Any) -> Counter[str]:
        return Counter(outcome(lambda: do(client)) for _ in range(EACH))

    clients = [subject.engine.client() for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(one_after_the_other, clients), Counter())


def write_units(subject: Subject) -> str:
    """A PutItem of 3,000 bytes."""
    item = subject.key() | {"s": {"S": "x" * 2_900}}
    return _units(lambda: subject.put(item, ReturnConsumedCapacity="TOTAL"))


def read_units(subject: Subject) -> str:
    """A strongly consistent Query of 18 KB."""
    asked = {**subject.table, **_partition(subject, 6, 3 * _KB), "ConsistentRead": True}
    return _units(lambda: subject.client.query(**asked, ReturnConsumedCapacity="TOTAL"))


def _units(send: Callable[[], Any]) -> str:
    try:
        consumed = send().get("ConsumedCapacity")
    except NotImplementedError:
        consumed = None
    return "reports none" if consumed is None else f"{consumed['CapacityUnits']:g}"


def _partition(subject: Subject, items: int, size: int) -> dict[str, Any]:
    """Fill a partition; returns the parameters of its Query."""
    pk = subject.key()["pk"]
    for number in range(items):
        subject.put({"pk": pk, "sk": {"S": f"{number:04}"}, "s": {"S": "x" * size}})
    return {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": pk}}


def arithmetic(subject: Subject) -> str:
    """The first power of ten at which adding one is lost."""
    for power in range(15, 38):
        key = subject.key()
        subject.put(key | {"n": {"N": f"{10**power}"}})
        subject.client.update_item(**subject.add(key))
        if subject.number(key) != 10**power + 1:
            return f"lost from 10^{power}"
    return "exact to 10^37"


def lost_updates(subject: Subject) -> str:
    """Increments of one item from threads."""
    key = subject.key()
    done = in_threads(subject, lambda client: client.update_item(**subject.add(key)))
    return f"{done['done'] - subject.number(key)} of {done['done']}"


def conflicts(subject: Subject) -> str:
    """Transactions on one item from threads, and plain updates beside them."""
    key, turns = subject.key(), iter(range(10**9))

    def write(client: Any) -> None:
        if next(turns) % 2:
            client.update_item(**subject.add(key))
        else:
            client.transact_write_items(
                TransactItems=[{"Update": subject.add(key)}, {"Put": {**subject.table, "Item": subject.key()}}]
            )

    outcomes = in_threads(subject, write)
    lost = outcomes.pop("done", 0) - subject.number(key)
    refused = ", ".join(f"{count} {name}" for name, count in outcomes.items()) or "none refused"
    return f"{refused}, {lost} lost"


def same_token(subject: Subject) -> str:
    """A transaction sent twice with one ClientRequestToken, and once with other contents."""
    key, token = subject.key(), uuid.uuid4().hex

    def send(by: int) -> str:
        return outcome(
            lambda: subject.client.transact_write_items(
                TransactItems=[{"Update": subject.add(key, by)}], ClientRequestToken=token
            )
        )

    again = {send(1), send(1)}
    applied = subject.number(key)
    other = send(7)
    other = {"done": "applied", "IdempotentParameterMismatchException": "refused"}.get(other, other)
    return f"{'/'.join(again)}, applied {applied}x; other contents {other}"


def dates(subject: Subject) -> str:
    """Whether replies and errors have the service's time."""
    headers = [subject.put(subject.key())["ResponseMetadata"]["HTTPHeaders"]]
    for refused in (_refused_update, _refused_transaction):
        try:
            refused(subject)
        except ClientError as error:
            headers.append(error.response["ResponseMetadata"]["HTTPHeaders"])
    return ", ".join("date" if "date" in each else "NO DATE" for each in headers)


def _refused_update(subject: Subject) -> None:
    key = subject.key()
    subject.put(key | {"n": {"N": "5"}})
    subject.client.update_item(
        **subject.add(
            key, ConditionExpression="attribute_not_exists(pk)", ReturnValuesOnConditionCheckFailure="ALL_OLD"
        )
    )


def _refused_put(subject: Subject) -> None:
    key = subject.key()
    subject.put(key | {"n": {"N": "5"}})
    subject.put(key, ConditionExpression="attribute_not_exists(pk)", ReturnValuesOnConditionCheckFailure="ALL_OLD")


def _refused_delete(subject: Subject) -> None:
    key = subject.key()
    subject.put(key | {"n": {"N": "5"}})
    subject.client.delete_item(
        **subject.table,
        Key=key,
        ConditionExpression="attribute_not_exists(pk)",
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )


def _refused_transaction(subject: Subject) -> None:
    key = subject.key()
    subject.put(key | {"n": {"N": "5"}})
    refused = subject.add(
        key, ConditionExpression="attribute_not_exists(pk)", ReturnValuesOnConditionCheckFailure="ALL_OLD"
    )
    subject.client.transact_write_items(
        TransactItems=[{"Put": {**subject.table, "Item": subject.key()}}, {"Update": refused}]
    )


def old_items(subject: Subject) -> str:
    """Whether a refusal returns the old item: of Update, Put, Delete, and in a transaction."""
    found = []
    for refused in (_refused_update, _refused_put, _refused_delete, _refused_transaction):
        try:
            refused(subject)
        except ClientError as error:
            response: Any = error.response
            item = response.get("CancellationReasons", [{}])[-1].get("Item") or response.get("Item", {})
            found.append("yes" if item.get("n") == {"N": "5"} else "NO")
    return ", ".join(found)


def half_transactions(subject: Subject) -> str:
    """What a refused transaction leaves of its other writes."""
    first, second = subject.key(), subject.key()
    refused = subject.add(second, ConditionExpression="attribute_exists(pk)")
    outcome(
        lambda: subject.client.transact_write_items(TransactItems=[{"Update": subject.add(first)}, {"Update": refused}])
    )
    return "nothing" if subject.number(first) == 0 else "A WRITE"


def exact_limit(subject: Subject) -> str:
    """Whether a Query whose Limit is the number of items says that there may be more."""
    page = subject.client.query(**subject.table, **_partition(subject, 3, 10), Limit=3)
    return "may be more" if "LastEvaluatedKey" in page else "the end"


def page_size(subject: Subject) -> str:
    """How much of 1.5 MB a first page holds."""
    page = subject.client.query(**subject.table, **_partition(subject, 30, 50 * _KB))
    return f"{page['Count'] * 50} KB, {'continues' if 'LastEvaluatedKey' in page else 'the end'}"


def too_large(subject: Subject) -> str:
    """An item of more than 400 KB."""
    return outcome(lambda: subject.put(subject.key() | {"s": {"S": "x" * 401 * _KB}}))


def unused_value(subject: Subject) -> str:
    """A value that no expression uses."""
    request = subject.add(subject.key(), values={":unused": {"N": "1"}})
    return outcome(lambda: subject.client.update_item(**request))


def order_of_keys(subject: Subject) -> str:
    """Sort keys that UTF-8 and UTF-16 order differently."""
    pk = subject.key()["pk"]
    for text in ("\U0001f600", "\ufffd"):
        subject.put({"pk": pk, "sk": {"S": text}})
    page = subject.client.query(
        **subject.table, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": pk}
    )
    return "UTF-8" if page["Items"][0]["sk"]["S"] == "\ufffd" else "UTF-16"


def throughput(subject: Subject) -> str:
    """Updates a second, by one client and by several."""
    keys = [subject.key() for _ in range(THREADS)]
    clients = [subject.engine.client() for _ in keys]
    counts = []
    for many in (1, THREADS):
        ends = time.monotonic() + THROUGHPUT_S

        def run(client: Any, key: Mapping[str, Any], ends: float = ends) -> int:
            sent = 0
            while time.monotonic() < ends:
                client.update_item(**subject.add(key))
                sent += 1
            return sent

        with ThreadPoolExecutor(many) as pool:
            counts.append(sum(pool.map(run, clients[:many], keys[:many])) / THROUGHPUT_S)
    return f"{counts[0]:,.0f} / {counts[1]:,.0f}"


QUESTIONS: Sequence[tuple[str, str, Callable[[Subject], str]]] = (
    ("a write of 3,000 bytes: units", "3", write_units),
    ("a consistent Query of 18 KB: units", "5", read_units),
    ("adding 1 to a power of ten", "exact to 10^37", arithmetic),
    (f"increments lost, {THREADS} threads", "0", lost_updates),
    ("transactions, updates on one item at once", "TransactionConflict, 0 lost", conflicts),
    ("one ClientRequestToken twice", "done, applied 1x; other contents refused", same_token),
    ("Date on a reply, a refusal, a refused transaction", "date, date, date", dates),
    ("ALL_OLD from Update, Put, Delete, transaction", "yes, yes, yes, yes", old_items),
    ("a refused transaction leaves", "nothing", half_transactions),
    ("a Query with Limit = the number of items", "may be more", exact_limit),
    ("a page of 1.5 MB", "1 MB, continues", page_size),
    ("an item of 401 KB", "ValidationException", too_large),
    ("a value that no expression uses", "ValidationException", unused_value),
    ("the order of sort keys", "UTF-8", order_of_keys),
    (f"updates a second, 1 / {THREADS} threads", "-", throughput),
)
"""The question, AWS's documented answer, and the function that asks."""


def answers(engine: Engine) -> Iterator[str]:
    """An engine's answers to all questions, and when TTL deletes an item."""
    subject = Subject(engine)
    key, began = subject.key(), time.monotonic()

    def is_gone() -> str:
        while (passed_s := time.monotonic() - began) < TTL_WAIT_S and subject.number(key):
            time.sleep(1)
        return f"after {passed_s:.0f} s" if passed_s < TTL_WAIT_S else f"not in {TTL_WAIT_S} s"

    expires = outcome(lambda: _expire(subject, key))
    for _, _, ask in QUESTIONS:
        yield answer(partial(ask, subject))
    yield answer(is_gone) if expires == "done" else expires


def _expire(subject: Subject, key: Mapping[str, Any]) -> None:
    subject.client.update_time_to_live(
        **subject.table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiresAt"}
    )
    subject.put({**key, "n": {"N": "1"}, "expiresAt": {"N": f"{time.time() - 3_600:.0f}"}})


@contextmanager
def ministack() -> Iterator[str]:
    """Run one: its URL."""
    with Emulator() as running:
        yield running.endpoint


def main() -> int:
    """Ask and print."""
    console = Console(width=190)
    with ExitStack() as stack:
        urls = {}
        for start in (ministack, dynoxide):
            try:
                urls[start.__name__] = stack.enter_context(start())
            except LocalCloudError as error:
                print(f"Without {start.__name__}: {error}", file=sys.stderr)
        os.environ |= client_environment("")
        del os.environ["AWS_ENDPOINT_URL"]
        table = Table("asked", "documented")
        rows = [[text, documented] for text, documented, _ in QUESTIONS]
        rows.append(["an item an hour past its TTL goes", "within days"])
        try:
            for name in ("moto", "memory", *urls):
                table.add_column(name)
                with engine_named(name, urls.__getitem__) as engine:
                    for row, answer in zip(rows, answers(engine), strict=True):
                        row.append(answer)
        finally:
            # Also what was found before an interrupt.
            for row in rows:
                table.add_row(*row)
            console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
