"""Random transactions on the DynamoDB in memory, step by step beside each other: judged as a history from outside."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError
from kit.histories import Outcome, Transaction, anomalies
from testing.memory_requests import LOCKS, getting, key

from ticketlock.testing import InSteps, ManualClock, MemoryDynamoDB

SCHEDULES = 300
PARTIES = 6
CHANGES = 0.2
"""How likely another party goes on: more often, few transactions would end between two steps of another one."""
KEYS = "xyz"
Party = Generator[None, None, Transaction]


def elements(item: Any) -> list[int]:
    """The list that an item holds."""
    return [int(each) for each in item["list"]["S"].split()] if item else []


@dataclass
class Schedule:
    """Parties that go on in an order drawn from a seed.

    Attributes:
        now: how many turns there were.
    """

    choose: Random
    memory: MemoryDynamoDB = field(default_factory=lambda: MemoryDynamoDB(clock=ManualClock()))
    now: int = 0

    def history(self, parties: list[Party]) -> list[Transaction]:
        """What they did, with a reader of everything at the end."""
        return [*self._ended(parties), *self._ended([reader(self, PARTIES, list(KEYS))])]

    def _ended(self, parties: list[Party]) -> list[Transaction]:
        ended = []
        party = parties[0]
        while parties:
            if party not in parties or self.choose.random() < CHANGES:
                party = self.choose.choice(parties)
            self.now += 1
            try:
                next(party)
            except StopIteration as end:
                ended.append(end.value)
                parties.remove(party)
        return ended


def to_its_end(transaction: InSteps) -> Generator[None, None, Any]:
    """A transaction that others interrupt after each of its steps; None where it is refused."""
    while transaction.step():
        yield
    try:
        return transaction.finish()
    except ClientError as error:
        if error.response["Error"]["Code"] != "TransactionCanceledException":
            raise
        return None


def reader(schedule: Schedule, number: int, sks: list[str]) -> Party:
    """Reads several lists in one transaction."""
    begin = schedule.now
    transaction = schedule.memory.in_steps("transact_get_items", TransactItems=[*map(getting, sks)])
    reply = yield from to_its_end(transaction)
    found = [elements(each.get("Item")) for each in reply["Responses"]] if reply is not None else []
    outcome: Outcome = "aborted" if reply is None else "committed"
    return Transaction(
        id=f"r{number}", begin=begin, end=schedule.now, outcome=outcome, reads=dict(zip(sks, found, strict=False))
    )


def reader_of_single_items(schedule: Schedule, number: int, sks: list[str]) -> Party:
    """Takes for one moment what it reads one by one."""
    begin, reads = schedule.now, {}
    for sk in sks:
        reads[sk] = elements(schedule.memory.get_item(**LOCKS, Key=key(sk)).get("Item"))
        yield
    return Transaction(id=f"r{number}", begin=begin, end=schedule.now, reads=reads)


def writer(schedule: Schedule, number: int, sks: list[str], *, checks_reads: bool = True) -> Party:
    """Reads lists one by one and appends to all of them but the last, if all are as it has seen them."""
    begin, reads, actions = schedule.now, {}, []
    for sk in sks:
        item: Any = schedule.memory.get_item(**LOCKS, Key=key(sk)).get("Item")
        reads[sk] = elements(item)
        asked: Any = {**LOCKS, "ConditionExpression": "attribute_not_exists(pk)"}
        if item:
            asked["ConditionExpression"] = "#list = :seen"
            asked["ExpressionAttributeNames"] = {"#list": "list"}
            asked["ExpressionAttributeValues"] = {":seen": item["list"]}
        if sk != sks[-1]:
            new = " ".join(str(each) for each in [*reads[sk], number])
            actions.append({"Put": {**asked, "Item": {**key(sk), "list": {"S": new}}}})
        elif checks_reads:
            actions.append({"ConditionCheck": {**asked, "Key": key(sk)}})
        yield
    reply = yield from to_its_end(schedule.memory.in_steps("transact_write_items", TransactItems=actions))
    outcome: Outcome = "aborted" if reply is None else "committed"
    appends = dict.fromkeys(sks[:-1], number)
    return Transaction(id=f"w{number}", begin=begin, end=schedule.now, outcome=outcome, reads=reads, appends=appends)


def histories(write: Callable[..., Party], read: Callable[..., Party]) -> list[list[Transaction]]:
    found = []
    for seed in range(SCHEDULES):
        schedule = Schedule(Random(seed))
        lists = [schedule.choose.sample(KEYS, schedule.choose.choice([2, 3])) for _ in range(PARTIES)]
        parties = [(read if number % 3 == 2 else write)(schedule, number, sks) for number, sks in enumerate(lists)]
        found.append(schedule.history(parties))
    return found


def test_transactions_that_check_what_they_read_are_strictly_serialisable() -> None:
    found = histories(writer, reader)
    assert [anomaly for history in found for anomaly in anomalies(history)] == []
    outcomes = {(each.id[0], each.outcome) for history in found for each in history}
    assert outcomes == {(who, outcome) for who in "rw" for outcome in ("committed", "aborted")}


@pytest.mark.parametrize(
    ("write", "read", "kind"),
    [
        pytest.param(writer, reader_of_single_items, "G-single", id="what is read one by one is no moment"),
        pytest.param(partial(writer, checks_reads=False), reader, "G2", id="what is read is not checked"),
    ],
)
def test_reads_one_by_one_or_that_are_not_checked_are_not_strictly_serialisable(
    write: Callable[..., Party], read: Callable[..., Party], kind: str
) -> None:
    assert kind in {anomaly.kind for history in histories(write, read) for anomaly in anomalies(history)}
