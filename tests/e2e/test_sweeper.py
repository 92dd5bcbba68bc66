"""Units whose processes were killed, in every state that leaves anything, swept by the deployed function.

The tables are in a stack of data, the function is in the stack of an app. Its role is enforced. Time is what stands in
the table: the killed processes take it for an hour ago, and between two passes what stands there moves into the past.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e.cloud import Cloud
from e2e.roles import Permission, Role
from kit.crashes import crashes
from kit.engines import Engine
from kit.units import MARK, Books, Key, Killed, Party, UnitsWorld, some_account
from ticketlock_local.cloud.deploy import deploy
from ticketlock_local.engines.emulator import Emulator

from ticketlock.testing import ManualClock
from ticketlock.units._recovery._sweeping import COPIES_COME_WITHIN_MS

pytestmark = pytest.mark.verify("another deployment; tests/units asks the same steps, and how they are bounded")

APP = Path(__file__).with_name("units_app.py")
STACK = "TicketlockUnits"
AN_HOUR_S, MARGIN_S = 3_600, 30
# Nothing packs it: it does not fit into the record.
LONG = random.Random(0).randbytes(8_000)
SET = "SET balance = :n, noise = :noise"


@dataclass
class Deployed:
    """The stack."""

    cloud: Cloud

    @property
    def configuration(self) -> Any:
        """The function's."""
        return self.cloud.configuration(self.cloud.outputs["sweeper"])

    def books(self, clock: ManualClock) -> Books:
        engine = Engine("ministack", self.cloud.endpoint, "")
        tables = {use: self.cloud.outputs[use] for use in ("units", "accounts", "lines")}
        return Books(engine, engine.client(), tables, clock)

    def sweep(self) -> dict[str, Any]:
        """One pass; returns what it did."""
        done: dict[str, Any] = self.cloud.invoke(self.cloud.outputs["sweeper"], {})
        return done

    def alarms(self) -> list[Any]:
        pages = self.cloud.client("cloudwatch").get_paginator("describe_alarms").paginate()
        return [alarm for page in pages for alarm in page["MetricAlarms"] if STACK in alarm["AlarmName"]]

    def emitted(self) -> list[Mapping[str, Any]]:
        """The log lines from which CloudWatch makes metrics, oldest first."""
        return [line for line in self.cloud.logged(self.configuration) if "_aws" in line]


@pytest.fixture(scope="module")
def deployed(guarded_emulator: Emulator) -> Deployed:
    return Deployed(Cloud(guarded_emulator.endpoint, deploy(guarded_emulator, app=APP, stack=STACK)))


@pytest.fixture
def an_hour_ago(deployed: Deployed) -> Iterator[UnitsWorld]:
    """The states in which processes were killed; the tables are emptied afterwards."""
    books = deployed.books(ManualClock(int((time.time() - AN_HOUR_S) * 1_000)))
    for use, rows in books.everything().items():
        names = {"units": ("unit", "row"), "accounts": ("id",), "lines": ("pk", "sk")}[use]
        for row in rows:
            books.plain_client.delete_item(TableName=books.tables[use], Key={name: {"S": row[name]} for name in names})
    with ExitStack() as stack:
        yield UnitsWorld(books, None, stack)


def killed(world: UnitsWorld, number: int, operation: str = "UpdateItem", *, is_sent: bool) -> list[Key]:
    """A unit that sets two accounts to zero, and makes a third, whose process dies at one of its requests."""
    ann = world.party()
    keys: list[Key] = [world.books.account(), world.books.account(), some_account()]
    unit = ann.begin(engine="marked")
    for key in keys[:2]:
        unit.update(ann.accounts, key, SET, {":n": 0, ":noise": LONG})
    unit.put(ann.accounts, {**keys[2], "balance": 0})
    crashes(ann, number, operation, is_sent=is_sent)
    with pytest.raises(Killed):
        unit.commit()
    return keys


def rolled_back(world: UnitsWorld) -> list[Key]:
    """Killed after it has rolled itself back: what it read has changed."""
    ann, keys = world.party(), [world.books.account(), world.books.account(100)]
    unit = ann.begin(engine="marked")
    for key in keys:
        unit.update(ann.accounts, key, SET, {":n": 0, ":noise": LONG})
    Party(world.books, None).changes(keys[1], 100)
    # Two marks, of which one is refused, and the decision.
    crashes(ann, 3, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    return [*keys, some_account()]


# What a unit does: its record, a row of new values, marks (two updates and a transaction), the decision, three new
# values, the end of the record, the end of the row, the date on which the record may go.
COMMITTED: Sequence[int | None] = [0, 0, 0]
NOT_COMMITTED: Sequence[int | None] = [100, 100, None]
STATES: Mapping[str, tuple[Callable[[UnitsWorld], list[Key]], Sequence[int | None]]] = {
    "opened, before its rows": (lambda world: killed(world, 1, "PutItem", is_sent=True), NOT_COMMITTED),
    "opened, before its marks": (lambda world: killed(world, 1, is_sent=False), NOT_COMMITTED),
    "half marked": (lambda world: killed(world, 1, is_sent=True), NOT_COMMITTED),
    "marked": (lambda world: killed(world, 3, is_sent=False), NOT_COMMITTED),
    "rolled back, and not unmarked": (rolled_back, NOT_COMMITTED),
    "committed, and not finished": (lambda world: killed(world, 3, is_sent=True), COMMITTED),
    "committed, and half finished": (lambda world: killed(world, 4, is_sent=True), COMMITTED),
    "finished, and not closed": (lambda world: killed(world, 6, is_sent=False), COMMITTED),
    "closed, and its rows left": (lambda world: killed(world, 6, is_sent=True), COMMITTED),
}


def no_copy_comes_any_more(books: Books) -> None:
    """Shift everything in the table into the past by this much."""
    passed_ms = COPIES_COME_WITHIN_MS + MARGIN_S * 1_000
    for row in books.everything()["units"]:
        if row["row"] == "head":
            shifted = {name: row[name] - passed_ms for name in ("leaseUntilMs", "finalMs") if name in row}
            books.write("units", {**row, **shifted})


def marks(books: Books) -> int:
    return sum(MARK in item for item in books.everything()["accounts"])


def what_is_left(books: Books) -> list[str]:
    """The rows of units, except records that time to live deletes."""
    return [row["row"] for row in books.everything()["units"] if "expiresAt" not in row]


def balances(books: Books, keys: list[Key]) -> list[Any]:
    found = [books.item("accounts", key) for key in keys]
    return [item and item["balance"] for item in found]


def is_an_hour(ms: float) -> bool:
    """Or longer: the machine may be busy."""
    return (AN_HOUR_S - MARGIN_S) * 1_000 <= ms < 2 * AN_HOUR_S * 1_000


def test_in_each_state_a_killed_unit_is_rolled_back_or_finished_within_two_passes_and_nothing_is_left(
    deployed: Deployed, an_hour_ago: UnitsWorld
) -> None:
    books, keys_of = an_hour_ago.books, {}
    for state, (leave, _) in STATES.items():
        before = len(what_is_left(books))
        keys_of[state] = leave(an_hour_ago)
        assert len(what_is_left(books)) > before, f"{state}: a state that leaves nothing"
    expected = {state: on_accounts for state, (_, on_accounts) in STATES.items()}
    told_before = len(deployed.emitted())
    first = deployed.sweep()
    assert {state: balances(books, keys) for state, keys in keys_of.items()} == expected
    assert marks(books) == 0
    no_copy_comes_any_more(books)
    second = deployed.sweep()
    assert {state: balances(books, keys) for state, keys in keys_of.items()} == expected
    assert (marks(books), what_is_left(books)) == (0, [])
    # Four were pending; those that had ended an hour ago are closed by the first pass.
    assert (first["unfinished"], first["is_whole"]) == (0, True)
    assert (first["rolled_back"], first["closed"], first["open"]) == (4, 5, 4)
    assert (second["rolled_back"], second["closed"], second["open"]) == (0, 4, 0)
    told = deployed.emitted()[told_before:]
    assert [line["RolledBackByOthers"] for line in told] == [[4.0], [0.0]]
    assert [line["ClosedUnits"] for line in told] == [[5.0], [4.0]]
    assert [line["CommittedUnfinished"] for line in told] == [[0.0], [0.0]]
    assert [line["OldestOpenUnitAge"] for line in told] == [[0.0], [0.0]]


def test_a_running_unit_is_left_alone_and_its_age_is_reported(deployed: Deployed, an_hour_ago: UnitsWorld) -> None:
    books = an_hour_ago.books
    killed(an_hour_ago, 3, is_sent=False)
    [head] = [row for row in books.everything()["units"] if row["row"] == "head"]
    # As a running process does.
    books.write("units", {**head, "leaseUntilMs": int((time.time() + AN_HOUR_S) * 1_000)})
    swept = deployed.sweep()
    assert (marks(books), swept["open"], swept["rolled_back"]) == (3, 1, 0)
    assert is_an_hour(swept["oldest_ms"])
    assert deployed.emitted()[-1]["OldestOpenUnitAge"] == [swept["oldest_ms"]]


def test_a_table_without_a_grant_is_reported_and_swept_once_it_is_granted(
    deployed: Deployed, an_hour_ago: UnitsWorld
) -> None:
    keys, books = killed(an_hour_ago, 3, is_sent=True), an_hour_ago.books
    role, table = Role(deployed.cloud, deployed.configuration["Role"]), deployed.cloud.outputs["accounts"]
    table = deployed.cloud.dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
    with role.without("dynamodb:UpdateItem", table):
        swept = deployed.sweep()
    assert (swept["unfinished"], swept["open"]) == (1, 1)
    assert deployed.emitted()[-1]["CommittedUnfinished"] == [1.0]
    assert is_an_hour(deployed.emitted()[-1]["OldestOpenUnitAge"][0])
    assert deployed.sweep()["unfinished"] == 0
    assert balances(books, keys) == COMMITTED


def test_the_stack_of_data_has_tables_alone_and_that_of_the_app_lets_its_worker_use_them(deployed: Deployed) -> None:
    cloud = deployed.cloud
    pages = cloud.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=f"{STACK}Data")
    found = {each["ResourceType"] for page in pages for each in page["StackResourceSummaries"]}
    assert found - {"AWS::CDK::Metadata"} == {"AWS::DynamoDB::Table"}
    worker = Role(cloud, cloud.outputs["worker"])
    accounts, lines = (
        cloud.dynamodb.describe_table(TableName=cloud.outputs[use])["Table"]["TableArn"]
        for use in ("accounts", "lines")
    )
    assert all(worker.allows(Permission("dynamodb:UpdateItem", table)) for table in (accounts, lines))
    # Of the two it has the index.
    asked = {table: Permission("dynamodb:Query", f"{table}/index/bySk") for table in (accounts, lines)}
    assert {table: worker.allows(permission) for table, permission in asked.items()} == {accounts: False, lines: True}


def test_every_alarm_of_its_own_watches_what_a_pass_emits(deployed: Deployed) -> None:
    deployed.sweep()
    line = deployed.emitted()[-1]
    [emitted] = line["_aws"]["CloudWatchMetrics"]
    names = {metric["Name"] for metric in emitted["Metrics"]}
    assert emitted["Dimensions"] == [["service"]]
    own = [alarm for alarm in deployed.alarms() if alarm["Namespace"] == emitted["Namespace"]]
    assert {alarm["MetricName"] for alarm in own} == {
        "OldestOpenUnitAge",
        "CommittedUnfinished",
        "RefusedItems",
        "RolledBackByOthers",
        "StoppedSweeps",
    }
    assert {alarm["MetricName"] for alarm in own} <= names
    assert all(alarm["Dimensions"] == [{"Name": "service", "Value": line["service"]}] for alarm in own)


def test_each_alarm_notifies_when_it_fires_and_when_it_is_over_and_says_what_to_type(deployed: Deployed) -> None:
    cloudwatch, queues = deployed.cloud.client("cloudwatch"), deployed.cloud.client("sqs")
    names = [alarm["AlarmName"] for alarm in deployed.alarms()]
    for name in names:
        for state in ("ALARM", "OK"):
            cloudwatch.set_alarm_state(AlarmName=name, StateValue=state, StateReason="a trial")
    inbox, told = deployed.cloud.outputs["inbox"], set[tuple[str, str]]()

    def all_have_come() -> bool:
        for each in queues.receive_message(QueueUrl=inbox, MaxNumberOfMessages=10).get("Messages", []):
            notified = json.loads(json.loads(each["Body"])["Message"])
            assert (
                f"ticketlock units ls --units-table {deployed.cloud.outputs['units']}" in notified["AlarmDescription"]
            )
            told.add((notified["AlarmName"], notified["NewStateValue"]))
        return len(told) == 2 * len(names)

    deployed.cloud.wait_until(all_have_come, f"two notifications of each of {len(names)} alarms")
    assert told == {(name, state) for name in names for state in ("ALARM", "OK")}
