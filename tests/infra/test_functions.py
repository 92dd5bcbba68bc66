"""The functions of the state machine."""

import pytest
from aws_cdk import Duration
from ticketlock_cdk import TicketLock

STEPS = ["take_ticket", "check_position", "heartbeat", "release"]


@pytest.fixture(params=STEPS)
def step(request):
    return request.param


@pytest.fixture
def function(step, typical):
    return typical.synthesised.function(typical.functions[step])


def test_each_runs_its_own_handler(step, function):
    assert function["Handler"] == f"{step}.handler"


def test_each_runs_on_the_newest_python_and_on_arm(function):
    assert (function["Runtime"], function["Architectures"]) == ("python3.14", ["arm64"])


def test_each_is_traced(function):
    assert function["TracingConfig"] == {"Mode": "Active"}


def test_each_knows_the_table_and_its_names_in_powertools(function, typical):
    assert function["Environment"]["Variables"] == {
        "TABLE_NAME": {"Ref": typical.synthesised.id_of(typical.lock.table)},
    }


def test_each_has_logs_that_end(function, typical):
    log_group = typical.synthesised.resources[function["LoggingConfig"]["LogGroup"]["Ref"]]
    assert log_group["Properties"]["RetentionInDays"] == 30


def test_none_outlives_its_state(step, function, typical):
    states = typical.definition["States"]
    timeouts = {
        "take_ticket": states["TakeTicket"]["TimeoutSeconds"],
        "check_position": states["CheckPosition"]["TimeoutSeconds"],
        "heartbeat": states["Hold"]["Branches"][1]["States"]["Heartbeat"]["TimeoutSeconds"],
        "release": states["Hold"]["Branches"][0]["States"]["Release"]["TimeoutSeconds"],
    }
    assert function["Timeout"] < timeouts[step]


@pytest.mark.parametrize(("lease_s", "timeout_s"), [(10, 4), (12, 5), (20, 9), (22, 10), (60, 10)])
def test_a_beat_ends_before_the_next_one_begins(lease_s, timeout_s, stack, synthesise):
    lock = TicketLock(stack, "Lock", lease=Duration.seconds(lease_s), poll=Duration.seconds(1))
    assert synthesise(stack).function(lock.heartbeat)["Timeout"] == timeout_s
