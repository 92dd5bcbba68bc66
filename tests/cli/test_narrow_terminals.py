"""`ticketlock ls` and `show` on a terminal of 80 columns: names as long as AWS makes them stay readable."""

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from ticketlock import LockClient, LockName
from ticketlock.cli._show import Listed, list_table, state_tables
from ticketlock.testing import MemoryDynamoDB

EXECUTION = (
    "arn:aws:states:eu-central-1:123456789012:execution:LockStateMachine0BC1E4B2-fN3q8Zr5xT1k:"
    "6f9d3d40-6a1c-4c1f-9a6e-6d2f5f0d9c11"
)


def printed(report: RenderableType) -> list[str]:
    console = Console(file=StringIO(), width=80, highlight=False)
    with console.capture() as captured:
        console.print(report)
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.fixture
def locks() -> LockClient:
    return LockClient("locks", client=MemoryDynamoDB().client)


def test_a_list_has_a_line_for_each_lock_with_the_end_of_a_long_holder(locks: LockClient) -> None:
    with locks.acquire("order-42", owner=EXECUTION):
        listed = [Listed(each, locks.table.inspect(each.lock)) for each in locks.table.list_locks()]
        headings, _, line = printed(list_table(listed))
    assert headings.split()[:3] == ["entity", "namespace", "holder"]
    holder = line.split()[2]
    assert (holder[0], EXECUTION.endswith(holder[1:])) == ("…", True)
    assert len(holder) >= 16


def test_a_lock_is_shown_with_a_line_for_each_value_if_the_holder_does_not_fit(locks: LockClient) -> None:
    with locks.acquire("order-42", owner=EXECUTION, data="deploys 1.4"):
        lines = printed(state_tables(LockName("order-42"), locks.inspect("order-42")))
    named = [line.split("   ")[0] for line in lines]
    assert named[2:9] == ["holder", "", "fencing token", "held for", "lease", "data", "No one waits."]
    assert "".join(line.removeprefix("holder").strip() for line in lines[2:4]) == EXECUTION


def test_a_lock_whose_names_fit_is_shown_as_a_table(locks: LockClient) -> None:
    with locks.acquire("order-42", owner="build-7"):
        lines = printed(state_tables(LockName("order-42"), locks.inspect("order-42")))
    assert lines[2].split() == ["holder", "fencing", "token", "held", "for", "lease", "data"]
