"""TransactionTables: the sweeper of the units' own table, its permissions, and the same lock as without."""

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from kit.stacks import as_list, on_table
from ticketlock_cdk import TransactionTables
from ticketlock_cdk.units.access import (
    FINISH_ITEMS,
    LIST_OPEN_UNITS,
    QUERY_INDEXES,
    READ_BESIDE_UNITS,
    RUN_UNITS,
    SWEEP_RECORDS,
)

STACKS = pytest.mark.verify("a stack of its own, synthesised")
ID, DAY, TOTAL = (dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING) for name in ("id", "day", "total"))


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
        self.orders = dynamodb.Table(stack, "Orders", partition_key=ID, sort_key=DAY)
        self.orders.add_local_secondary_index(index_name="byTotal", sort_key=TOTAL)
        self.units = TransactionTables(
            stack,
            "Units",
            data_tables=[self.accounts],
            encryption_key=self.key,
            vpc=ec2.Vpc.from_vpc_attributes(
                stack, "Vpc", vpc_id="vpc-1", availability_zones=["a"], private_subnet_ids=["subnet-1"]
            ),
            reserve_concurrency=True,
            dashboard=True,
            alarms=True,
            alarm_topic=self.topic,
        )
        self.worker, self.reader, self.shipper = (role_of(stack, name) for name in ("Worker", "Reader", "Shipper"))
        self.units.grant_units(self.worker)
        self.units.grant_reads(self.reader)
        self.units.grant_units(self.shipper, self.orders)
        self.units.grant_units(self.shipper, self.orders)
        # After the grants.
        self.accounts.add_global_secondary_index(index_name="byDay", partition_key=DAY)
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
    [schedule] = whole.found.of_type("AWS::Scheduler::Schedule").values()
    assert (schedule["ScheduleExpression"], schedule["FlexibleTimeWindow"]) == ("rate(5 minutes)", {"Mode": "OFF"})
    assert (sweeper["ReservedConcurrentExecutions"], sweeper["Timeout"]) == (1, 300)
    assert sweeper["Environment"]["Variables"] == {
        "TABLE_NAME": {"Ref": whole.found.id_of(whole.units.table)},
        "POWERTOOLS_SERVICE_NAME": whole.units.service_name,
    }
    assert sweeper["VpcConfig"]["SubnetIds"] == ["subnet-1"]


def test_a_failed_pass_is_neither_retried_nor_kept_since_the_next_one_is_due(whole):
    [config] = whole.found.of_type("AWS::Lambda::EventInvokeConfig").values()
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 300)
    assert "DestinationConfig" not in config
    assert on_table(whole.found, whole.units.sweeper, whole.units.dead_letter_queue) == set()


def test_the_schedule_keeps_what_it_could_not_start_and_its_role_may_do_that_and_start_the_sweeper(whole):
    found, units = whole.found, whole.units
    [(id, schedule)] = found.of_type("AWS::Scheduler::Schedule").items()
    queue, role = {"Fn::GetAtt": [found.id_of(units.dead_letter_queue), "Arn"]}, schedule["Target"]["RoleArn"]
    assert schedule["Target"] == {
        "Arn": {"Fn::GetAtt": [found.id_of(units.sweeper), "Arn"]},
        "DeadLetterConfig": {"Arn": queue},
        "RetryPolicy": {"MaximumEventAgeInSeconds": 300},
        "RoleArn": role,
    }
    [(name, policy)] = [
        (name, each)
        for name, each in found.of_type("AWS::IAM::Policy").items()
        if each["Roles"] == [{"Ref": role["Fn::GetAtt"][0]}]
    ]
    assert name in found.resources[id]["DependsOn"]
    allowed = {
        (action, found.text(one["Resource"]))
        for one in policy["PolicyDocument"]["Statement"]
        for action in as_list(one["Action"])
    }
    key = f"<{found.id_of(whole.key)}>"
    assert allowed == {
        ("lambda:InvokeFunction", f"<{found.id_of(units.sweeper)}>"),
        ("sqs:SendMessage", f"<{found.id_of(units.dead_letter_queue)}>"),
        ("kms:Decrypt", key),
        ("kms:GenerateDataKey", key),
    }
    [trust] = found.resources[role["Fn::GetAtt"][0]]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    group = "arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule-group/default"
    conditions = {name: found.text(value) for name, value in trust["Condition"]["StringEquals"].items()}
    assert conditions == {"aws:SourceAccount": "<AWS::AccountId>", "aws:SourceArn": group}


@pytest.mark.parametrize(
    ("role", "on", "queried"),
    [
        ("sweeper", {"table": SWEEP_RECORDS, "accounts": FINISH_ITEMS, "orders": FINISH_ITEMS}, ()),
        ("worker", {"table": RUN_UNITS, "accounts": RUN_UNITS, "orders": ()}, ("accounts",)),
        ("reader", {"table": READ_BESIDE_UNITS, "accounts": READ_BESIDE_UNITS, "orders": ()}, ("accounts",)),
        # Whose grant names its tables.
        ("shipper", {"table": RUN_UNITS, "accounts": (), "orders": RUN_UNITS}, ("orders",)),
    ],
)
def test_each_role_has_the_permissions_on_each_table_and_its_indexes_that_it_needs_and_no_others(
    role, on, queried, whole
):
    principal = whole.units.sweeper if role == "sweeper" else getattr(whole, role)
    tables = {"table": whole.units.table, "accounts": whole.accounts, "orders": whole.orders}
    assert {name: on_table(whole.found, principal, tables[name]) for name in on} == {
        name: set(actions) for name, actions in on.items()
    }
    indexes = {f"<{whole.found.id_of(tables[name])}>/index/*": QUERY_INDEXES for name in queried}
    if role == "sweeper":
        indexes = {f"<{whole.found.id_of(whole.units.table)}>/index/open": LIST_OPEN_UNITS}
    assert on_indexes(whole.found, principal) == {resource: set(actions) for resource, actions in indexes.items()}


def on_indexes(found, principal):
    """The actions on each index that the policies of a role, or a function, have."""
    return {
        text: set(as_list(one["Action"]))
        for one in found.statements(principal)
        for text in map(found.text, as_list(one["Resource"]))
        if "/index/" in text
    }


@STACKS
def test_of_an_imported_table_any_index_may_be_queried_and_of_one_without_indexes_none(stack, synthesise):
    imported = dynamodb.Table.from_table_name(stack, "Imported", "ledger")
    without = dynamodb.Table(stack, "Without", partition_key=ID)
    role = role_of(stack, "Worker")
    TransactionTables(stack, "Units").grant_units(role, imported, without)
    [(resource, actions)] = on_indexes(synthesise(stack), role).items()
    assert resource.endswith(":table/ledger/index/*")
    assert actions == set(QUERY_INDEXES)


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
    units = TransactionTables(stack, "Units", sweep_every=every)
    found = synthesise(stack)
    [schedule] = found.of_type("AWS::Scheduler::Schedule").values()
    assert schedule["ScheduleExpression"] == f"rate({rate})"
    function = found.function(units.sweeper)
    assert (function["Timeout"], "ReservedConcurrentExecutions" in function) == (timeout, False)
    [config] = found.of_type("AWS::Lambda::EventInvokeConfig").values()
    assert config["MaximumEventAgeInSeconds"] == min(every.to_seconds(), 6 * 3_600)


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sweep_every": Duration.seconds(90)}, "sweep_every is 90 seconds; allowed: a Duration of whole minutes"),
        ({"sweep_every": Duration.days(2)}, "sweep_every is 172800 seconds; allowed: "),
        ({"sweep_every": 300}, "sweep_every is 300; allowed: a Duration"),
        ({"memory_size": 128}, "memory_size is 128; allowed: a whole number from 256 to 10,240"),
        ({"data_tables": ["a name"]}, "data_tables[0] is 'a name'; allowed: a table as a construct, the name"),
        ({"data_tables": [42]}, "data_tables[0] is 42; allowed: a table as a construct"),
        (
            {"data_tables": ["accounts", "orders", "arn:aws:dynamodb:eu-west-1:123456789012:table/accounts"]},
            "data_tables[2] is 'arn:aws:dynamodb:eu-west-1:123456789012:table/accounts', which data_tables[0] is, too",
        ),
        ({"alarms": "yes"}, "alarms is 'yes'; allowed: True or False"),
        ({"reserve_concurrency": 1}, "reserve_concurrency is 1; allowed: True or False"),
    ],
)
def test_a_bad_setting_is_refused_by_name(settings, message, stack):
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TransactionTables(stack, "Units", **settings)
    assert message in str(refused.value)


def test_a_table_that_is_listed_twice_is_refused(stack):
    accounts, orders = (dynamodb.Table(stack, name, partition_key=ID) for name in ("Accounts", "Orders"))
    with pytest.raises(
        ValueError, match=r"data_tables\[2\] is Test/Accounts, which data_tables\[0\] is, too; allowed: "
    ):
        TransactionTables(stack, "Units", data_tables=[accounts, orders, accounts])


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
    assert outputs == {"UnitsTableName", "ListUnits", "SweeperName"}
    assert with_units.of_type("AWS::Events::Rule").keys() == without.of_type("AWS::Events::Rule").keys()


@STACKS
def test_the_ready_made_stack_passes_the_settings_of_units_on(stack_with):
    found = stack_with(transactions=True, sweep_every=600, removal_policy="destroy", memory_size=1024)
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
