"""The fixtures of ticketlock.testing in projects of users, each with a pytest of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
CODE = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
A_TEST = re.compile(r"^(?:async )?def test_", re.MULTILINE)
CONFTEST = 'pytest_plugins = ["ticketlock.testing.pytest_fixtures"]\n'

OF_ONE_TEST = """
import asyncio
import pytest
import pytest_asyncio

async def hold(locks, for_s):
    async with locks.acquire("order-42", lease=30):
        await asyncio.sleep(for_s)

@pytest_asyncio.fixture
async def late():
    await asyncio.sleep(7)

@pytest.mark.asyncio
@pytest.mark.parametrize("_", range(2))
async def test_time_begins_anew_and_passes_while_all_wait(late, ticketlock_aio_locks, ticketlock_clock, _):
    assert ticketlock_clock.local_s == 7
    await asyncio.gather(hold(ticketlock_aio_locks, 50), hold(ticketlock_aio_locks, 50))
    assert ticketlock_clock.local_s == pytest.approx(107, abs=2)

@pytest.mark.asyncio
async def test_a_unit_is_committed(ticketlock_aio_units, ticketlock_memory):
    id = {"AttributeName": "id"}
    ticketlock_memory.create_table(
        TableName="accounts", KeySchema=[{**id, "KeyType": "HASH"}],
        AttributeDefinitions=[{**id, "AttributeType": "S"}], BillingMode="PAY_PER_REQUEST",
    )
    accounts = await ticketlock_aio_units.table("accounts")
    async with ticketlock_aio_units.begin() as unit:
        await unit.put(accounts, {"id": "ann"}, condition="attribute_not_exists(id)")
    assert ticketlock_memory.plain_items("accounts")[0]["id"] == "ann"

@pytest.mark.asyncio
async def test_others_have_a_loop_of_asyncios():
    assert type(asyncio.get_running_loop()).__module__.startswith("asyncio.")

def test_threads_have_their_own_time(ticketlock_locks, ticketlock_clock):
    ticketlock_clock.sleep(3)
    assert ticketlock_clock.local_s == 3
"""
OF_A_MODULE = """
import asyncio
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

@pytest.mark.parametrize("passed_s", [1_000, 2_000])
async def test_the_tests_of_one_loop_have_one_clock(ticketlock_aio_locks, ticketlock_clock, passed_s):
    lease = await ticketlock_aio_locks.acquire("order-42", lease=30)
    await asyncio.sleep(1_000)
    assert lease.is_held()
    assert ticketlock_clock.local_s == passed_s
"""
OF_ANYIO = """
import asyncio
import pytest

@pytest.fixture
def anyio_backend(ticketlock_clock):
    return "asyncio", {"loop_factory": ticketlock_clock.new_event_loop}

@pytest.mark.anyio
async def test_time_passes(ticketlock_aio_locks, ticketlock_clock):
    async with ticketlock_aio_locks.acquire("order-42", lease=30):
        await asyncio.sleep(1_000)
    assert ticketlock_clock.local_s == 1_000
"""


def passes(folder: Path, files: dict[str, str], *options: str) -> None:
    """A pytest that runs these files, and fails at any warning."""
    for name, code in files.items():
        (folder / name).write_text(code, encoding="utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", str(folder)]
    done = subprocess.run(
        [*run, *options, str(folder)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def of_asyncio(scope: str) -> tuple[str, str]:
    """pytest-asyncio warns unless it is told in which loops fixtures run."""
    return "-o", f"asyncio_default_fixture_loop_scope={scope}"


def test_the_examples_of_the_page_are_code_that_runs(tmp_path: Path) -> None:
    files = dict(CODE.findall(PAGE.read_text(encoding="utf-8")))
    assert {"conftest.py", "test_stock.py", "test_packing.py", "test_shipping.py", "test_on_moto.py"} < files.keys()
    assert all(A_TEST.search(code) for name, code in files.items() if name.startswith("test_"))
    passes(tmp_path, files, *of_asyncio("function"))


@pytest.mark.parametrize(
    ("code", "options"),
    [
        (OF_ONE_TEST, of_asyncio("function")),
        (OF_A_MODULE, of_asyncio("module")),
        (OF_ANYIO, of_asyncio("function")),
        (OF_ANYIO, ("-p", "no:asyncio")),
    ],
    ids=["pytest-asyncio", "a loop of a module", "anyio beside it", "anyio alone"],
)
def test_clients_for_tasks_are_fixtures_whose_loop_goes_by_the_clock(
    tmp_path: Path, code: str, options: tuple[str, ...]
) -> None:
    passes(tmp_path, {"conftest.py": CONFTEST, "test_users.py": code}, *options)
