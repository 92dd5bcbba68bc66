"""The Python of docs/python.md for processes that fork, in a process that really does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from kit.pages import python_blocks
from ticketlock_local.cloud.deploy import client_arguments, client_environment

from ticketlock import create_table
from ticketlock.cli._local import serving
from ticketlock.testing import MemoryDynamoDB

pytestmark = pytest.mark.verify("starts processes, which fork")

BEFORE = """
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


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with serving(MemoryDynamoDB(lock_table=None), port=0) as endpoint:
        create_table("locks", client=boto3.client("dynamodb", **client_arguments(endpoint)))
        yield {**os.environ, **client_environment(endpoint)}


def test_the_function_that_creates_the_client_works_before_and_after_a_fork(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (block,) = (source for _, source in python_blocks("docs/python.md") if "client_of" in source)
    program = tmp_path / "program.py"
    program.write_text(BEFORE.format(block=block))
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "42 packed", "True", "43 packed"]
