"""The metrics as the CDK has them are those that the functions emit."""

import contextlib
import io
import json

import _observed
import pytest
from aws_cdk import Duration
from ticketlock_cdk import TicketLock

METHODS = {
    "metric_grants": ("Grants", "Sum"),
    "metric_takeovers": ("TakenOver", "Sum"),
    "metric_lost_leases": ("LostLeases", "Sum"),
    "metric_abandoned_holds": ("AbandonedHolds", "Sum"),
    "metric_cleaned_up_places": ("CleanedUpPlaces", "Sum"),
    "metric_cleaned_up_holds": ("CleanedUpHolds", "Sum"),
    "metric_holds_left_to_lease": ("HoldsLeftToLease", "Sum"),
    "metric_record_waits_exceeded": ("RecordWaitsExceeded", "Sum"),
    "metric_wait_time": ("WaitTime", "p99"),
    "metric_hold_time": ("HoldTime", "p99"),
    "metric_oldest_waiter_age": ("OldestWaiterAge", "Maximum"),
}


@pytest.mark.parametrize(("method", "expected"), METHODS.items())
def test_each_has_its_name_and_a_statistic_that_makes_sense(method, expected, typical):
    metric = getattr(typical.lock, method)()
    assert (metric.metric_name, metric.statistic) == expected


def test_every_method_of_the_construct_is_among_them():
    assert {name for name in dir(TicketLock) if name.startswith("metric_")} == set(METHODS)


def test_the_callers_options_override_the_defaults(typical):
    metric = typical.lock.metric_wait_time(statistic="Maximum", period=Duration.minutes(1), label="longest")
    assert (metric.statistic, metric.period.to_seconds(), metric.label) == ("Maximum", 60, "longest")


@pytest.mark.verify("a stack of its own, synthesised")
def test_two_locks_have_different_dimensions(stack, synthesise):
    first, second = TicketLock(stack, "First"), TicketLock(stack, "Second")
    assert first.metric_grants().dimensions == {"service": first.service_name}
    assert first.service_name != second.service_name
    found = synthesise(stack)
    for lock in (first, second):
        names = {
            found.function(function)["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
            for function in (lock.take_ticket, lock.check_position, lock.heartbeat, lock.release)
        }
        assert names == {lock.service_name}


def test_a_function_emits_into_the_namespace_and_the_dimension_of_its_lock(typical, monkeypatch):
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", typical.lock.service_name)
    monkeypatch.delenv("POWERTOOLS_METRICS_DISABLED", raising=False)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        _observed._count({"Grants": 1})
    line = json.loads(output.getvalue())
    metric = typical.lock.metric_grants()
    [emitted] = line["_aws"]["CloudWatchMetrics"]
    assert emitted["Namespace"] == metric.namespace
    assert emitted["Dimensions"] == [["service"]]
    assert line["service"] == metric.dimensions["service"]
