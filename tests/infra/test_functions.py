"""The functions of the lock."""

import pytest
from aws_cdk import Duration
from ticketlock_cdk import TicketLock

STEPS = ["take_ticket", "wait_for_call", "check_position", "heartbeat", "release", "clean_up"]


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
    variables = function["Environment"]["Variables"]
    assert variables["TABLE_NAME"] == {"Ref": typical.synthesised.id_of(typical.lock.table)}
    assert variables["POWERTOOLS_SERVICE_NAME"] == typical.lock.service_name


def test_the_clean_up_knows_the_machine_and_the_lease(typical):
    variables = typical.synthesised.function(typical.lock.clean_up)["Environment"]["Variables"]
    assert variables["STATE_MACHINE_ARN"] == {"Ref": typical.synthesised.id_of(typical.lock.state_machine)}
    assert variables["LEASE_SECONDS"] == "60"


def test_each_has_logs_that_end(function, typical):
    log_group = typical.synthesised.resources[function["LoggingConfig"]["LogGroup"]["Ref"]]
    assert log_group["Properties"]["RetentionInDays"] == 30


@pytest.mark.parametrize("step", ["take_ticket", "wait_for_call", "check_position", "heartbeat", "release"])
def test_none_outlives_its_state(step, typical):
    states = typical.definition["States"]
    timeouts = {
        "wait_for_call": states["WaitForCall"]["TimeoutSeconds"],
        "take_ticket": states["TakeTicket"]["TimeoutSeconds"],
        "check_position": states["CheckPosition"]["TimeoutSeconds"],
        "heartbeat": states["Hold"]["Branches"][1]["States"]["Heartbeat"]["TimeoutSeconds"],
        "release": states["Hold"]["Branches"][0]["States"]["Release"]["TimeoutSeconds"],
    }
    assert typical.synthesised.function(typical.functions[step])["Timeout"] < timeouts[step]


def test_the_one_that_parks_is_over_before_a_parking_is(typical):
    """Not before a brief one: a cold start may take longer than that, and a late copy parks nobody."""
    parked_for = typical.definition["States"]["WaitForCall"]["TimeoutSeconds"]
    assert typical.synthesised.function(typical.lock.wait_for_call)["Timeout"] < parked_for


@pytest.mark.parametrize(("lease_s", "timeout_s"), [(10, 4), (12, 5), (20, 9), (22, 10), (60, 10)])
def test_a_beat_ends_before_the_next_one_begins(lease_s, timeout_s, stack, synthesise):
    lock = TicketLock(stack, "Lock", lease=Duration.seconds(lease_s), poll=Duration.seconds(1))
    assert synthesise(stack).function(lock.heartbeat)["Timeout"] == timeout_s
