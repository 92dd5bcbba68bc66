"""The page: what is on it and in which order, texts of other users on it, and how a browser shows it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kit.left_units import COMMITTED, EXPIRED, PENDING
from kit.opened import CONTRAST, served
from kit.parsed import Parsed, shape
from report.office import (
    EXECUTION,
    HOSTILE,
    ON_LOCKS,
    ON_UNITS,
    Office,
    closed,
    free_and_not_taken,
    held_for_hours,
    two_queues,
)

from ticketlock import LockName
from ticketlock.report import MOST_LOCKS, ListedUnit, advice_on
from ticketlock.report._page import MOST_HOLDERS, MOST_UNITS, MOST_WAITERS, Scale
from ticketlock.units import OpenUnit, Outcome

PHONE, TABLET, DESK = 390, 720, 1280


def test_the_stuck_lock_is_first_and_its_queue_is_in_order_with_ages_on_one_scale(office: Office) -> None:
    two_queues(office)
    root = office.page()
    assert root.texts("h2")[:3] == ["Stuck", "Others wait", "No one waits"]
    stuck, waited_for = root.all("article")
    assert (stuck.texts("h3"), waited_for.texts("h3")) == (["order-42"], ["order-43"])
    assert stuck.texts("span", "chip") == ["silent for 2.7 h"]
    assert stuck.texts("th")[3:] == ["Holder", "In line: 3"]
    machine = EXECUTION.partition("execution:")[2]
    names = [each for row in stuck.all("tr") for each in row.texts("", "name")]
    assert names == ["web-1:10", f"1.{machine}", "2.web-2:20", "3.web-3:30"]
    assert [each.attributes["title"] for each in stuck.all("bdi") if "title" in each.attributes][1] == EXECUTION
    assert [each.texts("span")[0] for each in stuck.all("div", "age")] == ["2.7 h", "2.7 h", "100.0 min", "2.0 s"]
    assert stuck.texts("small") == ["renewed 2.7 h ago", "parked", "crashed"]
    (second, hours) = (
        float(each.attributes["style"].removeprefix("width: ").removesuffix("%"))
        for each in [*stuck.all("i")][-1:] + [*stuck.all("i", "is-late")][:1]
    )
    assert 5 < second < 30 < 80 < hours < 100
    assert [each.attributes["aria-label"] for each in stuck.all("span", "track")] == [
        "held for 2.7 h",
        "20.0 min of 3.0 h left",
        "waiting for 2.7 h",
        "waiting for 100.0 min",
        "waiting for 2.0 s",
    ]
    (command,) = stuck.texts("code", "command")
    # Who reads the page has another environment.
    assert command.startswith(f"ticketlock {ON_LOCKS} release order-42 --force --fencing-token ")
    assert [each.texts("small") for each in root.all("tbody") if "order-44" in each.text] == [["deploys 1.5"]]


def test_a_lock_that_was_closed_before_its_first_use_has_the_command_that_a_terminal_shows(office: Office) -> None:
    lock = LockName("order-42")
    office.table.set_limit(lock, 0)
    for owner in ("web-1:10", "web-2:20"):
        office.comes(lock.entity, owner, permits=3)
    (command,) = office.page().texts("code", "command")
    assert command == f"ticketlock {ON_LOCKS} limit order-42 3 --unset"
    advice = advice_on(lock, office.table.inspect(lock))
    assert advice is not None
    assert advice.command == command.replace(f"{ON_LOCKS} ", "")


def test_the_counts_are_those_of_the_reading(office: Office) -> None:
    two_queues(office)
    (counts,) = office.page(EXPIRED, PENDING).all("dl", "counts")
    assert list(zip(counts.texts("dd"), counts.texts("dt"), strict=True)) == [
        ("1", "stuck"),
        ("3", "busy"),
        ("4", "waiting"),
        ("2.7 h", "longest wait"),
        ("2", "open units: 1 expired, 1 pending"),
    ]


def test_of_many_holders_those_whose_leases_end_first_are_shown(office: Office) -> None:
    for number in range(MOST_HOLDERS + 1):
        office.comes("order-42", f"web-{number}", 600 - number, permits=100)
    office.clock.advance(600)
    names, notes = office.page().texts("", "name"), office.page().texts("small")
    assert names == [f"web-{number}" for number in range(MOST_HOLDERS, 0, -1)]
    assert notes[0].startswith("expired ")


def test_a_lock_in_whose_line_all_have_crashed_is_not_waited_for(office: Office) -> None:
    for owner, lease_s in (("holder", 600), ("one", 60), ("two", 60)):
        office.comes("order-42", owner, lease_s)
    office.clock.advance(120)
    root = office.page()
    assert root.texts("h2")[0] == "No one waits"
    assert root.texts("p", "next") == ["In line: 2, all crashed."]


def test_a_lock_without_a_holder_in_whose_line_all_have_crashed_is_not_busy(office: Office) -> None:
    office.table.set_limit(LockName("order-42"), 0)
    for owner in ("one", "two"):
        office.comes("order-42", owner, 60)
    assert [each.waiting for each in office.read().locks] == [2]
    office.clock.advance(120)
    assert office.read().locks == []


def test_a_state_is_never_green_beside_what_needs_you(office: Office) -> None:
    closed(office, "order-42")
    held_for_hours(office, "order-43")
    office.comes("order-44", "works", 60)
    root = office.page(COMMITTED, unfinished=1)
    assert [node.texts("", "good") for node in root.all("article", "stuck")] == [[], []]
    assert root.texts("span", "good")[:1] == ["granted"]
    (units,) = root.all("div", "units")
    assert (units.texts("span", "late"), units.texts("span", "good")) == (["committed"], [])


def test_a_lock_that_this_caller_may_not_read_says_so(office: Office) -> None:
    office.comes("order-42", "holder")
    reading = office.read()
    unread = replace(reading.locks[0], front=None)
    root = office.page_of(replace(reading, locks=[unread]))
    (lock,) = root.all("article")
    assert (lock.texts("h3"), lock.texts("span", "chip")) == (["order-42"], ["not readable"])
    assert "`" not in lock.text
    assert lock.texts("code") == [f"ticketlock {ON_LOCKS} doctor"]


def test_without_locks_and_units_the_page_says_so(office: Office) -> None:
    assert office.page().texts("p", "card") == ["No lock is busy.", "No unit is open."]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("stuck", [closed, held_for_hours, free_and_not_taken])
def test_names_and_data_of_other_users_stay_text(
    office: Office, stuck: Callable[[Office, str], None], hostile: str
) -> None:
    harmless = Office()
    for each, name in ((office, hostile), (harmless, "a")):
        stuck(each, name)
    text = office.shown(replace(PENDING, is_saved=True, owner=hostile))
    root, other = Parsed(text).root, harmless.page(replace(PENDING, is_saved=True, owner="a"))
    assert shape(root) == shape(other)
    shown = hostile.replace("\u202e", "\\u202e").replace("\n", "\\n")
    assert root.texts("h3") == [shown]
    assert root.text.count(shown) >= 4
    assert "\u202e" not in text


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize(
    ("what", "most", "kind", "more"),
    [
        ("locks", MOST_LOCKS, "name", f"And 1 more lock: ticketlock {ON_LOCKS} ls --busy"),
        ("holders", MOST_HOLDERS, "name", "and 1 more holder"),
        ("waiters", MOST_WAITERS, "rank", "and 1 more waiter"),
        ("units", MOST_UNITS, "age", f"And 1 more unit: ticketlock {ON_UNITS} ls"),
    ],
)
def test_the_page_has_at_most_so_many_and_says_how_many_more_there_are(
    office: Office, what: str, most: int, kind: str, more: str, over: int
) -> None:
    number = most + over
    if what == "waiters":
        office.comes("order", "holder")
    if what != "units":
        for each in range(number):
            permits = 100 if what == "holders" else 1
            office.comes(f"order-{each}" if what == "locks" else "order", f"web-{each}", permits=permits)
    root = office.page(*[PENDING] * (number if what == "units" else 0))
    assert len([*root.all("", kind)]) == min(most, number)
    assert root.texts("", "more") == ([more] if over > 0 else [])


@pytest.mark.parametrize(("longest_s", "end"), [(0, "10 min"), (600, "10 min"), (601, "1 h"), (10**9, "1 y")])
def test_the_scale_ends_beyond_the_greatest_age(longest_s: int, end: str) -> None:
    scale = Scale.up_to(longest_s * 1_000)
    assert scale.ticks[-1][1] == end
    at = [scale.percent(age_s * 1_000) for age_s in (0, 1, 2, 10, 60, 600, 10**9)]
    assert at == sorted(at)
    assert (at[0], at[1], at[-1]) == (0, 0, 100)


@pytest.mark.parametrize(
    ("unit", "unfinished"),
    [
        (PENDING, None),
        (EXPIRED, None),
        (replace(EXPIRED, lease_ends_in_s=-2_000.0), None),
        (replace(PENDING, is_saved=True), None),
        (COMMITTED, None),
        (COMMITTED, 0),
        (COMMITTED, 1),
        (replace(COMMITTED, ended_for_s=2_000.0), 0),
    ],
)
def test_a_unit_that_needs_an_operator_has_a_command_on_the_page(
    office: Office, unit: OpenUnit, unfinished: int | None
) -> None:
    listed = ListedUnit(unit, unfinished)
    advice = listed.advice
    assert (advice is not None and advice.command is not None) == listed.needs_you
    assert advice is None or advice.command in (None, f"ticketlock units settle {unit.unit}")
    commands = [f"ticketlock {ON_UNITS} settle {unit.unit}"] if listed.needs_you else []
    root = office.page(unit, unfinished=unfinished)
    assert root.texts("code", "command") == commands
    left = "" if unit.state is Outcome.PENDING else f", {'?' if unfinished is None else unfinished} unfinished"
    assert root.texts("small") == [f"2 items{left}"]


@pytest.mark.verify("starts a browser, and installs one where there is none")
@pytest.mark.parametrize(
    ("width", "dark", "age_s"), [(PHONE, True, 10), (PHONE, False, 10**7), (TABLET, True, 10), (DESK, False, 10**7)]
)
def test_in_a_browser_it_fits_the_screen_and_can_be_read_and_loads_nothing(
    office: Office, tmp_path: Path, width: int, dark: bool, age_s: float
) -> None:
    two_queues(office)
    for owner in ("holder", "waiter"):
        office.comes("x" * 1_024, owner * 30, data="y" * 256)
    office.table.set_limit(LockName("x" * 1_024), 0, why="z" * 256)
    old = replace(PENDING, is_saved=True, age_s=age_s)
    (tmp_path / "report.html").write_text(office.shown(EXPIRED, PENDING, COMMITTED, old))
    script = f"""
    if (document.querySelector("footer") === null) return undefined;
    {CONTRAST}
    const bars = [...document.querySelectorAll(".age i")].map(each => each.getBoundingClientRect().width);
    const labels = [...document.querySelectorAll(".axis")].map(axis => [...axis.children]
      .map(each => each.getBoundingClientRect()).filter(each => each.width > 0));
    const apart = labels.flatMap(all => all.slice(1).map((each, place) => each.left - all[place].right));
    const loaded = window.performance.getEntriesByType("resource").map(each => each.name);
    const tooWide = Math.max(0, document.documentElement.scrollWidth - window.innerWidth);
    return [tooWide, loaded, bars.length, Math.min(...bars), Math.min(...apart), least];
    """
    with served(tmp_path) as site:
        too_wide, loaded, bars, least_bar, apart, contrast = site.ask("/report.html", script, width=width, dark=dark)
    assert (too_wide, loaded, site.console) == (0, [], [])
    assert (bars, least_bar > 0, apart > 0) == (13, True, True)
    assert contrast >= 4.5


@pytest.mark.verify("starts a browser, and installs one where there is none")
@pytest.mark.parametrize("age_s", [1, 1_800, 10_800, 80_000])
def test_on_the_smallest_phone_no_label_of_the_scale_is_on_another(
    office: Office, tmp_path: Path, age_s: float
) -> None:
    (tmp_path / "report.html").write_text(office.shown(replace(PENDING, age_s=age_s)))
    script = """
    if (document.querySelector("footer") === null) return undefined;
    const boxes = [...document.querySelector(".axis").children].map(each => each.getBoundingClientRect())
      .filter(each => each.width > 0);
    return [boxes.length, Math.min(...boxes.slice(1).map((each, place) => each.left - boxes[place].right))];
    """
    with served(tmp_path) as site:
        labels, apart = site.ask("/report.html", script, width=320)
    assert (labels, apart > 2) == (2, True)


@pytest.mark.verify("starts a browser, and installs one where there is none")
def test_a_browser_would_neither_run_a_script_on_it_nor_load_a_picture(office: Office, tmp_path: Path) -> None:
    planted = "<script>document.title = 'it ran'</script><img src='picture.svg'></footer>"
    (tmp_path / "report.html").write_text(office.shown().replace("</footer>", planted))
    (tmp_path / "picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>")
    script = """
    const picture = document.querySelector("footer img");
    return picture === null ? undefined : [document.title, picture.naturalWidth];
    """
    with served(tmp_path) as site:
        assert site.ask("/report.html", script) == ["0 stuck: locks of locks", 0]
    assert len(site.console) == 2
