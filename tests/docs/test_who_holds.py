"""What the runbook types without the command: the AWS CLI reads a lock that clients hold and wait for."""

import json
from pathlib import Path

import pytest
from kit.aws_cli import run_script
from kit.pages import blocks
from ticketlock_local.cloud.deploy import client_environment

from ticketlock import Claim, LockName, LockTable, Position
from ticketlock.cli._local import serving
from ticketlock.testing import MemoryDynamoDB

pytestmark = pytest.mark.verify("installs the AWS CLI where it is not yet")

LEASE_MS = 60_000


def test_one_query_of_the_aws_cli_shows_the_holders_of_a_lock_and_its_queue(tmp_path: Path) -> None:
    (script,) = (each for each in blocks("docs/runbook.md", "sh") if "aws dynamodb query" in each)
    memory = MemoryDynamoDB()
    table = LockTable("locks", client=memory.client)
    lock = LockName("order-42")
    claims = [Claim(lock, owner, LEASE_MS, permits=2) for owner in ("ann", "ben", "cat", "dan")]
    for claim in claims[:2]:
        table.take_ticket(claim, None)
    for claim in claims[2:]:
        assert isinstance(table.take_ticket(claim, None), Position)
    for other in (LockName("order-42", "default-2"), LockName("order-421")):
        table.take_ticket(Claim(other, "eve", LEASE_MS), None)
    # An operator's decision leaves a record in the item, beside the holders'.
    item = table.inspect(lock).item
    assert item is not None
    table.force_release(lock, item.holders[0].fencing_token)
    with serving(memory, port=0) as endpoint:
        said = run_script(script, env=client_environment(endpoint), folder=tmp_path)
    now, _, found = said.partition("\n")
    shown = json.loads(found)
    assert [each["owner"] for each in shown["holders"]] == ["ben"]
    assert [each["owner"] for each in shown["waiters"]] == ["cat", "dan"]
    now_ms = int(now.removeprefix("now: "))
    for each in (*shown["holders"], *shown["waiters"]):
        assert 0 < int(each["until"]) - now_ms <= LEASE_MS + 5_000
