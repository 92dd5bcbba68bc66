"""The timeline in a terminal and as a picture."""

from xml.etree import ElementTree

import pytest
from rich.console import Console
from ticketlock_local.demo.executions import Execution
from ticketlock_local.demo.picture import picture
from ticketlock_local.demo.run import plan, table
from ticketlock_local.demo.timeline import Lines, Timeline, axis, lane

pytestmark = pytest.mark.verify("tests no part of the product")

SVG = "{http://www.w3.org/2000/svg}"
WAITER = Execution(name="b", entity="order-42", started_ms=1_000, ticket_ms=2_000, ticket=8)
DONE = Execution(
    name="a",
    entity="order-42",
    status="SUCCEEDED",
    started_ms=1_000,
    ticket_ms=2_000,
    ticket=12_345,
    fencing_token=12_346,
    held_from_ms=4_000,
    held_until_ms=6_000,
    work_started_ms=4_500,
    work_ended_ms=5_500,
    ended_ms=6_000,
)


def printed(what: object, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_a_lane_distinguishes_asking_waiting_and_holding() -> None:
    assert lane(DONE, 0, 6_000, 500, 16) == "  ··────████    "


def test_the_lane_of_a_waiter_grows_with_the_clock() -> None:
    assert lane(WAITER, 0, 3_000, 500, 10) == "  ··──    "
    assert lane(WAITER, 0, 4_000, 500, 10) == "  ··────  "


def test_a_hold_too_short_for_the_scale_is_still_seen() -> None:
    assert "█" in lane(DONE, 0, 6_000, 100_000, 10)


@pytest.mark.parametrize("now_ms", [1_000, 2_500, 60_000])
def test_lanes_never_leave_their_space(now_ms: int) -> None:
    assert {len(lane(run, 1_000, now_ms, 100, 40)) for run in (WAITER, DONE)} == {40}


def test_the_axis_counts_seconds_no_closer_than_they_can_be_read() -> None:
    assert axis(10, 40) == "╵0 s    ╵2 s    ╵4 s    ╵6 s    ╵8 s    "


def test_the_timeline_groups_lanes_by_entity() -> None:
    other = Execution(name="c", entity="order-7", started_ms=1_000)
    lines = printed(Timeline([DONE, other, WAITER], 7_000)).splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["order-42", "a", "b", "order-7", "c"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_timeline_fits_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in printed(Timeline([DONE, WAITER], 7_000), width).splitlines())


def test_a_timeline_of_nothing_says_so() -> None:
    assert "starting" in printed(Timeline([], 0))


def test_the_table_has_ticket_token_waited_held_and_status() -> None:
    row = next(line for line in printed(table([DONE])).splitlines() if "12345" in line)
    assert row.split() == ["a", "12345", "12346", "3.00", "s", "2.00", "s", "SUCCEEDED"]


def test_names_in_brackets_are_no_markup() -> None:
    odd = Execution(name="[bold]x[/bold]", entity="[red]", started_ms=1)
    assert "[bold]x[/bold]" in printed(table([odd]))
    assert "[red]" in printed(Timeline([odd], 2))


def test_lines_come_in_the_order_of_the_events_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.show([WAITER], 1_500)
    lines.show([DONE, WAITER], 5_000)
    lines.show([DONE, WAITER], 7_000)
    assert capsys.readouterr().out.splitlines() == [
        "  0.00 s  b starts",
        "  0.00 s  a starts",
        "  1.00 s  b waits for its turn, ticket 8",
        "  3.00 s  a holds order-42: ticket 12345, fencing token 12346",
        "  5.00 s  a is done",
    ]


def test_the_picture_is_xml_that_stands_alone() -> None:
    root = ElementTree.fromstring(picture([DONE, WAITER]).to_svg())
    assert root.tag == f"{SVG}svg"
    assert {"a", "b", "One at a time for each entity, in ticket order", "order-42"} <= {
        text.text for text in root.iter(f"{SVG}text")
    }


@pytest.mark.parametrize("entity", ["<script>&\"'</script>", "日本 🎟", "]]>", "tab\there"])
def test_the_picture_escapes_what_an_entity_is_called(entity: str) -> None:
    run = Execution(name=entity, entity=entity, started_ms=1)
    root = ElementTree.fromstring(picture([run]).to_svg())
    assert root.find(f"{SVG}script") is None
    assert entity.replace("\t", "\N{REPLACEMENT CHARACTER}") in {text.text for text in root.iter(f"{SVG}text")}


@pytest.mark.parametrize("entity", ["\x00", "\x1b[31m", "\ud800", "￾"])
def test_the_picture_replaces_what_xml_cannot_write(entity: str) -> None:
    run = Execution(name="a", entity=entity, started_ms=1)
    svg = picture([run]).to_svg()
    assert "\N{REPLACEMENT CHARACTER}" in ElementTree.tostring(ElementTree.fromstring(svg.encode()), "unicode")


def test_the_picture_of_nothing_is_still_one() -> None:
    assert ElementTree.fromstring(picture([]).to_svg()).tag == f"{SVG}svg"


def test_the_demo_mixes_its_entities() -> None:
    planned = plan({"x": 3, "y": 1}, (0.5, 1.0))
    assert [(one.name, one.work_s) for one in planned] == [("x-01", 0.5), ("y-01", 0.5), ("x-02", 1.0), ("x-03", 0.5)]
