"""Processes that append to lists, in units of work, and what each saw: a history for a checker.

Run as a program, this file is one of those processes. It reports each unit before it begins and after its end. So for a
unit whose process was killed in between, the test knows what it would have appended, and that its outcome is unknown.
"""

import json
import random
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kit.histories import Outcome, Transaction
from kit.programs import meet_the_others, said_by, say, start, tell
from kit.units import KEYS, make_table, make_units_table

from ticketlock.errors import OutcomeUnknown, UnitError
from ticketlock.units import Units, UnitTable
from ticketlock.wire._sdk import make_client

_TIMEOUT_S = 2
_MOST_LISTS = 4
"""How many lists a unit reads, at most; it appends to some of them."""
_MOST_UNITS = 1_000_000
"""How many units a process runs, at most: the elements of different processes are different."""
_KILLED_WITHIN_S = 0.05
"""How long into its last unit a process is killed, at most."""
_ENGINES: Sequence[Literal["marked"] | None] = (None, "marked")
"""A unit is committed natively, or by marks."""


@dataclass(frozen=True)
class Lists:
    """The parameters of every process.

    Attributes:
        endpoint: where they reach the tables.
        units, lists: the tables.
        count: how many lists there are.
        each: how many units each process runs.
        seed: of their choices.
    """

    endpoint: str
    units: str
    lists: str
    count: int
    each: int
    seed: str = field(default_factory=lambda: uuid.uuid4().hex)

    def open(self, client: Any) -> None:
        """Create the tables."""
        make_units_table(client, self.units)
        make_table(client, self.lists, KEYS["accounts"])


# The work of a process.


def work(lists: Lists, process: int, way: str) -> None:
    """Run its units, one after the other. Way: ``with units``, or ``without units``, the opposite."""
    units = Units(lists.units, client=make_client(endpoint_url=lists.endpoint), timeout=_TIMEOUT_S)
    table = units.table(lists.lists)
    chance = random.Random(f"{lists.seed}/{process}")
    meet_the_others()
    for number in range(lists.each):
        keys = chance.sample(range(lists.count), chance.randint(1, min(_MOST_LISTS, lists.count)))
        names = [f"list-{key}" for key in keys]
        written = names[: chance.randint(0, len(names))]
        said: dict[str, Any] = {
            "id": f"{process}/{number}",
            "begin": time.monotonic(),
            "appends": dict.fromkeys(written, process * _MOST_UNITS + number),
        }
        if way == "with units":
            _in_a_unit(units, table, chance, names, said)
        else:
            _one_by_one(lists, names, said)
    say("done")


def _in_a_unit(
    units: Units, table: UnitTable, chance: random.Random, names: Sequence[str], said: dict[str, Any]
) -> None:
    unit = units.begin(engine=chance.choice(_ENGINES))
    say({**said, "unit": unit.id})
    reads: dict[str, list[int]] = {}
    outcome: Outcome = "aborted"
    try:
        with unit:
            if chance.choice((True, False)):
                found = unit.get_all([(table, {"id": name}) for name in names])
            else:
                found = [unit.get(table, {"id": name}) for name in names]
            for name, item in zip(names, found, strict=True):
                reads[name] = [int(element) for element in (item or {}).get("elements", [])]
                if name in said["appends"]:
                    unit.put(table, {"id": name, "elements": [*reads[name], said["appends"][name]]})
        outcome = "committed"
    except OutcomeUnknown:
        outcome = "unknown"
    except UnitError:
        pass
    say({**said, "end": time.monotonic(), "outcome": outcome, "reads": reads})


def _one_by_one(lists: Lists, names: Sequence[str], said: dict[str, Any]) -> None:
    client: Any = make_client(endpoint_url=lists.endpoint)
    say({**said, "unit": None})
    reads: dict[str, list[int]] = {}
    for name in names:
        found = client.get_item(TableName=lists.lists, Key={"id": {"S": name}}, ConsistentRead=True).get("Item", {})
        reads[name] = [int(element["N"]) for element in found.get("elements", {"L": []})["L"]]
    for name, element in said["appends"].items():
        elements = [{"N": str(each)} for each in (*reads[name], element)]
        client.put_item(TableName=lists.lists, Item={"id": {"S": name}, "elements": {"L": elements}})
    say({**said, "end": time.monotonic(), "outcome": "committed", "reads": reads})


# The test's side.


@dataclass
class Writers:
    """Processes that append, at once. Each but the last is killed once, and replaced by another.

    Attributes:
        history: all that they have reported.
        killed: how many were killed.
    """

    lists: Lists
    way: str
    processes: int
    units: Units
    history: list[Transaction] = field(default_factory=list)
    killed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def outcomes(self) -> Counter[str]:
        """How many units ended with each outcome."""
        return Counter(each.outcome for each in self.history)

    def run(self) -> None:
        """Run all of them to their ends."""
        with ThreadPoolExecutor(self.processes) as pool:
            list(pool.map(self._share, range(self.processes)))

    def _share(self, number: int) -> None:
        chance = random.Random(f"{self.lists.seed} kills {number}")
        if number < self.processes - 1:
            self._follow(number, chance.randrange(self.lists.each // 2), chance.uniform(0, _KILLED_WITHIN_S))
            number += self.processes
        self._follow(number, None, 0)

    def _follow(self, process: int, kill_in: int | None, after_s: float) -> None:
        """Record what one process reports; kill it during its n-th unit."""
        running = start(__file__, asdict(self.lists), process, self.way)
        under_way: dict[str, Any] | None = None
        try:
            for said in said_by(running):
                if said == "here":
                    tell(running, "go on")
                elif said == "done":
                    return
                elif "end" in said:
                    under_way = None
                    self._note(said)
                else:
                    under_way = said
                    if said["id"] == f"{process}/{kill_in}":
                        threading.Timer(after_s, running.kill).start()
            assert kill_in is not None, "a process has failed; see what it printed"
            with self._lock:
                self.killed += 1
            if under_way is not None:
                self._note({**under_way, "end": under_way["begin"], "outcome": "unknown", "reads": {}})
                if under_way["unit"] is not None:
                    # Otherwise its marks would make the others wait until its lease ends.
                    self.units.rollback(under_way["unit"])
        finally:
            running.kill()
            running.communicate()

    def _note(self, said: Mapping[str, Any]) -> None:
        kept = {name: said[name] for name in ("id", "begin", "end", "outcome", "reads", "appends")}
        with self._lock:
            self.history.append(Transaction(**kept))


if __name__ == "__main__":
    given, *rest = json.loads(sys.argv[1])
    work(Lists(**given), *rest)
