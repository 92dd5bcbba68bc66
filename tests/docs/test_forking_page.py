"""The Python of docs/processes-that-fork.md, each block a program of its own that really forks."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import boto3
import pytest
from kit.pages import python_blocks, text
from ticketlock_local.cloud.deploy import client_arguments, client_environment

from ticketlock import create_table
from ticketlock.cli._local import serving
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units import create_units_table

pytestmark = pytest.mark.verify("each example is a process, and forks")

PAGE = "docs/processes-that-fork.md"
# What the server does: it forks, and calls the hook in the child, which then takes a lock.
IN_A_CHILD = """
import os, sys
child = os.fork()
if child == 0:
    {hook}
    with {locks}.acquire("order-42") as lease:
        print(lease.fencing_token > 0, flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
THE_SAME_IN_A_CHILD = """
import os, sys
{before}
child = os.fork()
if child == 0:
{work}
    sys.stdout.flush()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
CELERY = """
class Signal:
    def connect(self, receiver):
        self.receiver = receiver
        return receiver

worker_process_init = Signal()
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A lock table, and beside the program the modules of others that it imports."""
    (tmp_path / "shop.py").write_text("locks = None\n")
    (tmp_path / "celery").mkdir()
    (tmp_path / "celery" / "__init__.py").write_text("")
    (tmp_path / "celery" / "signals.py").write_text(CELERY)
    with serving(MemoryDynamoDB(lock_table=None), port=0) as endpoint:
        client = boto3.client("dynamodb", **client_arguments(endpoint))
        create_table("locks", client=client)
        create_units_table("units", client=client)
        client.create_table(
            TableName="accounts",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield {**os.environ, **client_environment(endpoint)}


def run(source: str, environment: dict[str, str], folder: Path) -> str:
    program = folder / "program.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def block(word: str) -> str:
    (found,) = (source for _, source in python_blocks(PAGE) if word in source)
    return found


def test_the_parents_client_is_refused_as_the_page_says(environment: dict[str, str], tmp_path: Path) -> None:
    (said,) = re.findall(r"^```text\n(.*?)\n```$", text(PAGE), re.DOTALL | re.MULTILINE)
    assert re.sub(r"\d+", "0", run(block("ClientClosed"), environment, tmp_path)).strip() == re.sub(r"\d+", "0", said)


@pytest.mark.parametrize(
    ("word", "hook", "locks"),
    [
        ("client_of", "pass", "locks()"),
        ("post_fork", "post_fork(None, None); import shop", "shop.locks"),
        ("celery", "worker_process_init.receiver(sender=None)", "locks"),
    ],
)
def test_a_child_that_was_made_as_the_page_says_takes_a_lock(
    word: str, hook: str, locks: str, environment: dict[str, str], tmp_path: Path
) -> None:
    printed = run(block(word) + IN_A_CHILD.format(hook=hook, locks=locks), environment, tmp_path)
    assert printed.splitlines()[-1] == "True"


def test_what_is_decorated_at_the_call_takes_its_lock_in_the_child(environment: dict[str, str], tmp_path: Path) -> None:
    work = THE_SAME_IN_A_CHILD.format(before="locks()", work=indent(block("def charge"), "    "))
    printed = run(block("client_of") + work, environment, tmp_path)
    assert printed.splitlines()[-2:] == ["42 shipped", "42 charged"]


def test_a_child_has_units_and_tables_of_its_own(environment: dict[str, str], tmp_path: Path) -> None:
    put = "put = units_of(os.getpid())\nwith put[0].begin() as unit: unit.put(put[1], {'id': 'ann', 'balance': 10})"
    work = "    pay('ann', 3)\n    units, accounts = units_of(os.getpid())\n"
    work += "    print(units.get(accounts, {'id': 'ann'})['balance'])"
    printed = run(block("units_of") + THE_SAME_IN_A_CHILD.format(before=put, work=work), environment, tmp_path)
    assert printed.splitlines() == ["7"]


def test_the_processes_of_a_pool_take_locks(environment: dict[str, str], tmp_path: Path) -> None:
    assert len(re.findall(r"\d+", run(block("multiprocessing"), environment, tmp_path))) == 4
