"""The alarms and the dashboard of units: of a TransactionTables, and of what is added to it later."""

import json
import re
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sns as sns
from botocore.exceptions import ClientError
from kit.alarms import ALL, MOST, ONE, assert_says_what_to_do, watched_by
from kit.stacks import function, machine
from of_units import sweeper
from ticketlock_cdk import TransactionTables, UnitsAlarmThresholds

STACKS = pytest.mark.verify("a stack of its own, synthesised")
ID = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
UNITS, FUNCTION, TABLE = ("ticketlock", "service"), ("AWS/Lambda", "FunctionName"), ("AWS/DynamoDB", "TableName")
QUEUE = ("AWS/SQS", "QueueName")
LATER_S = 700
OWN = {
    "OldestOpenUnit": (*UNITS, "OldestOpenUnitAge", "Maximum", 15 * 60 * 1_000, 300, ONE),
    "CommittedUnfinished": (*UNITS, "CommittedUnfinished", "Maximum", 1, 300, MOST),
    "RefusedItems": (*UNITS, "RefusedItems", "Maximum", 1, 300, ONE),
    "RolledBackByOthers": (*UNITS, "RolledBackByOthers", "Sum", 1, 300, MOST),
    "SweeperSilent": (*UNITS, "StoppedSweeps", "SampleCount", 1, 300, ALL),
    "SweepsStopped": (*UNITS, "StoppedSweeps", "Minimum", 1, 300, ALL),
    "SweeperErrors": (*FUNCTION, "Errors", "Sum", 1, 300, MOST),
    "SweeperThrottles": (*FUNCTION, "Throttles", "Sum", 1, 300, ALL),
    "DeadLetters": (*QUEUE, "ApproximateNumberOfMessagesVisible", "Maximum", 1, 300, ONE),
    "Conflicts": (*TABLE, "TransactionConflict", "Sum", 100, 300, MOST),
    "TableReadThrottles": (*TABLE, "ReadThrottleEvents", "Sum", 1, 60, MOST),
    "TableWriteThrottles": (*TABLE, "WriteThrottleEvents", "Sum", 1, 60, MOST),
}
LATER = {
    "RollBackErrors": (*FUNCTION, "100 * errors / calls", "Sum", 5, 60, MOST),
    "of a table": (*TABLE, "TransactionConflict", "Sum", 100, 300, MOST),
}


class Units:
    """Units with alarms and a dashboard, two tables of the user's, one of them granted later, and a state machine."""

    def __init__(self, outdir, synthesise):
        stack = Stack(App(outdir=outdir), "Watched")
        self.topic = sns.Topic(stack, "OnCall")
        first, later = (dynamodb.Table(stack, name, partition_key=ID) for name in ("Accounts", "Orders"))
        self.tables = [first, later]
        self.units = TransactionTables(
            stack, "Units", data_tables=[first], alarms=True, alarm_topic=self.topic, dashboard=True
        )
        self.units.grant_units(function(stack), later)
        for name in ("Booking", "Returns"):
            self.units.attach(machine(stack, name))
        self.found = synthesise(stack)
        self.alarms = {name: self.found.one(alarm)["Properties"] for name, alarm in self.units.alarms.items()}
        [dashboard] = self.found.of_type("AWS::CloudWatch::Dashboard").values()
        self.widgets = json.loads(self.found.text(dashboard["DashboardBody"]))["widgets"]


@pytest.fixture(scope="module")
def watched(outdir, synthesise):
    return Units(outdir, synthesise)


def test_each_alarm_watches_one_thing_and_notifies_the_topic_when_it_fires_and_when_it_is_over(watched):
    found, units = watched.found, watched.units
    values = {
        UNITS: units.service_name,
        FUNCTION: {"Ref": found.id_of(units.sweeper)},
        QUEUE: {"Fn::GetAtt": [found.id_of(units.dead_letter_queue), "QueueName"]},
        TABLE: {"Ref": found.id_of(units.table)},
    }
    seen = {}
    for name in OWN:
        seen[name], value = watched_by(watched.alarms[name])
        assert value == values[seen[name][:2]]
    assert seen == OWN
    for each in watched.alarms.values():
        assert each["AlarmActions"] == each["OKActions"] == [{"Ref": found.id_of(watched.topic)}]


def test_what_is_attached_or_granted_later_is_watched_too(watched):
    found, units = watched.found, watched.units
    later = {name: watched_by(each) for name, each in watched.alarms.items() if name not in OWN}
    assert later.pop("RollBackErrors") == (LATER["RollBackErrors"], {"Ref": found.id_of(units.roll_back)})
    assert list(later.values()) == [(LATER["of a table"], {"Ref": found.id_of(table)}) for table in watched.tables]


def test_only_the_silence_of_the_sweeper_is_bad_and_elsewhere_missing_data_is_good(watched):
    [(name, silence)] = [
        (name, each) for name, each in watched.alarms.items() if each["TreatMissingData"] != "notBreaching"
    ]
    assert (name, silence["TreatMissingData"]) == ("SweeperSilent", "breaching")
    comparisons = {name: each["ComparisonOperator"] for name, each in watched.alarms.items()}
    assert comparisons.pop("SweeperSilent") == "LessThanThreshold"
    assert set(comparisons.values()) == {"GreaterThanOrEqualToThreshold"}


def test_each_alarm_and_the_units_say_what_to_type_with_the_tables_name(watched):
    found, units = watched.found, watched.units
    option = f"--units-table <{found.id_of(units.table)}>"
    for each in watched.alarms.values():
        assert_says_what_to_do(found.text(each["AlarmDescription"]), "Watched/Units", option)
    command = found.text(found.stack.resolve(units.list_command))
    assert command == f"ticketlock units ls {option} --region <AWS::Region>"


def test_the_dashboard_shows_every_alarm_every_metric_and_the_units_that_the_sweepers_log_names(watched):
    found, units = watched.found, watched.units
    shown = [each for widget in watched.widgets if widget["type"] == "alarm" for each in widget["properties"]["alarms"]]
    of_other_tables = [name for name in units.alarms if name.startswith("Conflicts-")]
    assert len(of_other_tables) == len(watched.tables)
    assert set(shown) == {f"<{found.id_of(units.alarms[name])}>" for name in units.alarms}
    text = json.dumps(watched.widgets)
    metrics = [getattr(units, name)() for name in dir(units) if name.startswith("metric_")]
    assert len(metrics) == 9
    for metric in metrics:
        assert f'"{metric.namespace}", "{metric.metric_name}", "service", "{units.service_name}"' in text
    [query] = [widget["properties"]["query"] for widget in watched.widgets if widget["type"] == "log"]
    group = found.id_of(units.sweeper.log_group)
    assert query.startswith(f"SOURCE '<{group}>' | parse @message ")
    positions = [(widget["x"], widget["y"]) for widget in watched.widgets]
    assert len(set(positions)) == len(positions)


@pytest.mark.parametrize("units_engine", ["memory"], indirect=True)
@pytest.mark.parametrize("units_kind", ["threads"], indirect=True)
def test_the_dashboards_query_parses_what_the_sweeper_logs(watched, books, units_world, ben, monkeypatch, caplog):
    [query] = [widget["properties"]["query"] for widget in watched.widgets if widget["type"] == "log"]
    unit = units_world.killed([books.account()], is_committed=True)
    books.clock.advance(LATER_S)

    def refuses(params, **_):
        if books.tables["accounts"] in params["RequestItems"]:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "BatchGetItem")

    ben.client.meta.events.register("provide-client-params.dynamodb.BatchGetItem", refuses)
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "Transactions")
    monkeypatch.setattr(sweeper, "units", lambda: ben.units)
    sweeper.handler({}, SimpleNamespace(get_remaining_time_in_millis=lambda: 300_000))
    parsed: dict[str, str] = {}
    for glob, names in re.findall('parse @message "(.*?)" as (.*)', query):
        pattern = re.escape(glob).replace(r"\*", "(.*?)")
        [found] = [found for message in caplog.messages if (found := re.search(f"{pattern}$", message))]
        parsed |= zip(names.strip().split(", "), found.groups(), strict=True)
    assert parsed.pop("why")
    assert LATER_S <= int(parsed.pop("age_s")) < LATER_S + 60
    assert parsed == {"old": unit, "in_state": "committed", "left": unit}


@STACKS
def test_there_are_no_alarms_and_no_dashboard_unless_asked_for(stack, synthesise):
    units = TransactionTables(stack, "Units", data_tables=["accounts"])
    units.attach(machine(stack))
    assert (units.alarms, units.dashboard) == ({}, None)
    assert not [one for one in synthesise(stack).resources.values() if "CloudWatch" in one["Type"]]


@STACKS
def test_thresholds_periods_and_actions_can_be_chosen(stack, synthesise):
    topic = sns.Topic(stack, "Topic")
    chosen: dict[str, Any] = {each.name: number for number, each in enumerate(fields(UnitsAlarmThresholds), 2)}
    chosen["oldest_open_unit"] = Duration.hours(1)
    units = TransactionTables(
        stack,
        "Units",
        alarms=True,
        alarm_thresholds=UnitsAlarmThresholds(**chosen),
        alarm_actions=[actions.SnsAction(topic), actions.SsmAction(actions.OpsItemSeverity.HIGH)],
        sweep_every=Duration.minutes(30),
    )
    units.attach(machine(stack))
    found = synthesise(stack)
    alarms = {name: found.one(alarm)["Properties"] for name, alarm in units.alarms.items()}
    expected = {
        **{name: seen[4] for name, seen in OWN.items()},
        "OldestOpenUnit": 3_600_000,
        "RollBackErrors": chosen["roll_back_error_percent"],
        **{f"Table{what}Throttles": chosen["table_throttles"] for what in ("Read", "Write")},
    }
    for name, value in chosen.items():
        camel = "".join(part.title() for part in name.split("_"))
        if camel in OWN and camel != "OldestOpenUnit":
            expected[camel] = value
    assert {name: each["Threshold"] for name, each in alarms.items()} == expected
    of_passes = ("SweeperErrors", "SweeperThrottles")
    assert {alarms[name]["Period"] for name, seen in OWN.items() if seen[:2] == UNITS or name in of_passes} == {1_800}
    for each in alarms.values():
        # An OpsItem would be a new one.
        assert (len(each["AlarmActions"]), each["OKActions"]) == (2, [{"Ref": found.id_of(topic)}])


@STACKS
@pytest.mark.parametrize("minutes", [1, 24 * 60])
def test_a_silent_sweeper_is_noticed_after_three_of_its_intervals(minutes, stack, synthesise):
    units = TransactionTables(stack, "Units", alarms=True, sweep_every=Duration.minutes(minutes))
    found = synthesise(stack)
    alarms = {name: found.one(alarm)["Properties"] for name, alarm in units.alarms.items()}
    assert alarms["SweeperSilent"]["Period"] == 60 * minutes
    # https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
    for each in alarms.values():
        longest = 7 if each["Period"] >= 3_600 else 1
        assert each["Period"] * each["EvaluationPeriods"] <= longest * 86_400


@pytest.mark.parametrize("name", [field.name for field in fields(UnitsAlarmThresholds)])
def test_a_bad_threshold_is_refused_by_name(name):
    thresholds: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"alarm_thresholds.{name} is 0; allowed: "):
        UnitsAlarmThresholds(**thresholds)


@STACKS
@pytest.mark.parametrize("waits", ["the units", "the data"])
def test_a_table_of_another_stack_is_watched_whichever_stack_waits_for_the_other(waits, outdir, synthesise):
    app = App(outdir=outdir)
    data, own = Stack(app, "Data"), Stack(app, "Units")
    table = dynamodb.Table(data, "Accounts", partition_key=ID)
    units = TransactionTables(
        own, "Units", data_tables=[table], alarms=True, alarm_topic=sns.Topic(own, "OnCall"), dashboard=True
    )
    if waits == "the data":
        function(data).add_environment("UNITS", units.table.table_name)
    app.synth()
    conflicts = [
        (stack.node.id, each)
        for stack in (data, own)
        for each in synthesise(stack).of_type("AWS::CloudWatch::Alarm").values()
        if each.get("MetricName") == "TransactionConflict"
    ]
    assert [name for name, _ in conflicts] == (["Units", "Units"] if waits == "the units" else ["Data", "Units"])
    for _, each in conflicts:
        assert len(each["AlarmActions"]) == 1
        assert each["AlarmDescription"]
