"""The report on a dashboard: what it reads at most, texts of other users in it, and how it looks there."""

import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kit.left_units import AGO_S, EXPIRED, PENDING, left
from kit.opened import CONTRAST, served
from kit.parsed import Node, Parsed, shape
from kit.units import Books
from of_dashboards import live_report
from report.office import (
    HOSTILE,
    ON_UNITS,
    TYPED,
    Office,
    closed,
    free_and_not_taken,
    held_for_hours,
    two_queues,
)

from ticketlock import LockName
from ticketlock.report import AtMost, ListedUnit, TableReader, UnitsReader, widget
from ticketlock.report._page import MOST_HOLDERS, MOST_ON_DASHBOARD, MOST_UNITS, MOST_WAITERS
from ticketlock.report._reading import ITEMS_A_PAGE
from ticketlock.units import Units, create_units_table

AT_MOST = AtMost()
FEW = AtMost(pages=2, locks=3, rows=4, units=5)
LAMBDA_RETURNS = 6_291_556
"""Bytes: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""


def test_on_a_dashboard_is_what_is_on_the_page(office: Office) -> None:
    two_queues(office)
    (on_page,) = office.page(EXPIRED, PENDING).all("main")
    reading = replace(office.read(), units=[ListedUnit(EXPIRED), ListedUnit(PENDING)])
    (on_dashboard,) = Parsed(office.widget(reading)).root.all("main")
    (place,) = on_page.inside[1:2]
    assert isinstance(place, Node)
    # Of the page another place was given than that of its commands.
    place.inside[0] = "us-east-1, read at "
    assert on_dashboard == on_page


@pytest.mark.parametrize(("dark", "scheme"), [(True, "dark"), (False, "light")])
def test_it_has_the_colours_of_the_dashboard_and_not_of_the_readers_system(
    office: Office, dark: bool, scheme: str
) -> None:
    (root,) = Parsed(office.widget(office.read(), dark=dark)).root.inside
    assert isinstance(root, Node)
    assert root.attributes == {"class": "ticketlock cwdb-no-default-styles", "style": f"color-scheme: {scheme}"}


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("stuck", [closed, held_for_hours, free_and_not_taken])
def test_names_and_data_of_other_users_stay_text(
    office: Office, stuck: Callable[[Office, str], None], hostile: str
) -> None:
    harmless, made = Office(), []
    for each, name in ((office, hostile), (harmless, "a")):
        stuck(each, name)
        made.append(each.widget(replace(each.read(FEW), units=[ListedUnit(replace(PENDING, owner=name))])))
    root, other = (Parsed(text).root for text in made)
    assert shape(root) == shape(other)
    assert {node.tag for node in root.all()} & {"cwdb-action", "img", "script"} == set()
    assert root.texts("h3") == [hostile.replace("\u202e", "\\u202e").replace("\n", "\\n")]


def test_lambda_returns_it_however_long_the_names_are(office: Office) -> None:
    long = '"&' * 511
    for lock in range(MOST_ON_DASHBOARD + 1):
        for person in range(MOST_HOLDERS + MOST_WAITERS):
            owner = f"{person:02}{long}"
            office.comes(f"{lock:02}{long}", owner, permits=MOST_HOLDERS, data='"&' * 128)
        office.table.set_limit(LockName(f"{lock:02}{long}"), 1, by='"&' * 128, why='"&' * 128)
    units = [ListedUnit(replace(PENDING, owner=long))] * MOST_UNITS
    shown = office.widget(replace(office.read(AT_MOST), units=units))
    assert len(json.dumps(shown).encode()) < LAMBDA_RETURNS
    root = Parsed(shown).root
    assert len(root.texts("article")) == MOST_ON_DASHBOARD
    assert root.texts("p", "more") == [f"And 1 more lock: {TYPED('ticketlock ls --busy')}"]


def put_free_locks(office: Office, number: int) -> None:
    office.comes("free", "a")
    [item] = office.memory.scan(TableName="locks")["Items"]
    free = {name: value for name, value in item.items() if not name.startswith(("holder:", "token:"))}
    for each in range(1, number):
        entity = f"free-{each}"
        office.memory.put_item(TableName="locks", Item={**free, "pk": {"S": entity}, "held": {"N": "0"}})


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_it_stops_after_so_many_items_of_the_table_and_says_so(office: Office, over: int) -> None:
    most = FEW.pages * ITEMS_A_PAGE
    put_free_locks(office, most + over)
    office.memory.sent.clear()
    reading = office.read(FEW)
    scans = [sent.parameters["Limit"] for sent in office.memory.sent if sent.operation == "Scan"]
    # The last one asks whether there is more.
    assert scans == ([ITEMS_A_PAGE] * FEW.pages + [1])[: 2 if over < 0 else 3]
    told = f"of the table's items at most {most:,} were read, and it has more"
    assert list(reading.unread) == ([told] if over > 0 else [])
    shown = Parsed(office.widget(reading)).root.texts("p", "unread")
    assert shown == ([f"This is not all: {told}. The whole: {TYPED('ticketlock report -o report.html')}"][: over > 0])


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_it_reads_so_many_busy_locks_with_the_most_waiters_first_and_says_so(office: Office, over: int) -> None:
    number = FEW.locks + over
    for lock in range(number):
        for person in range(lock + 1):
            office.comes(f"order-{lock}", f"web-{person}")
    reading = office.read(FEW)
    assert {each.lock.lock.entity for each in reading.locks} == {
        f"order-{lock}" for lock in range(max(0, over), number)
    }
    assert [text for text in reading.unread if "busy" in text] == (
        [f"of {number} busy locks only the {FEW.locks} with the most waiters were read"] if over > 0 else []
    )


@pytest.mark.parametrize("crashed", [0, 2 * FEW.rows])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_it_reads_so_many_rows_of_a_queue_from_the_first_that_has_not_crashed_and_says_so(
    office: Office, over: int, crashed: int
) -> None:
    number = FEW.rows + over
    office.comes("order-42", "holder")
    for person in range(crashed):
        office.comes("order-42", f"gone-{person}", 60)
    office.clock.advance(120)
    for person in range(number):
        office.comes("order-42", f"web-{person}")
    reading = office.read(FEW)
    root = Parsed(office.widget(reading)).root
    assert root.texts("", "name")[1] == "1.web-0"
    assert root.texts("th")[-1] == f"In line: {number}"
    if not crashed:
        assert [text for text in reading.unread if "rows" in text] == (
            [f"of long queues only the first {FEW.rows} rows were read"] if over > 0 else []
        )


def save_units(office: Office, number: int) -> None:
    create_units_table("units", client=office.memory.client)
    units = Units("units", client=office.memory.client, clocks=office.clock, sleep=office.clock.sleep)
    accounts = units.table("locks")
    for each in range(number):
        unit = units.begin()
        unit.put(accounts, {"pk": f"account-{each}", "sk": "balance"})
        unit.save()


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_it_reads_so_many_open_units_and_says_so(office: Office, over: int) -> None:
    save_units(office, FEW.units + over)
    reader = replace(office.reader(FEW), table=None)
    reading = reader.read()
    assert len(reading.units or ()) == FEW.units + min(0, over)
    assert list(reading.unread) == ([f"of the open units only {FEW.units} were read"] if over > 0 else [])
    root = Parsed(widget(reader, reading, "us-east-1", dark=False)).root
    assert root.texts("h1") == ["Open units in the table units"]
    assert root.texts("dt") == [f"open units: {FEW.units + min(0, over)} saved"]
    assert "lock is" not in root.text


@pytest.mark.parametrize(
    ("ago_s", "sweep_every_s", "is_late"), [(AGO_S, 300, False), (2_700, 300, True), (2_700, 3_600, False)]
)
def test_of_units_it_reads_no_items_of_users_and_flags_those_that_a_sweep_should_have_closed(
    ago_s: int, sweep_every_s: int, is_late: bool, books: Books
) -> None:
    unit = left(books, ["ann"], is_committed=True, ago_s=ago_s)
    memory = books.engine.memory
    assert memory is not None
    memory.sent.clear()
    units = UnitsReader("units", client=memory.client, sweep_every_s=sweep_every_s)
    reader = TableReader(table=None, units=units, at_most=FEW)
    root = Parsed(widget(reader, reader.read(), "us-east-1", dark=False)).root
    asked = [str(sent.parameters) for sent in memory.sent]
    assert asked
    assert not [each for each in asked if "accounts" in each]
    assert root.texts("small") == ["1 item, ? unfinished"]
    assert root.texts("code", "command") == ([f"ticketlock {ON_UNITS} settle {unit}"] if is_late else [])


def test_of_large_units_it_reads_the_records_alone(books: Books) -> None:
    left(books, [uuid.uuid4().hex for _ in range(200)], ago_s=AGO_S)
    memory = books.engine.memory
    assert memory is not None
    memory.sent.clear()
    units = UnitsReader("units", client=memory.client)
    (listed,) = units.read_open(lambda _: None, FEW.units)
    assert listed.unit.items is None
    assert "w#" not in str([sent.parameters for sent in memory.sent])
    (listed,) = units.read_open(lambda _: None)
    assert listed.unit.items == 200


@pytest.mark.verify("fills a table for long")
def test_of_a_hundred_thousand_locks_it_asks_no_more_than_of_so_many_as_it_reads(office: Office) -> None:
    put_free_locks(office, 100_000)
    office.memory.sent.clear()
    reading = office.read(AT_MOST)
    assert reading.unread
    scans = [sent.parameters["Limit"] for sent in office.memory.sent if sent.operation == "Scan"]
    assert sum(scans) <= AT_MOST.pages * ITEMS_A_PAGE + 1
    # Of the one busy lock, and of the time.
    assert len(office.memory.sent) <= len(scans) + 2


# A dashboard: another widget stands beside, and the console has styles of its own.
DASHBOARD = """\
<!doctype html>
<html style="font-size: 10px"><body style="background: rgb(250, 250, 250); overflow-y: scroll">
<div id="other"><h2>Other</h2><table><tr><td class="card">1</td></tr></table><p class="faint">2</p><code>3</code></div>
<div id="widget">{}</div>
</body></html>
"""
STYLES_OF_THE_OTHER = """
const styles = JSON.stringify([...document.querySelectorAll("#other *")].map(each => {
  const found = window.getComputedStyle(each);
  return [...found].map(name => name + found.getPropertyValue(name));
}));
"""


@pytest.mark.verify("starts a browser, and installs one where there is none")
@pytest.mark.parametrize("dark", [True, False])
def test_in_a_browser_it_fits_is_readable_loads_nothing_and_changes_nothing_beside_it(
    office: Office, tmp_path: Path, dark: bool
) -> None:
    two_queues(office)
    for owner in ("holder", "waiter"):
        office.comes("x" * 1_024, owner * 30, data="y" * 256)
    reading = replace(office.read(AT_MOST), units=[ListedUnit(EXPIRED)], unread=["of many things few were read"])
    (tmp_path / "with.html").write_text(DASHBOARD.format(office.widget(reading, dark=dark)))
    (tmp_path / "without.html").write_text(DASHBOARD.format("<footer></footer>"))
    script = f"""
    if (document.querySelector("footer") === null) return undefined;
    {STYLES_OF_THE_OTHER}
    {CONTRAST}
    const loaded = window.performance.getEntriesByType("resource").map(each => each.name);
    const tooWide = Math.max(0, document.documentElement.scrollWidth - window.innerWidth);
    const sizes = [...document.querySelectorAll("#widget td, #widget small, #widget h3")]
      .map(each => parseFloat(window.getComputedStyle(each).fontSize));
    return [styles, tooWide, loaded, Math.min(...sizes) > 12, least];
    """
    with served(tmp_path) as site:
        # The reader's system has the other colours.
        seen = {name: site.ask(f"/{name}.html", script, dark=not dark) for name in ("with", "without")}
    assert seen["with"][0] == seen["without"][0]
    assert seen["with"][1:4] == [0, [], True]
    assert seen["with"][4] >= 4.5
    assert site.console == []


# The function.


@pytest.fixture
def called(office: Office, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "Lock")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    reader = replace(office.reader(AT_MOST), units=None)
    monkeypatch.setattr(live_report, "reader", lambda: reader)
    return lambda **event: live_report.handler(event, None)


def test_the_function_returns_the_html_with_the_commands_for_its_table_and_logs_what_it_has_counted(
    office: Office, called: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    two_queues(office)
    caplog.set_level(logging.INFO)
    root = Parsed(called(widgetContext={"theme": "dark", "params": {}})).root
    assert root.texts("h3") == ["order-42", "order-43"]
    (command,) = root.texts("code", "command")
    assert command.startswith("ticketlock --table locks --region eu-west-1 release order-42 --force --fencing-token ")
    [outer] = root.inside
    assert isinstance(outer, Node)
    assert outer.attributes["style"] == "color-scheme: dark"
    [line] = [each for each in caplog.records if each.message == "live_report"]
    logged = {name: getattr(line, name) for name in ("busy", "units", "unread")}
    assert logged == {"busy": 3, "units": 0, "unread": []}


def test_the_function_describes_itself_and_reads_nothing(office: Office, called: Callable[..., str]) -> None:
    office.memory.sent.clear()
    assert called(describe=True) == live_report.ABOUT
    assert not office.memory.sent


def test_the_function_needs_no_context_of_a_widget(called: Callable[..., str]) -> None:
    assert "No lock is busy." in Parsed(called()).root.text


@pytest.mark.parametrize(("shows", "has_locks"), [("locks", True), ("units", False)])
def test_the_function_reads_its_table_within_bounds(
    shows: str, has_locks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the function of units has the last.
    settings = {"SHOWS": shows, "TABLE_NAME": "mine", "AWS_DEFAULT_REGION": "eu-west-1"}
    for name, value in (settings if has_locks else settings | {"SWEEP_SECONDS": "300"}).items():
        monkeypatch.setenv(name, value)
    live_report.reader.cache_clear()
    reader = live_report.reader()
    live_report.reader.cache_clear()
    assert (reader.name, reader.table is not None, reader.at_most) == ("mine", has_locks, AT_MOST)
