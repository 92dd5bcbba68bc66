"""The soak of units that ``make soak`` runs, for seconds: it breaks no promise, and it sees what is broken."""

from typing import Any

import pytest
from frame import Run
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.emulator import Emulator
from units_soak import soak

from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("runs processes for many seconds, and kills some")


def test_a_short_soak_with_killed_processes_breaks_no_promise(emulator: Emulator) -> None:
    run = Run()
    soak(emulator.endpoint, total=150, processes=3, a_second=50).judge(run)
    assert run.checks
    assert run.failed == []


def test_lost_and_left_over_items_are_found(emulator: Emulator) -> None:
    run, soaked = Run(), soak(emulator.endpoint, total=60, processes=3, a_second=50)
    client: Any = make_client(**client_arguments(emulator.endpoint))
    mark = {"M": {"unit": {"S": "unknown"}, "kind": {"S": "write"}}}
    client.put_item(
        TableName=soaked.plan.table("accounts"),
        Item={"id": {"S": "account-0-0"}, "balance": {"N": "0"}, "_tluMark": mark},
    )
    soaked.judge(run)
    assert run.failed == [
        "the sum is kept",
        "each account holds what the committed units have moved",
        "no mark is left",
    ]
