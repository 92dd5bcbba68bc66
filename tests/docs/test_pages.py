"""The pages: their Python runs, block after block, as a reader would type it; links and names lead somewhere.

What boto3 sends is answered from memory, what aiobotocore sends by the emulator. Each promise has tests, the reference
has all that is public, and docs/how-it-works.md and its pictures say what the code says.
"""

import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import boto3
import pytest
from docs.conftest import make_table
from kit.pages import ALL_PAGES, ROOT, functions_of, python_blocks, text
from tables import promises
from tables.state_machine import DEFINITION, flowcharts
from ticketlock_local.cloud.deploy import client_environment

from ticketlock import LockClient, create_table
from ticketlock.cli._local import serving
from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.locks._writes import JOIN_DEADLINE_MS
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import create_units_table
from ticketlock.workflow._turn import FIRST_BEATS, FIRST_POLLS

PAGES = ("docs/coming-from.md", "docs/python.md", "docs/units.md", "docs/save-and-resume.md", "docs/units-table.md")
KEYS = {"orders": {"id": "S"}, "accounts": {"id": "S"}, "lines": {"order": "S", "number": "N"}}
OF_UNITS = "from ticketlock.units import"


def make_tables(dynamodb: Any) -> None:
    """What the pages speak of beside what they make: orders and their lines, and the accounts of two people."""
    for name, keys in KEYS.items():
        make_table(dynamodb, name, **keys)
    for name in ("ann", "ben"):
        dynamodb.put_item(TableName="accounts", Item={"id": {"S": name}, "balance": {"N": "100"}})


@pytest.fixture
def in_memory(boto3_in_memory: MemoryDynamoDB) -> None:
    """The tables, beside what a page makes; every client of boto3 is answered from memory."""
    make_tables(boto3_in_memory)
    create_table("locks")
    create_units_table("units")


@pytest.fixture
def signal_handlers_are_put_back() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("in_memory", "signal_handlers_are_put_back")
def test_the_python_of_a_page_runs(page: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "aio." in text(page):
        endpoint = request.getfixturevalue("emulator").endpoint
        dynamodb = boto3.Session().client("dynamodb", endpoint_url=endpoint)
        create_table("locks", client=dynamodb)
        if OF_UNITS in text(page):
            make_tables(dynamodb)
            create_units_table("units", client=dynamodb)
            for name in (*KEYS, "units"):
                request.addfinalizer(partial(dynamodb.delete_table, TableName=name))
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
    # A block that begins with a file's name is that file: tests/testing/test_testing.py runs it.
    blocks = [(line, block) for line, block in python_blocks(page) if not re.match(r"# \S+\.py\n", block)]
    assert blocks
    names: dict[str, Any] = {}
    try:
        for line, block in blocks:
            exec(compile("\n" * line + block, str(ROOT / page), "exec"), names)
    finally:
        for each in names.values():
            if isinstance(each, LockClient):
                each.close()


@pytest.mark.usefixtures("in_memory")
def test_the_units_of_the_readme_are_committed() -> None:
    (block,) = [source for _, source in python_blocks("README.md") if OF_UNITS in source]
    names: dict[str, Any] = {}
    exec(block, names)
    exec(block, names)
    units, accounts = names["units"], names["accounts"]
    found = units.get_all([(accounts, {"id": name}) for name in ("ann", "ben")])
    # Its name is used once.
    assert [each["balance"] for each in found] == [90, 110]


FORKS = """
from ticketlock import LockClient
{block}
child = os.fork()
if child == 0:
    with my_locks().acquire("order-43") as lease:
        print(lease.fencing_token > 0, flush=True)
    print(my_locks().serialized("order-{{order_id}}")(pack)(43), flush=True)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.verify("starts a process, which forks")
def test_the_function_that_creates_the_client_works_before_and_after_a_fork(tmp_path: Path) -> None:
    (block,) = (source for _, source in python_blocks("docs/python.md") if "client_of" in source)
    program = tmp_path / "program.py"
    program.write_text(FORKS.format(block=block))
    with serving(MemoryDynamoDB(), port=0) as endpoint:
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, **client_environment(endpoint)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "42 packed", "True", "43 packed"]


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text(page)):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}, (
                f"{link} is no heading"
            )


@pytest.mark.parametrize(("version", "told"), [("20.20.2", True), ("22.0.0", False), ("24.1.0", False)])
def test_an_older_node_than_the_pages_ask_for_is_told_in_one_line(version: str, told: bool) -> None:
    (script,) = re.findall(r"@node -e '(.*)'$", text("Makefile"), re.MULTILINE)
    (supported,) = re.findall(r">= (\d+)", script)
    pages = ("README.md", "CONTRIBUTING.md", "Makefile")
    assert {page: set(re.findall(r"Node \(?(\d+)", text(page))) for page in pages} == {
        page: {supported} for page in pages
    }
    as_another = f"Object.defineProperty(process, 'versions', {{value: {{node: '{version}'}}}}); {script}"
    done = subprocess.run(["node", "-e", as_another], capture_output=True, text=True, check=True, timeout=60)
    said = f"Node {version}: the CDK supports {supported} and newer"
    assert [line.startswith(said) for line in done.stderr.splitlines()] == ([True] if told else [])


COMMANDS = frozenset(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))


@pytest.fixture(scope="module")
def functions() -> frozenset[str]:
    """The names of all tests; two suites take some from ``kit.sentences``."""
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("tests/kit/sentences/*.py")]
    return frozenset[str]().union(*map(functions_of, files))


@pytest.mark.parametrize("page", ALL_PAGES)
def test_what_a_page_names_is_there(page: str, functions: frozenset[str]) -> None:
    prose = re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)
    files = {name.partition(" -k ")[0].partition("::")[0] for name in re.findall(r"`(tests/[^`]*)`", prose)}
    assert [name for name in sorted(files) if not any(ROOT.glob(name))] == []
    assert set(re.findall(r"`(test_\w+)`", prose)) - functions == set()
    assert set(re.findall(r"`make ([\w-]+)", prose)) - COMMANDS == set(), "no target of the Makefile"


def test_each_promise_is_in_the_page_and_tests_show_no_other() -> None:
    names = {name for group in promises.PROMISES.values() for name in group}
    page = text("docs/guarantees.md")
    told = " ".join(re.findall(r"^#+ .*$|\*\*[^*]+\*\*", page, re.MULTILINE)).lower()
    assert {name for name in names if name.lower() not in " ".join(told.split())} == set()
    assert {each.promise for each in promises.shown()} - names == set()


def test_make_test_asks_every_promise() -> None:
    asked = {each.promise for each in promises.shown() if each.in_make_test}
    missing = {name for group in promises.PROMISES.values() for name in group} - asked
    assert missing == set(), "no test of `make test` shows it: the marker `always` adds one"


LEFT = 'pytestmark = [pytest.mark.verify("slow"), pytest.mark.shows("order")]\n'


@pytest.mark.parametrize(
    ("source", "is_run"),
    [
        ('pytestmark = pytest.mark.shows("order")\n', True),
        (LEFT, False),
        (LEFT + '@pytest.mark.always("needed")\ndef test_it(): ...\n', True),
        ('@pytest.mark.shows("order")\ndef test_it(): ...\n', True),
        ('@pytest.mark.verify("slow")\n@pytest.mark.shows("order")\ndef test_it(): ...\n', False),
        ('class TestIt:\n    @pytest.mark.shows("order")\n    def test_it(self): ...\n', True),
    ],
)
def test_a_file_that_make_test_does_not_run_is_distinguished_from_others(
    tmp_path: Path, source: str, is_run: bool
) -> None:
    (tmp_path / "test_it.py").write_text(source)
    assert list(promises.shown(tmp_path)) == [promises.Shown("order", "test_it.py", is_run)]


REFERENCE = {path.stem: path.read_text() for path in (ROOT / "docs" / "reference").glob("*.rst")}
MODULES = (
    "ticketlock",
    "ticketlock.aio",
    "ticketlock.durable",
    "ticketlock.errors",
    "ticketlock.testing",
    "ticketlock.testing.durable",
    "ticketlock.units",
    "ticketlock_cdk",
)


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Classes and functions of a module, and the methods and properties that classes have of ours."""
    found = importlib.import_module(module)
    for name in found.__all__:
        member = getattr(found, name)
        if inspect.isclass(member):
            yield name, member
            for method in (each for each in dir(member) if not each.startswith("_")):
                given = inspect.getattr_static(member, method)
                given = getattr(given, "fget", None) or getattr(given, "__func__", given)
                if inspect.isfunction(given) and given.__module__.startswith("ticketlock"):
                    yield f"{name}.{method}", given
        elif inspect.isfunction(member):
            yield name, member


@pytest.mark.parametrize("module", MODULES)
def test_every_public_class_and_method_says_what_it_is(module: str) -> None:
    members = list(public(module))
    assert members
    assert [name for name, member in members if not inspect.getdoc(member)] == []


def test_every_public_module_has_a_page() -> None:
    assert {name for page in REFERENCE.values() for name in re.findall(r"automodule:: (\S+)", page)} == set(MODULES)


# What a page leaves to a picture on a phone, and the smallest letters there.
PHONE_PX, LETTERS_PX = 350, 8


def states_of(states: dict[str, Any]) -> set[str]:
    inner = [branch["States"] for state in states.values() for branch in state.get("Branches", ())]
    return set(states).union(*map(states_of, inner))


def test_the_picture_of_the_demo_can_be_read_on_a_phone() -> None:
    picture = ElementTree.parse(ROOT / "docs" / "demo.svg").getroot()
    scale = min(1.0, PHONE_PX / float(picture.attrib["width"]))
    sizes = [float(size) for each in picture.iter() if (size := each.get("font-size"))]
    assert min(sizes) * scale >= LETTERS_PX


def test_every_state_of_the_definition_is_drawn_and_in_the_page() -> None:
    names = states_of(DEFINITION["States"])
    assert {name for name in names if name not in flowcharts()} == set()
    assert {name for name in names if f"`{name}`" not in text("docs/how-it-works.md")} == set()


def test_a_definition_that_leads_elsewhere_is_drawn_otherwise() -> None:
    changed = json.loads(json.dumps(DEFINITION))
    changed["States"]["TakeTicket"]["Next"] = "CheckPosition"
    differing = set(flowcharts(changed).splitlines()) - set(flowcharts().splitlines())
    assert differing == {"  TakeTicket --> CheckPosition"}


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    told = " ".join(text("docs/how-it-works.md").lower().split())
    assert f"within {JOIN_DEADLINE_MS // 1_000} s of the ticket" in told
    assert f"and {EXPIRY_MARGIN_MS // 1_000} s more" in told
    assert f"after {FIRST_POLLS} polls" in told
    assert f"after {FIRST_BEATS} heartbeats" in told
