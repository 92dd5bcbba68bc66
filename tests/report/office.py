"""Locks in memory, and the page and the widget about them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kit.events import execution_arn
from kit.parsed import Node, Parsed

from ticketlock import Claim, LockName, LockTable
from ticketlock.locks._items import Session
from ticketlock.report import (
    MOST_LOCKS,
    AtMost,
    ListedUnit,
    TableReader,
    TableReading,
    UnitsReader,
    page,
    widget,
    with_options,
)
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import OpenUnit

EXECUTION = execution_arn()
ON_LOCKS, ON_UNITS = "--table locks --region us-east-1", "units --units-table units --region us-east-1"
# Of other users; the last begins with the sign that turns the direction of what follows.
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=//evil onerror=alert(1)>',
    # A button of CloudWatch, which calls a function.
    '<cwdb-action action="call" endpoint="arn:aws:lambda:us-east-1:1:function:evil">',
    "`limit a 0`",
    "\u202eevil\n",
]
TYPED: Callable[[str], str] = partial(
    with_options, given={"table": "locks", "units_table": "units", "region": "us-east-1"}
)


class Office:
    """Locks in memory, and the page about them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=self.clock)
        self.table = LockTable("locks", client=self.memory.client, clocks=self.clock, sleep=self.clock.sleep)

    def comes(
        self, entity: str, owner: str, lease_s: int = 36_000, *, permits: int = 1, parks: bool = False, data: str = ""
    ) -> None:
        session = Session(owner, "serialize") if parks else None
        claim = Claim(LockName(entity), owner, lease_s * 1_000, permits=permits, session=session, data=data or None)
        self.table.take_ticket(claim, None)

    def reader(self, at_most: AtMost | None = None) -> TableReader:
        units = UnitsReader("units", client=self.memory.client, clocks=self.clock, sleep=self.clock.sleep)
        return TableReader(table=self.table, units=units, at_most=at_most)

    def read(self, at_most: AtMost | None = None) -> TableReading:
        """The locks; there is no units table."""
        return replace(self.reader(at_most), units=None).read(whole=MOST_LOCKS)

    def shown(self, *units: OpenUnit, unfinished: int | None = None) -> str:
        listed = [ListedUnit(each, unfinished) for each in units]
        return page(self.reader(), replace(self.read(), units=listed), "eu-west-1", TYPED)

    def page(self, *units: OpenUnit, unfinished: int | None = None) -> Node:
        return Parsed(self.shown(*units, unfinished=unfinished)).root

    def page_of(self, reading: TableReading) -> Node:
        return Parsed(page(self.reader(), reading, "eu-west-1", TYPED)).root

    def widget(self, reading: TableReading, *, dark: bool = False) -> str:
        return widget(self.reader(), reading, "us-east-1", dark=dark)


def two_queues(office: Office) -> None:
    """A lock whose holder has crashed, with a queue of hours and seconds; and one whose holder works."""
    office.comes("order-42", "web-1:10/" + "0f9c" * 8, 10_800)
    office.comes("order-42", "gone:1", 60)
    office.comes("order-42", EXECUTION, parks=True)
    office.clock.advance(3_600)
    office.comes("order-42", "web-2:20", 600)
    office.clock.advance(6_000)
    office.comes("order-42", "web-3:30")
    for owner in ("web-4:40", "web-5:50"):
        office.comes("order-43", owner, 300)
    office.comes("order-44", "web-6:60", data="deploys 1.5")
    office.clock.advance(2)


def closed(office: Office, name: str) -> None:
    office.comes(name, f"holder {name}", data=name)
    office.comes(name, f"waiter {name}")
    office.table.set_limit(LockName(name), 0, by=f"ann {name}", why=name)


def held_for_hours(office: Office, name: str) -> None:
    office.comes(name, f"holder {name}", data=name)
    office.comes(name, f"waiter {name}")


def free_and_not_taken(office: Office, name: str) -> None:
    office.comes(name, f"holder {name}")
    office.comes(name, f"waiter {name}")
    item = office.table.inspect(LockName(name)).item
    assert item is not None
    office.table.force_release(LockName(name), item.fencing_token, by=f"ann {name}", why=name)
    office.clock.advance(60)
