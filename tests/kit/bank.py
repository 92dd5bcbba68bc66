"""A bank: processes that move money between accounts, are killed, and are replaced by others that continue.

Run as a program, this file is one of those processes: it makes its share of the transfers, in order, and reports the
number of each that is made. Every transfer follows from its number alone, so the test knows what the accounts must
hold.
"""

import json
import random
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from kit.programs import heard, meet_the_others, say, start, tell
from kit.units import KEYS, dumped, loaded, make_table, make_units_table

from ticketlock.errors import OutcomeUnknown, RequestNotApplied
from ticketlock.units import Unit, Units
from ticketlock.wire._sdk import make_client

OPENING = 1_000
_MOST_AMOUNT = 99
_MOST_TRIES = 1_000
_WITHOUT_AN_ANSWER = (OutcomeUnknown, RequestNotApplied)
_GOES_BACK = 3
"""A successor begins so many transfers before the last one that was reported: these are repeated."""


@dataclass(frozen=True)
class Bank:
    """The parameters of every process.

    Attributes:
        endpoint: where they reach the tables.
        units, accounts: the tables.
        account_count, transfers, processes: how many.
        seed: from which the transfers follow.
    """

    endpoint: str
    units: str
    accounts: str
    account_count: int
    transfers: int
    processes: int
    seed: str = field(default_factory=lambda: uuid.uuid4().hex)

    def transfer(self, number: int) -> tuple[str, str, int]:
        """The source and the target account, and the amount."""
        chance = random.Random(f"{self.seed}/{number}")
        source, target = chance.sample(range(self.account_count), 2)
        return f"account-{source}", f"account-{target}", chance.randint(1, _MOST_AMOUNT)

    def share(self, process: int) -> range:
        """The numbers of the transfers that one process makes."""
        return range(process, self.transfers, self.processes)

    def name(self, number: int) -> str:
        """The name of the unit that makes a transfer."""
        return f"{self.seed}/{number}"

    # For the test.

    def open(self, client: Any) -> None:
        """Create the tables and the accounts."""
        make_units_table(client, self.units)
        make_table(client, self.accounts, KEYS["accounts"])
        for number in range(self.account_count):
            client.put_item(TableName=self.accounts, Item=dumped({"id": f"account-{number}", "balance": OPENING}))

    def broken(self, client: Any) -> list[str]:
        """Its broken promises: ``the sum`` is constant, and each transfer was made ``exactly once``."""
        found = [loaded(item) for item in client.scan(TableName=self.accounts, ConsistentRead=True)["Items"]]
        balances = {item["id"]: int(item["balance"]) for item in found}
        due = Counter({f"account-{number}": OPENING for number in range(self.account_count)})
        for number in range(self.transfers):
            source, target, amount = self.transfer(number)
            due[source] -= amount
            due[target] += amount
        kept = {"the sum": sum(balances.values()) == sum(due.values()), "exactly once": balances == dict(due)}
        return [promise for promise, is_kept in kept.items() if not is_kept]

    def receipts(self, client: Any) -> int:
        """How many transfers have a receipt."""
        pages = client.get_paginator("scan").paginate(TableName=self.units, ConsistentRead=True)
        return sum(item["state"]["S"] == "committed" for page in pages for item in page["Items"])


# The work of a process.


class WithUnits:
    """Each transfer is a unit with a name."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._units = Units(bank.units, client=make_client(endpoint_url=bank.endpoint))
        self._transfer = self._units.transactional(tries=_MOST_TRIES, name=bank.name)(self._run)

    def make(self, number: int) -> None:
        """Run it until it is made: with its name it may run again even after an unknown outcome."""
        while True:
            try:
                return self._transfer(number)
            except _WITHOUT_AN_ANSWER:
                continue

    def _run(self, unit: Unit, number: int) -> None:
        accounts = self._units.table(self._bank.accounts)
        source, target, amount = self._bank.transfer(number)
        unit.get_all([(accounts, {"id": source}), (accounts, {"id": target})])
        unit.update(accounts, {"id": source}, "SET balance = balance - :n", {":n": amount})
        unit.update(accounts, {"id": target}, "SET balance = balance + :n", {":n": amount})


class WithoutUnits:
    """The opposite: both accounts are read, and written back."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._client: Any = make_client(endpoint_url=bank.endpoint)

    def make(self, number: int) -> None:
        source, target, amount = self._bank.transfer(number)
        balances = {name: self._read(name) for name in (source, target)}
        for name, change in ((source, -amount), (target, amount)):
            item = {"id": name, "balance": balances[name] + change}
            self._client.put_item(TableName=self._bank.accounts, Item=dumped(item))

    def _read(self, name: str) -> int:
        found = self._client.get_item(TableName=self._bank.accounts, Key={"id": {"S": name}}, ConsistentRead=True)
        return int(found["Item"]["balance"]["N"])


WAYS: dict[str, Callable[[Bank], "WithUnits | WithoutUnits"]] = {
    "with units": WithUnits,
    "without units": WithoutUnits,
}


def work(bank: Bank, way: str, process: int, first: int) -> None:
    """Make a share of the transfers, from its n-th on."""
    made = WAYS[way](bank)
    meet_the_others()
    for number in bank.share(process)[first:]:
        made.make(number)
        say(number)
    say("done")


# The test's side.


@dataclass
class Staff:
    """The processes of a bank; all are ended with the block.

    Attributes:
        kills: how many times the process of each share is killed.
        killed: how many were killed.
    """

    bank: Bank
    way: str
    kills: int
    killed: int = 0
    _running: list[subprocess.Popen[str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "Staff":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.communicate()

    def work(self) -> None:
        """Make all shares; a process that is killed is replaced by another, until each share is done."""
        started = [self._start(process, 0) for process in range(self.bank.processes)]
        assert [heard(process) for process in started] == ["here"] * self.bank.processes
        with ThreadPoolExecutor(self.bank.processes) as pool:
            list(pool.map(self._see_through, range(self.bank.processes), started))

    def _see_through(self, process: int, running: "subprocess.Popen[str]") -> None:
        share = self.bank.share(process)
        chance = random.Random(f"{self.bank.seed} kills {process}")
        for kill_after in [*sorted(chance.sample(range(len(share) - 1), self.kills)), len(share)]:
            last = self._followed(running, kill_after, share)
            if last is None:
                return
            running = self._start(process, max(0, last - _GOES_BACK))
            assert heard(running) == "here"

    def _followed(self, running: "subprocess.Popen[str]", kill_after: int, share: range) -> int | None:
        """Run one process to its end or to its kill. Returns the position of the last transfer that it has reported."""
        tell(running, "go on")
        while (said := heard(running)) != "done":
            place = share.index(said)
            if place >= kill_after:
                # It is making the next transfer by now.
                running.kill()
                with self._lock:
                    self.killed += 1
                return place
        return None

    def _start(self, process: int, first: int) -> "subprocess.Popen[str]":
        running = start(__file__, asdict(self.bank), self.way, process, first)
        with self._lock:
            self._running.append(running)
        return running


if __name__ == "__main__":
    given, *rest = json.loads(sys.argv[1])
    work(Bank(**given), *rest)
