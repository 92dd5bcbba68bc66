"""The ready-made stack, and the app that a checkout deploys."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cdk_nag
import pytest
from aws_cdk import App
from ticketlock_cdk import TicketlockStack, nag
from ticketlock_cdk.examples import _FUNCTION

ROOT = Path(__file__).parents[2]
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pay"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Orders"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:on-call"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000"
STACK = pytest.mark.verify("a stack of its own, synthesised")
OUTPUTS = {"TableName", "ListLocks", "StateMachineArn", "ExampleTargetArn", "ExampleFunctionArn"}


def serialised_workflow(found):
    """The definition of the serialised workflow, as text: the one with settings for a first step."""
    machines = found.of_type("AWS::StepFunctions::StateMachine").values()
    definitions = [found.text(machine["DefinitionString"]) for machine in machines]
    [text] = [text for text in definitions if "defaultRecordWaitSeconds" in text]
    return text


def test_it_has_the_outputs_that_a_caller_needs_and_its_examples_are_allowed(stack_with):
    found = stack_with()
    assert set(found.template["Outputs"]) == OUTPUTS
    for output in ("ExampleTargetArn", "ExampleFunctionArn"):
        assert found.text(found.template["Outputs"][output]["Value"]) in serialised_workflow(found)


def test_with_targets_of_its_own_it_has_no_examples(stack_with):
    found = stack_with(targets=FUNCTION)
    assert set(found.template["Outputs"]) == {name for name in OUTPUTS if not name.startswith("Example")}
    assert "Example" not in json.dumps(found.template)


def test_the_example_function_sleeps_for_as_long_as_it_is_asked(stack_with, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    example: dict[str, Any] = {}
    exec(_FUNCTION, example)
    assert example["handler"]({"seconds": 600, "lock": {"entity": "a"}}, None)["lock"] == {"entity": "a"}
    assert slept == [600]
    [function] = [each for id, each in stack_with().of_type("AWS::Lambda::Function").items() if "Example" in id]
    assert function["Timeout"] == 900


@pytest.mark.parametrize(
    ("more", "reserved"),
    [
        ({}, []),
        pytest.param({"clean_up_concurrency": "none"}, [], marks=STACK),
        ({"clean_up_concurrency": 10}, [1, 5, 10]),
    ],
    ids=["by default", "without a bound", "with a bound"],
)
def test_a_first_deployment_reserves_no_concurrency_of_which_a_new_account_may_have_none_to_reserve(
    more, reserved, stack_with
):
    """Lambda leaves at least 100 unreserved: docs/deploying.md says of how many this is the rest."""
    found = stack_with(transactions=True, workflows=MACHINE, alarms=True, dashboard=True, **more)
    functions = found.of_type("AWS::Lambda::Function").values()
    numbers = [each["ReservedConcurrentExecutions"] for each in functions if "ReservedConcurrentExecutions" in each]
    assert sorted(numbers) == reserved
    if reserved:
        page = " ".join((ROOT / "docs/deploying.md").read_text().split())
        assert f"the account needs {100 + max(reserved)}, or {100 + sum(reserved)} with the" in page
    assert not any("Provisioned" in json.dumps(each) for each in found.resources.values())


NUMBERS = {
    "lease": "20",
    "row_lease": "44",
    "poll": "2",
    "permits": "3",
    "polls_an_execution": "20",
    "beats_an_execution": 30,
}


@pytest.mark.parametrize(
    ("context", "settings"),
    [
        ({}, ['"defaultRecordWaitSeconds": "Infinity"', '"handOver": "callback"']),
        ({"targets": f"{FUNCTION}, {MACHINE}", "examples": "true"}, [f'"{FUNCTION}"', f'"{MACHINE}"', "Example"]),
        pytest.param({"targets": [FUNCTION]}, [f'"{FUNCTION}"'], marks=STACK),
        (
            {**NUMBERS, "default_record_wait": "1.5"},
            [
                '"defaultPermits": 3',
                '"defaultRecordWaitSeconds": 1.5',
                '"leaseSeconds": 20',
                '"rowLeaseSeconds": 44',
                '"TimeoutSeconds": 22',
                '"pollSeconds": 2',
                '"pollsAnExecution": 20',
                '"beatsAnExecution": 30',
            ],
        ),
        pytest.param({"default_record_wait": 30}, ['"defaultRecordWaitSeconds": 30'], marks=STACK),
        pytest.param({"hand_over": "poll"}, ['"handOver": "poll"'], marks=STACK),
        ({"heartbeat": "false", "work_timeout": "17"}, ['"TimeoutSeconds": 17']),
    ],
    ids=str,
)
def test_the_settings_of_the_state_machine_come_from_the_context(context, settings, stack_with):
    text = serialised_workflow(stack_with(**context))
    assert [setting for setting in settings if setting not in text] == []
    assert ('"Heartbeat"' in text) == ("heartbeat" not in context)


@STACK
@pytest.mark.parametrize(
    ("policy", "table", "others"),
    [
        ("retain", "Retain", "Retain"),
        ("destroy", "Delete", "Delete"),
        # A rollback could not delete the table, which is protected.
        (None, "Retain", "RetainExceptOnCreate"),
    ],
)
def test_the_tables_the_logs_and_the_dead_letters_stay_unless_told_otherwise(policy, table, others, stack_with):
    """https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-attribute-deletionpolicy.html"""
    found = stack_with(transactions=True, **({} if policy is None else {"removal_policy": policy}))
    kept: dict[str, set[tuple[str, str]]] = {}
    for id, each in found.resources.items():
        if not id.startswith("Example"):
            kept.setdefault(each["Type"], set()).add((each.get("DeletionPolicy"), each.get("UpdateReplacePolicy")))
    replaced = "Delete" if policy == "destroy" else "Retain"
    assert kept["AWS::DynamoDB::Table"] == {(table, replaced)}
    assert kept["AWS::Logs::LogGroup"] == kept["AWS::SQS::Queue"] == {(others, replaced)}
    tables = found.of_type("AWS::DynamoDB::Table").values()
    assert [each["DeletionProtectionEnabled"] for each in tables] == 2 * [policy != "destroy"]


@STACK
def test_an_existing_table_can_be_named(stack_with):
    found = stack_with(table_name="locks")
    assert not found.of_type("AWS::DynamoDB::Table")
    assert found.template["Outputs"]["TableName"]["Value"] == "locks"


@STACK
@pytest.mark.parametrize(("days", "expected"), [("7", 7), ("infinite", None), ("", 30)])
def test_logs_are_kept_for_as_long_as_asked_for(days, expected, stack_with):
    found = stack_with(log_retention=days)
    kept = {
        group.get("RetentionInDays")
        for id, group in found.of_type("AWS::Logs::LogGroup").items()
        if id.startswith("TicketLock")
    }
    assert kept == {expected}


@STACK
@pytest.mark.parametrize(("flag", "number"), [("true", 1), ("false", 0), (None, 0)])
def test_a_dashboard_and_alarms_are_there_if_asked_for(flag, number, stack_with):
    found = stack_with(dashboard=flag, alarms=flag)
    assert len(found.of_type("AWS::CloudWatch::Dashboard")) == number
    assert bool(found.of_type("AWS::CloudWatch::Alarm")) == bool(number)


@STACK
@pytest.mark.parametrize(
    "thresholds", ["lost_leases=2, oldest_waiter=1800", {"lost_leases": 2, "oldest_waiter": 1800}], ids=str
)
def test_alarms_have_the_thresholds_of_the_context_and_notify_the_topic(thresholds, stack_with):
    found = stack_with(alarms="true", alarm_topic=TOPIC, alarm_thresholds=thresholds)
    alarms = {alarm.get("MetricName"): alarm for alarm in found.of_type("AWS::CloudWatch::Alarm").values()}
    assert (alarms["LostLeases"]["Threshold"], alarms["OldestWaiterAge"]["Threshold"]) == (2, 1_800_000)
    assert all(alarm["AlarmActions"] == [TOPIC] for alarm in alarms.values())


@STACK
def test_a_key_encrypts_the_table_every_log_and_every_machine_of_the_lock(stack_with):
    found = stack_with(encryption_key=KEY)
    [table] = found.of_type("AWS::DynamoDB::Table").values()
    assert table["SSESpecification"]["KMSMasterKeyId"] == KEY
    assert {group.get("KmsKeyId") for group in found.of_type("AWS::Logs::LogGroup").values()} == {KEY}
    machines = found.of_type("AWS::StepFunctions::StateMachine")
    with_key = {"Type": "CUSTOMER_MANAGED_KMS_KEY", "KmsKeyId": KEY}
    of_lock = [each["EncryptionConfiguration"] for id, each in machines.items() if id.startswith("TicketLock")]
    assert of_lock == 2 * [with_key]


@STACK
@pytest.mark.parametrize(
    ("groups", "expected"), [("sg-0123456789abcdef0", ["sg-0123456789abcdef0"]), (None, None)], ids=["given", "new"]
)
def test_the_functions_are_in_the_network_that_is_named(groups, expected, stack_with):
    subnets = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
    found = stack_with(vpc_id="vpc-0123456789abcdef0", subnet_ids=",".join(subnets), security_group_ids=groups)
    networks = [
        function["VpcConfig"]
        for id, function in found.of_type("AWS::Lambda::Function").items()
        if id.startswith("TicketLock")
    ]
    assert networks
    assert all(network["SubnetIds"] == subnets for network in networks)
    new = [{"Fn::GetAtt": [id, "GroupId"]} for id in found.of_type("AWS::EC2::SecurityGroup")]
    assert all(network["SecurityGroupIds"] == (expected or new) for network in networks)


@STACK
@pytest.mark.parametrize("boundary", ["developers", "arn:aws:iam::123456789012:policy/developers"])
def test_a_permissions_boundary_reaches_every_role(boundary, stack_with):
    roles = stack_with(permissions_boundary=boundary).of_type("AWS::IAM::Role").values()
    assert roles
    assert all("policy/developers" in json.dumps(role["PermissionsBoundary"]) for role in roles)


@STACK
@pytest.mark.parametrize("traced", [True, False])
def test_nothing_is_traced_if_tracing_is_off(traced, stack_with):
    found = stack_with(tracing=traced, transactions=True)
    functions, machines = found.of_type("AWS::Lambda::Function"), found.of_type("AWS::StepFunctions::StateMachine")
    assert {each.get("TracingConfig", {}).get("Mode") == "Active" for each in functions.values()} == {traced}
    assert {each.get("TracingConfiguration", {}).get("Enabled", False) for each in machines.values()} == {traced}


@STACK
@pytest.mark.parametrize("level", ["error", "OFF", None])
def test_executions_are_logged_at_the_level_of_the_context(level, stack_with):
    machines = stack_with(log_level=level).of_type("AWS::StepFunctions::StateMachine")
    of_lock = {each["LoggingConfiguration"]["Level"] for id, each in machines.items() if id.startswith("TicketLock")}
    assert of_lock == {"ALL" if level is None else level.upper()}


NETWORK = {"vpc_id": "vpc-0123456789abcdef0", "subnet_ids": "subnet-0123456789abcdef0"}
PACKS = [name for name in dir(cdk_nag) if name.endswith("Checks")]
# What packs ask for, and the settings that answer it.
ANSWERS: dict[str, dict[str, Any]] = {
    "CloudWatchAlarmAction": {"alarm_topic": TOPIC},
    "CloudWatchLogGroupEncrypted": {"encryption_key": KEY},
    "IAMNoInlinePolicy": {"managed_policies": True},
    "LambdaInsideVPC": NETWORK,
}


ALL_ANSWERS = {name: value for answer in ANSWERS.values() for name, value in answer.items()}


def found_by_all_packs(outdir, **settings):
    """The rules with a finding that is not acknowledged, by pack."""
    app = App(outdir=str(outdir), context={"transactions": True, "workflows": MACHINE, "alarms": True, **settings})
    TicketlockStack(app, "Ticketlock")
    app.synth()
    packs = {name: getattr(cdk_nag, name)(app).validate_scope(app) for name in PACKS}
    return {name: {each.rule_name for each in report.violations} for name, report in packs.items()}


@STACK
@pytest.mark.parametrize(
    "more",
    [
        {"dashboard": True, "dashboard_live": True},
        {"clean_up_concurrency": 10, "targets": MACHINE},
        {"tracing": False, "log_level": "error", "examples": True, "targets": MACHINE},
    ],
    ids=str,
)
def test_with_the_settings_that_they_ask_for_no_pack_finds_anything_without_a_reason(more, tmp_path):
    assert len(PACKS) >= 6
    assert found_by_all_packs(tmp_path, **ALL_ANSWERS, **more) == {name: set() for name in PACKS}


@STACK
def test_without_settings_packs_find_what_settings_answer_and_nothing_else(tmp_path):
    found = found_by_all_packs(tmp_path)
    rules = {rule.partition("-")[2] for each in found.values() for rule in each}
    assert rules == set(ANSWERS)
    assert found["AwsSolutionsChecks"] == found["ServerlessChecks"] == set()


@STACK
def test_each_reason_answers_a_finding(tmp_path, monkeypatch):
    class Unheard:
        """In place of the CDK's acknowledgements."""

        @classmethod
        def of(cls, _construct):
            return cls

        @staticmethod
        def acknowledge(*_):
            pass

    monkeypatch.setattr(nag, "Validations", Unheard)
    settings = {"tracing": False, "log_level": "error", "data_tables": "accounts"}
    found = {rule for each in found_by_all_packs(tmp_path, **settings).values() for rule in each}
    rules = {rule.partition("-")[2].partition("[")[0] for rule in found}
    assert rules == {*ANSWERS, *nag.REASONS, "IAM5"}


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"lease": "long"}, "lease is 'long'; allowed: a number of seconds"),
        ({"poll": "nan"}, "poll is 'nan'; allowed: a number of seconds"),
        ({"permits": "0"}, "permits is 0; allowed: a whole number from 1 to 100"),
        ({"permits": "many"}, "permits is 'many'; allowed: a whole number"),
        ({"default_record_wait": "-1"}, "default_record_wait is '-1'; allowed: a number of seconds from 0 on"),
        ({"default_record_wait": "inf"}, "default_record_wait is 'inf'; allowed: a number of seconds from 0 on"),
        ({"removal_policy": "keep"}, "removal_policy is 'keep'; allowed: retain or destroy"),
        ({"targets": "pay"}, "targets[0] is 'pay'"),
        ({"targets": {"pay": True}}, "targets is {'pay': True}; allowed: a list of texts"),
        ({"table_name": "a name"}, "table is 'a name'; allowed: a table as a construct, the name"),
        ({"table_name": 42}, "table_name is 42; allowed: text"),
        ({"log_retention": "8"}, "log_retention is '8'; allowed: infinite, or a number of days out of 1, 3, 5"),
        ({"log_retention": "forever"}, "log_retention is 'forever'; allowed: infinite"),
        ({"hand_over": "push"}, "hand_over is 'push'; allowed: callback or poll"),
        ({"heartbeat": "off"}, "heartbeat is 'off'; allowed: true or false"),
        ({"polls_an_execution": "many"}, "polls_an_execution is 'many'; allowed: a whole number"),
        ({"beats_an_execution": "0"}, "beats_an_execution is 0; allowed: a whole number from 2"),
        ({"clean_up_concurrency": "few"}, "clean_up_concurrency is 'few'; allowed: a whole number, or none"),
        ({"log_level": "some"}, "log_level is 'some'; allowed: off or all or error or fatal"),
        ({"tracing": "off"}, "tracing is 'off'; allowed: true or false"),
        ({"dashboard": "yes"}, "dashboard is 'yes'; allowed: true or false"),
        ({"dashboard_live": "yes"}, "dashboard_live is 'yes'; allowed: true or false"),
        ({"dashboard_live": "true"}, "dashboard_live is True and dashboard is False; allowed: together with"),
        ({"alarms": 1}, "alarms is 1; allowed: true or false"),
        ({"alarm_topic": TOPIC}, "alarm_topic is given and alarms is False; allowed: alarm_topic together with"),
        ({"alarm_thresholds": "lost=1"}, "alarm_thresholds is 'lost=1'; allowed: name=number with commas"),
        ({"alarm_thresholds": ["lost_leases"]}, "alarm_thresholds is ['lost_leases']; allowed: name=number"),
        ({"alarm_thresholds": "lost_leases"}, "alarm_thresholds.lost_leases is ''; allowed: a whole number from 1"),
        ({"alarm_thresholds": "lost_leases=0"}, "alarm_thresholds.lost_leases is 0; allowed: a whole number from 1"),
        ({"alarm_thresholds": {"oldest_waiter": "x"}}, "alarm_thresholds.oldest_waiter is 'x'; allowed: a number of"),
        ({"subnet_ids": "subnet-1"}, "subnet_ids is ['subnet-1'] and vpc_id is not given; allowed: with a vpc_id"),
        ({"security_group_ids": "sg-1"}, "security_group_ids is ['sg-1'] and vpc_id is not given; allowed: with"),
        ({"vpc_id": "vpc-1"}, "vpc_id is 'vpc-1' and subnet_ids is not given; allowed: with at least one"),
    ],
)
def test_a_bad_setting_is_refused_by_name(context, message, stack_with):
    with pytest.raises(ValueError, match="allowed: ") as refused:
        stack_with(**context)
    assert message in str(refused.value)


def synthesise_app(root: Path, output: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run an app.py as a process of its own, with the CDK's Node and the user's cache and nothing else."""
    tools = output.parent / "tools"
    tools.mkdir(exist_ok=True)
    node = shutil.which("node")
    assert node is not None
    if not (tools / "node").exists():
        (tools / "node").symlink_to(node)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "XDG_CACHE"))}
    done = subprocess.run(
        [sys.executable, str(root / "app.py")],
        env={**kept, "HOME": str(Path.home()), "PATH": str(tools), "CDK_OUTDIR": str(output), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "!!!!" not in done.stderr, f"the app prints the banner of the CDK's runtime:\n{done.stderr}"
    template: dict[str, Any] = json.loads((output / "Ticketlock.template.json").read_text())
    return template


def asset_keys(template: dict[str, Any]) -> set[str]:
    functions = [one for one in template["Resources"].values() if one["Type"] == "AWS::Lambda::Function"]
    return {one["Properties"]["Code"]["S3Key"] for one in functions if "S3Key" in one["Properties"]["Code"]}


AN_APP_OF_ITS_OWN = pytest.mark.verify("an app in a process of its own; `make check` synthesises the same one")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return synthesise_app(ROOT, tmp_path_factory.mktemp("here") / "cdk.out", {})


@AN_APP_OF_ITS_OWN
def test_the_app_synthesises_without_credentials_and_docker_for_any_account_and_region_with_one_asset(template):
    assert set(template["Outputs"]) == OUTPUTS
    assert "123456789012" not in json.dumps(template)
    assert "us-east-1" not in json.dumps(template)
    assert len(asset_keys(template)) == 1


@AN_APP_OF_ITS_OWN
def test_the_asset_of_a_checkout_elsewhere_is_the_same(template, tmp_path):
    copy = tmp_path / "elsewhere"
    for folder in ("src/ticketlock", "infra/ticketlock_cdk", "functions", "statemachines"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "app.py", copy / "app.py")
    # What Python leaves behind, and a file that was copied at another time.
    (copy / "functions/__pycache__").mkdir()
    (copy / "functions/__pycache__/release.cpython-311.pyc").write_bytes(b"another")
    os.utime(copy / "functions/release.py", (0, 0))
    path = os.pathsep.join([str(copy / "src"), str(copy / "infra")])
    elsewhere = synthesise_app(copy, tmp_path / "cdk.out", {"PYTHONPATH": path})
    assert asset_keys(elsewhere) == asset_keys(template)
