"""Metrics, alarms and the dashboard: what is watched, the thresholds, and who is notified."""

import contextlib
import io
import json
from dataclasses import fields
from typing import Any

import _observed
import pytest
from aws_cdk import Duration
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from kit.alarms import MOST, ONE, assert_says_what_to_do, watched_by
from ticketlock_cdk import AlarmThresholds, TicketLock

STACKS = pytest.mark.verify("stacks of its own, each synthesised")

ARN = "arn:aws:sns:eu-west-1:123456789012:on-call"
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
def test_each_metric_has_its_name_and_its_statistic(method, expected, typical):
    metric = getattr(typical.lock, method)()
    assert (metric.metric_name, metric.statistic) == expected


def test_every_method_for_a_metric_is_known_here():
    assert {name for name in dir(TicketLock) if name.startswith("metric_")} == set(METHODS)


def test_the_callers_options_override_the_defaults_of_a_metric(typical):
    metric = typical.lock.metric_wait_time(statistic="Maximum", period=Duration.minutes(1), label="longest")
    assert (metric.statistic, metric.period.to_seconds(), metric.label) == ("Maximum", 60, "longest")


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


# Alarms and the dashboard.


LOCK, FUNCTION, MACHINE = ("ticketlock", "service"), ("AWS/Lambda", "FunctionName"), ("AWS/States", "StateMachineArn")
QUEUE, TABLE = ("AWS/SQS", "QueueName"), ("AWS/DynamoDB", "TableName")
STEPS = ("TakeTicket", "WaitForWakeUp", "CheckPosition", "Heartbeat", "Release", "CleanUp")
ALARMS = {
    "LostLeases": (*LOCK, "LostLeases", "Sum", 1, 300, ONE),
    "RecordWaitsExceeded": (*LOCK, "RecordWaitsExceeded", "Sum", 1, 300, MOST),
    "OldestWaiter": (*LOCK, "OldestWaiterAge", "Maximum", 15 * 60 * 1_000, 300, ONE),
    "DeadLetters": (*QUEUE, "ApproximateNumberOfMessagesVisible", "Maximum", 1, 300, ONE),
    "StateMachineExecutionThrottled": (*MACHINE, "ExecutionThrottled", "Sum", 1, 60, MOST),
    "ContinueExecutionThrottled": (*MACHINE, "ExecutionThrottled", "Sum", 1, 60, MOST),
    "TableReadThrottles": (*TABLE, "ReadThrottleEvents", "Sum", 1, 60, MOST),
    "TableWriteThrottles": (*TABLE, "WriteThrottleEvents", "Sum", 1, 60, MOST),
    **{f"{step}Errors": (*FUNCTION, "100 * errors / calls", "Sum", 5, 60, MOST) for step in STEPS},
    **{f"{step}Throttles": (*FUNCTION, "Throttles", "Sum", 1, 60, MOST) for step in STEPS},
}


def alarm(found, lock, name):
    return found.one(lock.alarms[name])["Properties"]


@STACKS
def test_there_are_no_alarms_and_no_dashboard_unless_asked_for(typical):
    assert (typical.lock.alarms, typical.lock.dashboard) == ({}, None)
    assert not [one for one in typical.synthesised.resources.values() if "CloudWatch" in one["Type"]]


@STACKS
def test_each_alarm_watches_one_thing_and_notifies_the_topic_when_it_fires_and_when_it_is_over(everything):
    found, lock = everything.synthesised, everything.lock
    watched = {}
    for name in lock.alarms:
        each = alarm(found, lock, name)
        watched[name], value = watched_by(each)
        assert value == dimension_of(name, everything)
        # None fires without traffic.
        assert (each["ComparisonOperator"], each["TreatMissingData"]) == (
            "GreaterThanOrEqualToThreshold",
            "notBreaching",
        )
        assert each["AlarmActions"] == each["OKActions"] == [{"Ref": found.id_of(everything.topic)}]
    assert watched == ALARMS
    # Which the emulator refuses.
    assert not found.of_type("AWS::CloudWatch::CompositeAlarm")


def dimension_of(name, everything):
    """The value of an alarm's dimension."""
    found, lock = everything.synthesised, everything.lock
    if ALARMS[name][:2] == LOCK:
        return lock.service_name
    if ALARMS[name][:2] == QUEUE:
        return {"Fn::GetAtt": [found.id_of(lock.dead_letter_queue), "QueueName"]}
    if ALARMS[name][:2] == TABLE:
        return {"Ref": found.id_of(lock.table)}
    if ALARMS[name][:2] == MACHINE:
        machine = name.removesuffix("ExecutionThrottled")
        return {"Ref": found.id_of(lock.node.find_child("Serialize").node.find_child(machine))}
    [function] = [each for each in everything.functions if name.removeprefix(each.node.id) in ("Errors", "Throttles")]
    return {"Ref": found.id_of(function)}


@STACKS
def test_each_alarm_and_the_lock_say_what_to_type_with_the_tables_name(everything):
    found, lock = everything.synthesised, everything.lock
    option = f"--table <{found.id_of(lock.table)}>"
    for name in lock.alarms:
        assert_says_what_to_do(found.text(alarm(found, lock, name)["AlarmDescription"]), "Everything/Lock", option)
    command = found.text(found.stack.resolve(lock.list_command))
    assert command == f"ticketlock top {option} --region <AWS::Region>"


@STACKS
@pytest.mark.parametrize(("bound", "is_watched"), [(10, False), (None, True)])
def test_a_bounded_clean_up_is_not_watched_for_throttles_since_its_own_bound_throttles_it(bound, is_watched, stack):
    lock = TicketLock(stack, "Lock", alarms=True, clean_up_concurrency=bound)
    assert ("CleanUpThrottles" in lock.alarms) == is_watched


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
        function_error_percent=6,
        function_throttles=7,
        execution_throttles=8,
        table_throttles=9,
    )
    lock = TicketLock(stack, "Lock", alarms=True, alarm_thresholds=thresholds)
    found = synthesise(stack)
    chosen = {"LostLeases": 2, "RecordWaitsExceeded": 3, "OldestWaiter": 3_600_000, "DeadLetters": 4}
    for ending, threshold in (("Errors", 6), ("Throttles", 7), ("Throttled", 8)):
        chosen |= {name: threshold for name in ALARMS if name.endswith(ending)}
    chosen |= {f"Table{what}Throttles": 9 for what in ("Read", "Write")}
    assert {name: alarm(found, lock, name)["Threshold"] for name in lock.alarms} == chosen


@pytest.mark.parametrize("name", [each.name for each in fields(AlarmThresholds) if each.name != "oldest_waiter"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "1", None])
def test_a_threshold_that_is_no_count_is_refused(name, value):
    with pytest.raises(ValueError, match=r"allowed: a whole number from 1 (on|to 100)$") as refused:
        AlarmThresholds(**{name: value})
    assert str(refused.value).startswith(f"alarm_thresholds.{name} is {value!r}; ")


def test_a_threshold_above_100_percent_is_refused():
    assert AlarmThresholds(function_error_percent=100).function_error_percent == 100
    with pytest.raises(ValueError, match="function_error_percent is 101; allowed: a whole number from 1 to 100"):
        AlarmThresholds(function_error_percent=101)


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


def test_a_topic_without_alarms_is_refused(stack):
    with pytest.raises(ValueError, match=r"alarm_topic is given and alarms is False; allowed: .* with alarms=True"):
        TicketLock(stack, "Lock", alarm_topic=sns.Topic(stack, "OnCall"))


def test_a_topic_by_its_arn_is_refused_with_the_way_to_import_it(stack):
    topic: Any = ARN
    with pytest.raises(ValueError, match=rf"^alarm_topic is '{ARN}'; allowed: .*Topic\.from_topic_arn"):
        TicketLock(stack, "Lock", alarms=True, alarm_topic=topic)


@STACKS
def test_the_dashboard_shows_the_alarms_every_metric_every_function_every_machine_and_the_table(everything):
    found, lock = everything.synthesised, everything.lock
    [dashboard] = found.of_type("AWS::CloudWatch::Dashboard").values()
    widgets = json.loads(found.text(dashboard["DashboardBody"]))["widgets"]
    assert (widgets[0]["type"], len(widgets[0]["properties"]["alarms"])) == ("alarm", len(lock.alarms))
    text = json.dumps(widgets)
    for name, _ in METHODS.values():
        assert f'"ticketlock", "{name}", "service", "{lock.service_name}"' in text
    functions = [found.id_of(each) for each in everything.functions]
    for id in (*found.of_type("AWS::StepFunctions::StateMachine"), *functions, found.id_of(lock.table)):
        assert f'"<{id}>"' in text


@STACKS
def test_the_dashboard_shows_a_line_for_each_waiter_so_that_a_living_one_hides_no_dead_one(everything):
    found = everything.synthesised
    [dashboard] = found.of_type("AWS::CloudWatch::Dashboard").values()
    [query] = [
        each["properties"]["query"]
        for each in json.loads(found.text(dashboard["DashboardBody"]))["widgets"]
        if each["type"] == "log"
    ]
    [aggregated] = [part for part in query.replace("\n", " ").split("| ") if part.startswith("stats ")]
    assert aggregated.strip().endswith(" by namespace, entity, ticket")


@STACKS
def test_a_dashboard_without_alarms_shows_none(stack, synthesise):
    TicketLock(stack, "Lock", dashboard=True)
    found = synthesise(stack)
    [dashboard] = found.of_type("AWS::CloudWatch::Dashboard").values()
    assert '"type":"alarm"' not in found.text(dashboard["DashboardBody"])
