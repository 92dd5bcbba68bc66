"""The ready-made stack, and the app that a checkout deploys."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App
from ticketlock_cdk import TicketlockStack

ROOT = Path(__file__).parents[2]
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pay"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Orders"
OUTPUTS = {"TableName", "StateMachineArn", "ExampleTargetArn", "ExampleFunctionArn"}


@pytest.fixture
def stack_with(outdir, synthesise):
    def synthesised(**context):
        app = App(outdir=outdir, context=context)
        return synthesise(TicketlockStack(app, "Ticketlock"))

    return synthesised


def take_ticket(found):
    """The settings that the state machine passes to its first step."""
    for machine in found.of_type("AWS::StepFunctions::StateMachine").values():
        text = json.dumps(machine["DefinitionString"])
        if "defaultRecordWaitSeconds" in text:
            return text.replace("\\", "")
    raise AssertionError("there is no serialised workflow")


def test_its_outputs_are_what_a_caller_needs(stack_with):
    assert set(stack_with().template["Outputs"]) == OUTPUTS


def test_its_examples_are_allowed(stack_with):
    found = stack_with()
    for output in ("ExampleTargetArn", "ExampleFunctionArn"):
        assert json.dumps(found.template["Outputs"][output]["Value"]) in take_ticket(found)


def test_further_targets_are_allowed_beside_the_examples(stack_with):
    settings = take_ticket(stack_with(targets=f"{FUNCTION}, {MACHINE}"))
    assert f'"{FUNCTION}"' in settings
    assert f'"{MACHINE}"' in settings
    assert "Example" in settings


def test_targets_may_be_a_list(stack_with):
    assert f'"{FUNCTION}"' in take_ticket(stack_with(targets=[FUNCTION]))


def test_it_waits_for_ever_unless_told_otherwise(stack_with):
    assert '"defaultRecordWaitSeconds": "Infinity"' in take_ticket(stack_with())


@pytest.mark.parametrize("wait", ["30", 30])
def test_its_settings_come_from_the_context(wait, stack_with):
    settings = take_ticket(stack_with(lease="20", poll="2", default_record_wait=wait))
    assert '"defaultRecordWaitSeconds": 30' in settings
    assert '"leaseSeconds": 20' in settings
    assert '"pollSeconds": 2' in settings


@pytest.mark.parametrize(("policy", "expected"), [("retain", "Retain"), ("destroy", "Delete"), (None, "Retain")])
def test_the_table_stays_unless_told_otherwise(policy, expected, stack_with):
    found = stack_with(**({} if policy is None else {"removal_policy": policy}))
    [table] = [one for one in found.resources.values() if one["Type"] == "AWS::DynamoDB::Table"]
    assert table["DeletionPolicy"] == expected


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"lease": "long"}, "lease is 'long'; allowed: a number of seconds"),
        ({"lease": "15"}, "lease is 15 seconds; allowed: whole, even seconds"),
        ({"poll": "nan"}, "poll is 'nan'; allowed: a number of seconds"),
        ({"poll": "0"}, "poll is 0 seconds; allowed: whole seconds from 1"),
        ({"default_record_wait": "-1"}, "default_record_wait is '-1'; allowed: a number of seconds from 0 on"),
        ({"default_record_wait": "inf"}, "default_record_wait is 'inf'; allowed: a number of seconds from 0 on"),
        ({"removal_policy": "keep"}, "removal_policy is 'keep'; allowed: retain or destroy"),
        ({"targets": "pay"}, "targets[2] is 'pay'"),
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
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "JSII_", "XDG_CACHE"))}
    done = subprocess.run(
        [sys.executable, str(root / "app.py")],
        env={**kept, "HOME": str(Path.home()), "PATH": str(tools), "CDK_OUTDIR": str(output), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    template: dict[str, Any] = json.loads((output / "Ticketlock.template.json").read_text())
    return template


def asset_keys(template: dict[str, Any]) -> set[str]:
    functions = [one for one in template["Resources"].values() if one["Type"] == "AWS::Lambda::Function"]
    return {one["Properties"]["Code"]["S3Key"] for one in functions if "S3Key" in one["Properties"]["Code"]}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return synthesise_app(ROOT, tmp_path_factory.mktemp("here") / "cdk.out", {})


def test_the_app_synthesises_without_credentials_and_without_docker(template):
    assert set(template["Outputs"]) == OUTPUTS


def test_the_app_is_for_any_account_and_region(template):
    assert "123456789012" not in json.dumps(template)
    assert "us-east-1" not in json.dumps(template)


def test_all_functions_have_one_asset(template):
    assert len(asset_keys(template)) == 1


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
