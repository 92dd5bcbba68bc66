"""Benchmarks of engines report what an engine does not count, and continue if one fails."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from capacity_units import verdict
from counting_proxy import counting_proxy
from differences import Subject, answer, exact_limit, same_token, write_units
from hour_of_waiting import chart, counted
from kit.capacity_units import Billed, MeteredWorld, life_of_a_lock
from kit.engines import Engine, engine_named
from ticketlock_local.diagrams.bars import Figures
from ticketlock_local.diagrams.files import FIGURES
from ticketlock_local.engines.emulator import Emulator

from ticketlock import LockClient, create_table
from ticketlock.testing import Fault
from ticketlock.wire._sdk import make_client

pytestmark = pytest.mark.verify("tests no part of the product")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def engine() -> Iterator[Engine]:
    with engine_named("memory", str) as engine:
        yield engine


def test_the_error_of_a_failing_engine_is_its_result_and_the_next_measurement_follows(engine: Engine) -> None:
    subject = Subject(engine)
    assert engine.memory is not None
    engine.memory.faults.append(Fault.THROTTLED)
    asked = [partial(ask, subject) for ask in (exact_limit, exact_limit, same_token)]
    assert [answer(ask) for ask in asked] == [
        "ThrottlingException",
        "may be more",
        "done, applied 1x; other contents refused",
    ]


def test_an_engine_without_capacity_units_is_reported_as_such(engine: Engine) -> None:
    assert write_units(Subject(engine)) == "reports none"
    requests = [request for step in life_of_a_lock(MeteredWorld(engine), 0) for request in step.requests]
    assert verdict(requests, "memory") == ("memory reports no units.", 1)


AS_THE_RULES = Billed("PutItem", refused=False, by_rule=1, by_engine=1)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (AS_THE_RULES, ("it counts 0 requests differently.", 0)),
        (replace(AS_THE_RULES, refused=True, by_engine=None), ("it counts 0 requests differently.", 0)),
        (replace(AS_THE_RULES, by_engine=2), ("it counts 1 requests differently.", 1)),
        (replace(AS_THE_RULES, by_engine=None), ("it counts 0 requests differently, and 1 not at all.", 1)),
    ],
)
def test_an_engines_way_of_counting_is_reported(other: Billed, told: tuple[str, int]) -> None:
    assert verdict([AS_THE_RULES, other], "it") == told


def test_an_endpoint_without_a_server_is_reported_in_a_sentence() -> None:
    # The discard port of this machine.
    command = [sys.executable, str(BENCHMARKS / "capacity_units.py"), "http://127.0.0.1:9"]
    environment = {"PYTHONPATH": str(BENCHMARKS.parent / "tests"), "AWS_DEFAULT_REGION": "us-east-1"}
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    done = subprocess.run(command, env=environment | keys, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == 'Could not connect to the endpoint URL: "http://127.0.0.1:9/"\n'


def test_the_proxy_between_a_client_and_an_engine_counts_each_request_and_what_it_costs(emulator: Emulator) -> None:
    with counting_proxy(emulator.endpoint) as proxy:
        client = make_client(endpoint_url=proxy.url)
        name = f"locks-{uuid.uuid4().hex}"
        create_table(name, client=client)
        with LockClient(name, client=client) as locks:
            locks.acquire("order-42").release()
            proxy.counts()
            locks.acquire("order-42").release()
            counted = proxy.counts()
        assert dict(counted.requests) == {"UpdateItem": 2}
        assert (counted.write_units, counted.read_units) == (2, None)
        assert not proxy.counts().requests


def test_the_proxy_may_be_told_of_its_engine_later_and_tells_which_requests_passed_when(emulator: Emulator) -> None:
    with counting_proxy() as proxy:
        proxy.lead_to(emulator.endpoint)
        client = make_client(endpoint_url=proxy.url)
        before_ms = time.time_ns() // 1_000_000
        client.list_tables()
        client.describe_limits()
        passed = proxy.passed()
        assert [each.operation for each in passed] == ["ListTables", "DescribeLimits"]
        times = [before_ms, *(each.at_ms for each in passed), time.time_ns() // 1_000_000]
        assert times == sorted(times)
        proxy.counts()
        assert proxy.passed() == []


def test_the_race_of_locks_runs_to_its_end_with_ours_alone() -> None:
    command = [sys.executable, str(BENCHMARKS / "peer_locks.py"), "--quick", "--side", "ours"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS   a cycle of ours is 2 requests" in done.stdout
    assert "PASS   50 ms of work: no client of ours is overtaken twice" in done.stdout
    assert "a killed holder" in done.stdout


def test_an_hour_of_waiting_costs_what_the_picture_in_the_docs_shows() -> None:
    assert chart(counted()) == Figures.load(FIGURES / "hour-of-waiting.json")
