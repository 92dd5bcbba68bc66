"""TransactionTables: the sweeper of the units' own table, its permissions, its alarms, and the same lock as without."""

import json
from dataclasses import fields
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from kit.stacks import as_list, on_table
from ticketlock_cdk import TransactionTables, UnitsAlarmThresholds
from ticketlock_cdk.units.access import FINISH_ITEMS, READ_BESIDE_UNITS, RUN_UNITS, SWEEP_RECORDS

STACKS = pytest.mark.verify("a stack of its own, synthesised")
ID = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
ALARMS = {
    "OldestOpenUnit": ("OldestOpenUnitAge", "Maximum", 15 * 60 * 1_000),
    "CommittedUnfinished": ("CommittedUnfinished", "Maximum", 1),
    "RefusedItems": ("RefusedItems", "Maximum", 1),
    "RolledBackByOthers": ("RolledBackByOthers", "Sum", 1),
    "SweeperErrors": ("Errors", "Sum", 1),
    "SweeperThrottles": ("Throttles", "Sum", 1),
    "DeadLetters": ("ApproximateNumberOfMessagesVisible", "Maximum", 1),
}


def role_of(stack, name):
    return iam.Role(stack, name, assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))


class Whole:
    """Every optional resource, with a table of the user's, and principals of each role."""

    def __init__(self, outdir, synthesise):
        stack = Stack(App(outdir=outdir), "Whole")
        self.key = kms.Key(stack, "Key")
        self.topic = sns.Topic(stack, "OnCall")
        self.data_key = kms.Key(stack, "DataKey")
        self.accounts = dynamodb.Table(stack, "Accounts", partition_key=ID, encryption_key=self.data_key)
        self.orders = dynamodb.Table(stack, "Orders", partition_key=ID)
        self.units = TransactionTables(
            stack,
            "Units",
            data_tables=[self.accounts],
            encryption_key=self.key,
            vpc=ec2.Vpc.from_vpc_attributes(
                stack, "Vpc", vpc_id="vpc-1", availability_zones=["a"], private_subnet_ids=["subnet-1"]
            ),
            dashboard=True,
            alarms=True,
            alarm_topic=self.topic,
        )
        self.worker, self.reader, self.shipper = (role_of(stack, name) for name in ("Worker", "Reader", "Shipper"))
        self.units.grant_units(self.worker)
        self.units.grant_reads(self.reader)
        self.units.grant_units(self.shipper, self.orders)
        self.found = synthesise(stack)


@pytest.fixture(scope="module")
def whole(outdir, synthesise):
    return Whole(outdir, synthesise)


def test_a_key_encrypts_the_table_the_logs_and_the_dead_letters(whole):
    table = whole.found.one(whole.units.table)["Properties"]
    key = {"Fn::GetAtt": [whole.found.id_of(whole.key), "Arn"]}
    assert table["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key}
    groups, queues = whole.found.of_type("AWS::Logs::LogGroup"), whole.found.of_type("AWS::SQS::Queue")
    assert [each["KmsKeyId"] for each in groups.values()] == [key]
    assert [each["KmsMasterKeyId"] for each in queues.values()] == [key]


def test_the_sweeper_knows_its_table_and_runs_one_at_a_time_no_longer_than_until_the_next(whole):
    sweeper = whole.found.function(whole.units.sweeper)
    [rule] = whole.found.of_type("AWS::Events::Rule").values()
    assert rule["ScheduleExpression"] == "rate(5 minutes)"
    assert (sweeper["ReservedConcurrentExecutions"], sweeper["Timeout"]) == (1, 300)
    assert sweeper["Environment"]["Variables"] == {
        "TABLE_NAME": {"Ref": whole.found.id_of(whole.units.table)},
        "PREFIX": "_tlu",
        "POWERTOOLS_SERVICE_NAME": whole.units.service_name,
    }
    assert sweeper["VpcConfig"]["SubnetIds"] == ["subnet-1"]


def test_the_sweeper_is_not_retried_since_the_next_one_is_due_and_its_failures_are_kept(whole):
    [config] = whole.found.of_type("AWS::Lambda::EventInvokeConfig").values()
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 300)
    queue = {"Fn::GetAtt": [whole.found.id_of(whole.units.dead_letter_queue), "Arn"]}
    assert config["DestinationConfig"] == {"OnFailure": {"Destination": queue}}
    [rule] = whole.found.of_type("AWS::Events::Rule").values()
    [target] = rule["Targets"]
    assert target["DeadLetterConfig"] == {"Arn": queue}
    assert on_table(whole.found, whole.units.sweeper, whole.units.dead_letter_queue) == {"sqs:SendMessage"}


@pytest.mark.parametrize(
    ("role", "on"),
    [
        ("sweeper", {"table": SWEEP_RECORDS, "accounts": FINISH_ITEMS, "orders": FINISH_ITEMS}),
        ("worker", {"table": RUN_UNITS, "accounts": RUN_UNITS, "orders": ()}),
        ("reader", {"table": READ_BESIDE_UNITS, "accounts": READ_BESIDE_UNITS, "orders": ()}),
        # Whose grant names its tables.
        ("shipper", {"table": RUN_UNITS, "accounts": (), "orders": RUN_UNITS}),
    ],
)
def test_each_role_has_the_permissions_on_each_table_that_it_needs_and_no_others(role, on, whole):
    principal = whole.units.sweeper if role == "sweeper" else getattr(whole, role)
    tables = {"table": whole.units.table, "accounts": whole.accounts, "orders": whole.orders}
    assert {name: on_table(whole.found, principal, tables[name]) for name in on} == {
        name: set(actions) for name, actions in on.items()
    }


def test_each_role_may_use_the_keys_of_its_tables(whole):
    for key in (whole.key, whole.data_key):
        assert "kms:Decrypt" in on_table(whole.found, whole.units.sweeper, key)
    assert "kms:GenerateDataKey" in on_table(whole.found, whole.worker, whole.data_key)
    assert on_table(whole.found, whole.reader, whole.data_key) == {"kms:Decrypt", "kms:DescribeKey"}


@STACKS
def test_no_action_and_no_resource_is_a_wildcard_but_where_there_is_no_resource(whole):
    statements = [one for one in whole.found.statements() if one["Effect"] == "Allow"]
    assert not [one for one in statements for action in as_list(one["Action"]) if "*" in action]
    wild = {action for one in statements if "*" in as_list(one["Resource"]) for action in as_list(one["Action"])}
    assert {action.partition(":")[0] for action in wild} == {"ec2", "xray"}


@STACKS
@pytest.mark.parametrize(
    ("every", "rate", "timeout"),
    [(Duration.minutes(1), "1 minute", 60), (Duration.hours(1), "1 hour", 900), (Duration.days(1), "1 day", 900)],
    ids=["1 min", "1 h", "1 day"],
)
def test_the_sweeper_comes_as_often_as_asked_for(every, rate, timeout, stack, synthesise):
    units = TransactionTables(stack, "Units", sweep_every=every, reserve_concurrency=False)
    found = synthesise(stack)
    [rule] = found.of_type("AWS::Events::Rule").values()
    assert rule["ScheduleExpression"] == f"rate({rate})"
    function = found.function(units.sweeper)
    assert (function["Timeout"], "ReservedConcurrentExecutions" in function) == (timeout, False)
    [config] = found.of_type("AWS::Lambda::EventInvokeConfig").values()
    assert config["MaximumEventAgeInSeconds"] == min(every.to_seconds(), 6 * 3_600)


@STACKS
def test_a_table_and_its_user_may_be_in_another_stack_which_waits_for_this_one_alone(outdir, synthesise):
    app = App(outdir=outdir)
    units = TransactionTables(Stack(app, "Units"), "Units")
    orders = Stack(app, "OfOrders")
    table, worker = dynamodb.Table(orders, "Orders", partition_key=ID), role_of(orders, "Worker")
    units.grant_units(worker, table)
    units.grant_units(worker, table)
    found = synthesise(orders)
    granted = on_table(found, worker, table)
    assert granted == set(RUN_UNITS)
    [of_sweeper] = [
        policy
        for policy in found.of_type("AWS::IAM::Policy").values()
        if policy["Roles"] != [{"Ref": found.id_of(worker)}]
    ]
    [statement] = of_sweeper["PolicyDocument"]["Statement"]
    assert set(statement["Action"]) == set(FINISH_ITEMS)
    assert Stack.of(units).dependencies == []


@STACKS
def test_a_table_by_name_or_arn_is_swept(stack, synthesise):
    units = TransactionTables(
        stack, "Units", data_tables=["accounts", "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"]
    )
    found = synthesise(stack)
    resources = [
        found.text(resource)
        for one in found.statements(units.sweeper)
        if set(FINISH_ITEMS) == set(as_list(one["Action"]))
        for resource in as_list(one["Resource"])
    ]
    assert sorted(each.rpartition(":")[2] for each in resources) == ["table/accounts", "table/orders"]


@pytest.mark.parametrize("grant", ["grant_units", "grant_reads"])
def test_a_grant_on_anything_but_a_table_is_refused(grant, stack):
    units = TransactionTables(stack, "Units")
    with pytest.raises(ValueError, match=r"tables\[0\] is 'accounts'; allowed: a table as a construct"):
        getattr(units, grant)(role_of(stack, "Worker"), "accounts")


def test_each_alarm_watches_its_metric_from_its_threshold_on_and_notifies_the_topic(whole):
    alarms = {name: whole.found.one(alarm)["Properties"] for name, alarm in whole.units.alarms.items()}
    assert {name: (each["MetricName"], each["Statistic"], each["Threshold"]) for name, each in alarms.items()} == ALARMS
    for alarm in alarms.values():
        assert (alarm["ComparisonOperator"], alarm["TreatMissingData"], alarm["Period"]) == (
            "GreaterThanOrEqualToThreshold",
            "notBreaching",
            300,
        )
        assert alarm["AlarmActions"] == [{"Ref": whole.found.id_of(whole.topic)}]
        assert alarm["AlarmDescription"].startswith("Whole/Units: ")


def test_every_metric_is_on_the_dashboard(whole):
    [dashboard] = whole.found.of_type("AWS::CloudWatch::Dashboard").values()
    shown = json.dumps(dashboard["DashboardBody"])
    metrics = [getattr(whole.units, name)() for name in dir(whole.units) if name.startswith("metric_")]
    assert len(metrics) == 9
    for metric in metrics:
        assert metric.dimensions == {"service": whole.units.service_name}
        assert f'\\"{metric.metric_name}\\"' in shown


@STACKS
def test_there_are_no_alarms_and_no_dashboard_unless_asked_for(stack, synthesise):
    units = TransactionTables(stack, "Units")
    assert (units.alarms, units.dashboard) == ({}, None)
    assert not [one for one in synthesise(stack).resources.values() if "CloudWatch" in one["Type"]]


@STACKS
def test_thresholds_periods_and_actions_can_be_chosen(stack, synthesise):
    topic = sns.Topic(stack, "Topic")
    chosen: dict[str, Any] = {each.name: number for number, each in enumerate(fields(UnitsAlarmThresholds), 2)}
    chosen["oldest_open_unit"] = Duration.hours(1)
    thresholds = UnitsAlarmThresholds(**chosen)
    units = TransactionTables(
        stack,
        "Units",
        alarms=True,
        alarm_thresholds=thresholds,
        alarm_actions=[actions.SnsAction(topic)],
        sweep_every=Duration.minutes(30),
    )
    found = synthesise(stack)
    alarms = {name: found.one(units.alarms[name])["Properties"] for name in ALARMS}
    of_fields = ["".join(part.title() for part in name.split("_")) for name in chosen]
    assert {name: each["Threshold"] for name, each in alarms.items()} == {
        name: 3_600_000 if isinstance(value, Duration) else value
        for name, value in zip(of_fields, chosen.values(), strict=True)
    }
    assert {each["Period"] for each in alarms.values()} == {1_800}
    assert all(each["AlarmActions"] == [{"Ref": found.id_of(topic)}] for each in alarms.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sweep_every": Duration.seconds(90)}, "sweep_every is 90 seconds; allowed: a Duration of whole minutes"),
        ({"sweep_every": Duration.days(2)}, "sweep_every is 172800 seconds; allowed: "),
        ({"sweep_every": 300}, "sweep_every is 300; allowed: a Duration"),
        ({"prefix": "a.b"}, 'prefix is "a.b"; allowed: text without `.`'),
        ({"memory_size": 128}, "memory_size is 128; allowed: a whole number from 256 to 10,240"),
        ({"data_tables": ["a name"]}, "data_tables[0] is 'a name'; allowed: a table as a construct, the name"),
        ({"data_tables": [42]}, "data_tables[0] is 42; allowed: a table as a construct"),
        ({"alarms": "yes"}, "alarms is 'yes'; allowed: True or False"),
        ({"reserve_concurrency": 1}, "reserve_concurrency is 1; allowed: True or False"),
    ],
)
def test_a_bad_setting_is_refused_by_name(settings, message, stack):
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TransactionTables(stack, "Units", **settings)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", [field.name for field in fields(UnitsAlarmThresholds)])
def test_a_bad_threshold_is_refused_by_name(name):
    thresholds: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"alarm_thresholds.{name} is 0; allowed: "):
        UnitsAlarmThresholds(**thresholds)


def test_a_table_of_another_region_is_refused(outdir):
    app = App(outdir=outdir)
    here, there = (
        Stack(app, name, env=Environment(region=region, account="123456789012"))
        for name, region in (("Here", "eu-west-1"), ("There", "us-east-1"))
    )
    table = dynamodb.Table(there, "Table", partition_key=ID, table_name="elsewhere")
    with pytest.raises(ValueError, match=r"data_tables\[0\] is There/Table, in the Region us-east-1; allowed: "):
        TransactionTables(here, "Units", data_tables=[table])


def test_the_ready_made_stack_has_the_same_lock_with_units_as_without(stack_with):
    asked_for = {"alarms": True, "dashboard": True}
    without = stack_with(**asked_for)
    with_units = stack_with(transactions="true", data_tables="accounts,orders", sweep_every="600", **asked_for)
    # All of the lock, its functions' asset among it, and the examples; and nothing of units.
    assert without.resources.items() <= with_units.resources.items()
    added = {id: each for id, each in with_units.resources.items() if id not in without.resources}
    assert added
    assert all(id.startswith("Transactions") for id in added)
    assert not [id for id in without.resources if id.startswith("Transactions")]
    outputs = set(with_units.template["Outputs"]) - set(without.template["Outputs"])
    assert outputs == {"UnitsTableName", "SweeperName"}
    assert with_units.of_type("AWS::Events::Rule").keys() > without.of_type("AWS::Events::Rule").keys()


@STACKS
def test_the_ready_made_stack_passes_the_settings_of_units_on(stack_with):
    found = stack_with(
        transactions=True, sweep_every=600, removal_policy="destroy", memory_size=1024, clean_up_concurrency="none"
    )
    [sweeper] = [
        each for each in found.of_type("AWS::Lambda::Function").values() if each["Handler"] == "sweeper.handler"
    ]
    assert (sweeper["MemorySize"], sweeper["Timeout"]) == (1_024, 600)
    assert "ReservedConcurrentExecutions" not in sweeper
    tables = [each for each in found.resources.values() if each["Type"] == "AWS::DynamoDB::Table"]
    assert [each["DeletionPolicy"] for each in tables] == ["Delete", "Delete"]


@pytest.mark.parametrize("setting", [{"data_tables": "accounts"}, {"sweep_every": "300"}], ids=str)
def test_the_ready_made_stack_refuses_settings_of_units_without_them(setting, stack_with):
    [name] = setting
    with pytest.raises(ValueError, match=f"{name} is given and transactions is not; allowed: {name} together"):
        stack_with(**setting)
