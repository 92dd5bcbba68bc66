"""`ticketlock report`: what is on the page and in which order, texts of other users on it, and how it is written."""

import os
import resource
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli.left_units import AGO_S, left
from cli.seen import EXECUTION, WRONG_WORDS, printed
from click.testing import CliRunner, Result
from kit.opened import served
from kit.units import Books

from ticketlock import Claim, LockName, LockTable, create_table
from ticketlock.cli import _commands
from ticketlock.cli._advice import advice_on_unit, needs_you
from ticketlock.cli._local import serving
from ticketlock.cli._page import MOST_HOLDERS, MOST_LOCKS, MOST_UNITS, MOST_WAITERS, Scale, page
from ticketlock.cli._reading import URGENT, Line, TableReader
from ticketlock.cli._settings import CommandSettings
from ticketlock.cli._show import state_tables
from ticketlock.cli._units_reports import ListedUnit
from ticketlock.cli._verdicts import judge
from ticketlock.locks._items import Session
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units import OpenUnit, Outcome

VOID = {"meta", "link"}
ON_LOCKS, ON_UNITS = "--table locks --region us-east-1", "units --units-table units --region us-east-1"
PHONE, TABLET, DESK = 390, 720, 1280
# Of other users; the last begins with the sign that turns the direction of what follows.
HOSTILE = ["<script>alert(1)</script>", '"><img src=//evil onerror=alert(1)>', "`limit a 0`", "\u202eevil\n"]
PENDING = OpenUnit(
    unit="01KAQBT0E4SA1M0SPPS3EJ8KYB",
    state=Outcome.PENDING,
    is_closed=False,
    age_s=10.0,
    lease_ends_in_s=50.0,
    ended_for_s=None,
    items=2,
    rolled_back_by=None,
    is_saved=False,
    owner=None,
)
EXPIRED = replace(PENDING, lease_ends_in_s=-1.0)
COMMITTED = replace(PENDING, state=Outcome.COMMITTED, lease_ends_in_s=None, ended_for_s=60.0)


@dataclass
class Node:
    """An element of a page that was parsed."""

    tag: str
    attributes: dict[str, str]
    inside: list["Node | str"] = field(default_factory=list)

    def all(self, tag: str = "", kind: str = "") -> Iterator["Node"]:
        """Itself and the elements in it with this tag and class."""
        if tag in ("", self.tag) and (not kind or kind in self.attributes.get("class", "").split()):
            yield self
        for each in self.inside:
            if isinstance(each, Node):
                yield from each.all(tag, kind)

    def texts(self, tag: str = "", kind: str = "") -> list[str]:
        """What is written in each of them."""
        return [each.text for each in self.all(tag, kind)]

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.inside)


class Parsed(HTMLParser):
    """The elements of a page, each of which is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open = [Node("", {})]
        self.feed(text)
        self.close()
        (self.root,) = self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Node(tag, {name: value or "" for name, value in attrs})
        self._open[-1].inside.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].inside.append(data)


class Office:
    """Locks in memory, and the page about them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = LockTable(
            "locks", client=MemoryDynamoDB(clock=self.clock).client, clocks=self.clock, sleep=self.clock.sleep
        )

    def comes(
        self, entity: str, owner: str, lease_s: int = 36_000, *, permits: int = 1, parks: bool = False, data: str = ""
    ) -> None:
        session = Session(owner, "serialize") if parks else None
        claim = Claim(LockName(entity), owner, lease_s * 1_000, permits=permits, session=session, data=data or None)
        self.table.take_ticket(claim, None)

    @property
    def reader(self) -> TableReader:
        return TableReader(
            settings=CommandSettings(table="locks", units_table="units"),
            table=self.table,
            desk=None,
            namespace=None,
            prefix="",
            order=URGENT,
            stuck=False,
        )

    def shown(self, *units: OpenUnit, unfinished: int | None = None) -> str:
        listed = [ListedUnit(each, unfinished) for each in units]
        return page(self.reader, "eu-west-1", replace(self.reader.read(whole=MOST_LOCKS), units=listed))

    def page(self, *units: OpenUnit, unfinished: int | None = None) -> Node:
        return Parsed(self.shown(*units, unfinished=unfinished)).root


@pytest.fixture
def office() -> Office:
    return Office()


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


def test_a_lock_that_was_closed_before_its_first_use_has_the_command_that_show_prints(office: Office) -> None:
    lock = LockName("order-42")
    office.table.set_limit(lock, 0)
    for owner in ("web-1:10", "web-2:20"):
        office.comes(lock.entity, owner, permits=3)
    (command,) = office.page().texts("code", "command")
    assert command == f"ticketlock {ON_LOCKS} limit order-42 3 --unset"
    shown = command.replace(f"{ON_LOCKS} ", "")
    assert shown in printed(state_tables(lock, office.table.inspect(lock)), 400)


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
    assert [line.listed.waiting for line in office.reader.read().locks] == [2]
    office.clock.advance(120)
    assert office.reader.read().locks == []


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
    reading = office.reader.read()
    unread = Line(replace(reading.locks[0].listed, front=None), judge(None))
    root = Parsed(page(office.reader, "eu-west-1", replace(reading, locks=[unread]))).root
    (lock,) = root.all("article")
    assert (lock.texts("h3"), lock.texts("span", "chip")) == (["order-42"], ["not readable"])
    assert "`" not in lock.text
    assert lock.texts("code") == [f"ticketlock {ON_LOCKS} doctor"]


def test_without_locks_and_units_the_page_says_so(office: Office) -> None:
    assert office.page().texts("p", "card") == ["No lock is busy.", "No unit is open."]


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


def shape(node: Node) -> object:
    """The tags and the names of attributes, without any text."""
    return node.tag, sorted(node.attributes), [shape(each) for each in node.inside if isinstance(each, Node)]


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
    advice = advice_on_unit(listed)
    assert (advice is not None and advice.command is not None) == needs_you(listed)
    assert advice is None or advice.command in (None, f"ticketlock units settle {unit.unit}")
    commands = [f"ticketlock {ON_UNITS} settle {unit.unit}"] if needs_you(listed) else []
    root = office.page(unit, unfinished=unfinished)
    assert root.texts("code", "command") == commands
    left = "" if unit.state is Outcome.PENDING else f", {'?' if unfinished is None else unfinished} unfinished"
    assert root.texts("small") == [f"2 items{left}"]


@pytest.fixture
def tables(memory: MemoryDynamoDB, books: Books, monkeypatch: pytest.MonkeyPatch) -> Iterator[Books]:
    """Tables whose locks are closed, one in another namespace, and the environment of a shell that uses them."""
    create_table("locks", client=memory.client)
    table = LockTable("locks", client=memory.client)
    for lock in (LockName("a-1"), LockName("b-1"), LockName("a-2", "others")):
        for owner in ("holder", "waiter"):
            table.take_ticket(Claim(lock, owner, 300_000), None)
    table.set_limit(LockName("b-1"), 0)
    with serving(memory, port=0) as url:
        for name, value in {"AWS_ENDPOINT_URL": url, "TICKETLOCK_TABLE": "locks"}.items():
            monkeypatch.setenv(name, value)
        yield books


def report(*words: object) -> Result:
    return CliRunner().invoke(_commands._ticketlock, ["report", *map(str, words)])


@pytest.mark.usefixtures("tables")
def test_options_say_what_is_on_the_page(tables: Books) -> None:
    unit = left(tables, ["a"], ago_s=AGO_S)

    def headings(*words: str) -> list[str]:
        done = report("-o", "-", *words)
        assert (done.exit_code, done.stderr) == (0, "")
        root = Parsed(done.stdout).root
        return root.texts("h3") + [text for text in root.texts("code") if text == unit]

    assert headings() == ["b-1", "a-1", "a-2"]
    assert headings("--prefix", "a") == ["a-1", "a-2"]
    assert headings("--namespace", "others") == ["a-2"]
    assert headings("--stuck", "--units-table", "units") == ["b-1", unit]
    (counts,) = Parsed(report("-o", "-", "--stuck").stdout).root.all("dl", "counts")
    assert list(zip(counts.texts("dd"), counts.texts("dt"), strict=True))[:3] == [
        ("1", "stuck"),
        ("3", "busy"),
        ("3", "waiting"),
    ]


@pytest.mark.usefixtures("tables")
def test_the_file_is_replaced_in_one_step_and_keeps_its_permissions(tmp_path: Path) -> None:
    file, link = tmp_path / "report.html", tmp_path / "link.html"
    assert report("-o", file).exit_code == 0
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask
    file.chmod(0o640)
    link.symlink_to(file)
    with file.open() as served_now:
        assert report("-o", link, "--stuck").exit_code == 0
        before, after = served_now.read(), file.read_text()
    assert [Parsed(text).root.texts("h3") for text in (before, after)] == [["b-1", "a-1", "a-2"], ["b-1"]]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, file]


@pytest.mark.usefixtures("tables")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reads = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert report("-o", pipe).exit_code == 0
        assert Parsed(os.read(reads, 1_000_000).decode()).root.texts("h3")[0] == "b-1"
    finally:
        os.close(reads)
    assert pipe.is_fifo()


@pytest.mark.usefixtures("tables")
def test_a_pipe_may_be_written_by_the_name_of_its_descriptor() -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads) as pipe:
        try:
            assert report("-o", f"/dev/fd/{writes}").exit_code == 0
        finally:
            os.close(writes)
        assert Parsed(pipe.read()).root.texts("h3")[0] == "b-1"


@pytest.mark.usefixtures("tables")
def test_a_page_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("old")
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, most))
    try:
        done = report("-o", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (done.exit_code, done.stdout) == (WRONG_WORDS, "")
    assert "cannot be written: File too large" in done.stderr
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("report.html", "old")]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("words", [(), ("-o", "."), ("-o", "missing/report.html")])
def test_without_a_file_that_it_may_write_it_is_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = report(*words)
    assert (done.exit_code, done.stdout) == (WRONG_WORDS, "")
    assert "-o" in done.stderr
    assert list(tmp_path.iterdir()) == []


# The least contrast of a text with what is behind it, by WCAG 2.
CONTRAST = r"""
const bright = colour => colour.match(/[\d.]+/g).slice(0, 3).map(each => each / 255)
  .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
  .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
const behind = element => {
  const colour = window.getComputedStyle(element).backgroundColor;
  return colour.startsWith("rgb(") ? colour : behind(element.parentElement);
};
const least = Math.min(...[...document.querySelectorAll("body *")]
  .filter(each => [...each.childNodes].some(inside => inside.nodeType === 3))
  .map(each => [bright(window.getComputedStyle(each).color), bright(behind(each))].sort((one, two) => one - two))
  .map(([dark, light]) => (light + 0.05) / (dark + 0.05)));
"""


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
