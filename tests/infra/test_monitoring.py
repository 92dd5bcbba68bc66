"""Metrics, alarms and the dashboard: what is watched, the thresholds, and who is notified."""

import contextlib
import io
import json
from dataclasses import fields
from typing import Any

import _observed
import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from ticketlock_cdk import AlarmThresholds, TicketLock

STACKS = pytest.mark.verify("stacks of its own, each synthesised")

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
def test_each_metric_has_its_name_and_a_statistic_that_makes_sense(method, expected, typical):
    metric = getattr(typical.lock, method)()
    assert (metric.metric_name, metric.statistic) == expected


def test_every_method_for_a_metric_is_known_here():
    assert {name for name in dir(TicketLock) if name.startswith("metric_")} == set(METHODS)


def test_the_callers_options_override_the_defaults_of_a_metric(typical):
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


# Alarms and the dashboard: what is watched, the thresholds, and who is notified.


THRESHOLDS = {
    "LostLeases": 1,
    "RecordWaitsExceeded": 1,
    "OldestWaiter": 15 * 60 * 1_000,
    "DeadLetters": 1,
}

MACHINES = ("StateMachineExecutionThrottled", "ContinueExecutionThrottled")
FUNCTION_THRESHOLDS = {"Errors": 3, "Throttles": 1}


def alarm(found, lock, name):
    return found.one(lock.alarms[name])["Properties"]


@STACKS
def test_there_are_no_alarms_and_no_dashboard_unless_asked_for(typical):
    assert (typical.lock.alarms, typical.lock.dashboard) == ({}, None)
    assert not [one for one in typical.synthesised.resources.values() if "CloudWatch" in one["Type"]]


@pytest.fixture
def alarms(everything):
    return {name: alarm(everything.synthesised, everything.lock, name) for name in everything.lock.alarms}


@pytest.fixture
def function_ids(everything):
    """Logical id by the construct's id."""
    return {
        function.node.id: everything.synthesised.id_of(function)
        for function in everything.lock.node.find_all()
        if isinstance(function, lambda_.Function)
    }


@STACKS
def test_each_alarm_watches_one_thing(alarms, function_ids):
    of_functions = {f"{id}{metric}" for id in function_ids for metric in FUNCTION_THRESHOLDS}
    # Its own bound throttles it.
    of_functions -= {"CleanUpThrottles"}
    assert set(alarms) == set(THRESHOLDS) | of_functions | set(MACHINES)


@STACKS
@pytest.mark.parametrize(("name", "threshold"), THRESHOLDS.items())
def test_each_alarm_fires_from_its_threshold_on(name, threshold, alarms):
    assert alarms[name]["Threshold"] == threshold
    assert {each["ComparisonOperator"] for each in alarms.values()} == {"GreaterThanOrEqualToThreshold"}


@STACKS
def test_no_alarm_fires_without_traffic(alarms):
    assert {each["TreatMissingData"] for each in alarms.values()} == {"notBreaching"}


@STACKS
def test_each_alarm_notifies_the_topic_and_names_its_lock(alarms, everything):
    for each in alarms.values():
        assert each["AlarmActions"] == [{"Ref": everything.synthesised.id_of(everything.topic)}]
        assert each["AlarmDescription"].startswith("Everything/Lock: ")


@STACKS
@pytest.mark.parametrize(
    ("name", "metric", "statistic"),
    [
        ("LostLeases", "LostLeases", "Sum"),
        ("RecordWaitsExceeded", "RecordWaitsExceeded", "Sum"),
        ("OldestWaiter", "OldestWaiterAge", "Maximum"),
    ],
)
def test_the_alarms_of_the_lock_watch_its_own_metrics(name, metric, statistic, everything):
    found = alarm(everything.synthesised, everything.lock, name)
    assert (found["Namespace"], found["MetricName"], found["Statistic"]) == ("ticketlock", metric, statistic)
    assert found["Dimensions"] == [{"Name": "service", "Value": everything.lock.service_name}]


@STACKS
@pytest.mark.parametrize(("metric", "threshold"), FUNCTION_THRESHOLDS.items())
def test_every_function_is_watched_by_itself(metric, threshold, alarms, function_ids):
    assert len(function_ids) >= 4
    watched = {id: each for id, each in function_ids.items() if (id, metric) != ("CleanUp", "Throttles")}
    for id, logical_id in watched.items():
        found = alarms[f"{id}{metric}"]
        assert (found["Namespace"], found["MetricName"], found["Statistic"]) == ("AWS/Lambda", metric, "Sum")
        assert found["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": logical_id}}]
        assert found["Threshold"] == threshold


@STACKS
@pytest.mark.parametrize("name", MACHINES)
def test_throttling_by_step_functions_is_watched(name, everything):
    found = alarm(everything.synthesised, everything.lock, name)
    assert (found["Namespace"], found["MetricName"], found["Statistic"]) == ("AWS/States", "ExecutionThrottled", "Sum")
    [dimension] = found["Dimensions"]
    machine = everything.synthesised.resources[dimension["Value"]["Ref"]]
    assert (dimension["Name"], machine["Type"]) == ("StateMachineArn", "AWS::StepFunctions::StateMachine")


@STACKS
def test_an_unbounded_clean_up_is_watched_for_throttles_too(stack, synthesise):
    lock = TicketLock(stack, "Lock", alarms=True, clean_up_concurrency=None)
    synthesise(stack)
    assert "CleanUpThrottles" in lock.alarms


@STACKS
def test_the_dead_letter_queue_is_watched(alarms, everything):
    found = alarms["DeadLetters"]
    assert (found["Namespace"], found["MetricName"]) == ("AWS/SQS", "ApproximateNumberOfMessagesVisible")
    queue = {"Fn::GetAtt": [everything.synthesised.id_of(everything.lock.dead_letter_queue), "QueueName"]}
    assert found["Dimensions"] == [{"Name": "QueueName", "Value": queue}]


@STACKS
def test_there_is_nothing_that_the_emulator_refuses(everything, alarms):
    assert not everything.synthesised.of_type("AWS::CloudWatch::CompositeAlarm")
    assert not [name for name, each in alarms.items() if "Metrics" in each]


@STACKS
@pytest.mark.parametrize(
    ("lease", "period_s"),
    [(Duration.minutes(1), 300), (Duration.minutes(15), 540), (Duration.hours(2), 3_660), (Duration.days(7), 86_400)],
    ids=["1 min", "15 min", "2 h", "7 days"],
)
def test_a_parked_front_waiter_polls_once_in_each_period(lease, period_s, stack, synthesise):
    lock = TicketLock(stack, "Lock", alarms=True, lease=lease)
    assert alarm(synthesise(stack), lock, "OldestWaiter")["Period"] == period_s


@STACKS
def test_thresholds_can_be_chosen(stack, synthesise):
    thresholds = AlarmThresholds(
        lost_leases=2,
        record_waits_exceeded=3,
        oldest_waiter=Duration.hours(1),
        dead_letters=4,
        function_errors=6,
        function_throttles=7,
        execution_throttles=8,
    )
    lock = TicketLock(stack, "Lock", alarms=True, alarm_thresholds=thresholds)
    found = synthesise(stack)
    chosen = {name: alarm(found, lock, name)["Threshold"] for name in lock.alarms}
    assert {name: chosen[name] for name in THRESHOLDS} == {
        "LostLeases": 2,
        "RecordWaitsExceeded": 3,
        "OldestWaiter": 3_600_000,
        "DeadLetters": 4,
    }
    assert {value for name, value in chosen.items() if name.endswith("Errors")} == {6}
    assert {value for name, value in chosen.items() if name.endswith("Throttles")} == {7}
    assert {value for name, value in chosen.items() if name.endswith("ExecutionThrottled")} == {8}


@STACKS
@pytest.mark.parametrize("name", [each.name for each in fields(AlarmThresholds) if each.name != "oldest_waiter"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", None])
def test_a_threshold_that_is_no_count_is_refused(name, value):
    with pytest.raises(ValueError, match="allowed: a whole number from 1 on") as refused:
        AlarmThresholds(**{name: value})
    assert str(refused.value).startswith(f"alarm_thresholds.{name} is {value!r}; ")


@STACKS
@pytest.mark.parametrize("value", [900, None, Duration.millis(0)])
def test_an_age_that_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match=r"alarm_thresholds.oldest_waiter is .*; allowed: a Duration above 0"):
        AlarmThresholds(oldest_waiter=value)


@STACKS
def test_actions_of_any_kind_are_taken_beside_the_topic(stack, synthesise):
    topics = [sns.Topic(stack, name) for name in ("First", "Second")]
    lock = TicketLock(stack, "Lock", alarms=True, alarm_actions=[actions.SnsAction(topics[0])], alarm_topic=topics[1])
    found = synthesise(stack)
    assert alarm(found, lock, "LostLeases")["AlarmActions"] == [{"Ref": found.id_of(topic)} for topic in topics]


@STACKS
def test_actions_without_alarms_are_refused(stack: Stack):
    topic = sns.Topic(stack, "OnCall")
    with pytest.raises(ValueError, match=r"alarm_topic is given and alarms is False; allowed: .* with alarms=True"):
        TicketLock(stack, "Lock", alarm_topic=topic)


@STACKS
def test_a_topic_by_its_arn_is_refused_with_the_way_to_import_one(stack: Stack):
    arn: Any = "arn:aws:sns:eu-west-1:123456789012:on-call"
    with pytest.raises(ValueError, match=rf"^alarm_topic is '{arn}'; allowed: .*Topic\.from_topic_arn"):
        TicketLock(stack, "Lock", alarms=True, alarm_topic=arn)


def shown(value):
    """A dashboard's body as text, with `<logical id>` for each reference."""
    return "".join(part if isinstance(part, str) else f"<{part.get('Ref', '')}>" for part in value["Fn::Join"][1])


@pytest.fixture
def widgets(everything):
    [dashboard] = everything.synthesised.of_type("AWS::CloudWatch::Dashboard").values()
    return json.loads(shown(dashboard["DashboardBody"]))["widgets"]


@STACKS
def test_the_dashboard_shows_every_metric_of_the_lock(widgets, everything):
    text = json.dumps(widgets)
    metrics = [getattr(everything.lock, name)() for name in dir(everything.lock) if name.startswith("metric_")]
    assert metrics
    for name in (metric.metric_name for metric in metrics):
        assert f'"ticketlock", "{name}", "service", "{everything.lock.service_name}"' in text


@STACKS
def test_the_dashboard_shows_every_function_and_every_machine_and_the_table(widgets, everything):
    text = json.dumps(widgets)
    found = everything.synthesised
    machines = found.of_type("AWS::StepFunctions::StateMachine")
    functions = [id for id in found.of_type("AWS::Lambda::Function") if id.startswith("Lock")]
    for id in (*machines, *functions, found.id_of(everything.lock.table)):
        assert f'"<{id}>"' in text


@STACKS
def test_the_dashboard_begins_with_the_alarms(widgets, everything):
    assert (widgets[0]["type"], len(widgets[0]["properties"]["alarms"])) == ("alarm", len(everything.lock.alarms))


@STACKS
def test_a_dashboard_without_alarms_shows_none(stack, synthesise):
    TicketLock(stack, "Lock", dashboard=True)
    [dashboard] = synthesise(stack).of_type("AWS::CloudWatch::Dashboard").values()
    assert '"type":"alarm"' not in shown(dashboard["DashboardBody"])
