"""docs/command.md and docs/table.md are correct: their examples are run, their templates compared and deployed."""

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import click
import pytest
import yaml  # type: ignore[import-untyped]  # ships no types
from cli.pages import comparable, examples
from kit.command import Command
from kit.pages import blocks, text
from kit.policy import listed
from ticketlock_cdk.lock import grants
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.emulator import Emulator

from ticketlock.cli import _commands, _exits
from ticketlock.cli._local import serving
from ticketlock.locks._lock_table import LOCK_TABLE
from ticketlock.testing import MemoryDynamoDB
from ticketlock.wire._actions import TIME_TO_LIVE

pytestmark = pytest.mark.verify("each example is a process, or several")

PROGRAM = '#!/bin/sh\necho "migrating under fencing token $TICKETLOCK_FENCING_TOKEN"\n'


@pytest.fixture
def here(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a shell whose table does not exist yet."""
    with serving(MemoryDynamoDB(lock_table=None), port=0) as endpoint:
        yield {**environment, "AWS_ENDPOINT_URL": endpoint, "TICKETLOCK_TABLE": "locks"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("migrate.sh", "deploy.sh"):
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def in_a_shell(commands: list[str], environment: dict[str, str], folder: Path) -> list[str]:
    """What each of the commands prints, one after the other in one shell."""
    mark = f"-- {uuid.uuid4().hex} --"
    # The next command may print the exit code.
    script = "\n".join(f"{command}\nlast=$?; echo '{mark}'; (exit $last)" for command in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=400,
    )
    return done.stdout.split(f"{mark}\n")[:-1]


def commands_and_groups() -> dict[str, click.Command]:
    """All except those of units, which have a page of their own."""
    group = _commands._ticketlock
    return {"": group, **{name: command for name, command in group.commands.items() if name != "units"}}


def test_each_example_prints_what_the_page_says(here: dict[str, str], folder: Path) -> None:
    listed = [example for block in blocks("docs/command.md", "console") for example in examples(block)]
    # It runs until a signal; it has tests of its own.
    listed = [example for example in listed if example.command != "ticketlock local"]
    printed = in_a_shell([example.command for example in listed], here, folder)
    for example, each in zip(listed, printed, strict=True):
        assert (example.command, comparable(each)) == (example.command, comparable(example.prints))


def test_the_lines_of_local_are_those_of_the_page(command: Command) -> None:
    (said,) = [
        each for block in blocks("docs/command.md", "console") for each in examples(block) if "local" in each.command
    ]
    local = command.start("local", env={"TICKETLOCK_TABLE": "locks"})
    printed = "\n".join(local.line() for _ in range(3))
    assert comparable(printed) == comparable(said.prints)


def test_the_steps_of_the_job_run_in_sequence(here: dict[str, str], folder: Path) -> None:
    (job,) = blocks("docs/command.md", "yaml")
    build = {**here, "GITHUB_RUN_ID": "4711", "GITHUB_RUN_ATTEMPT": "1"}
    steps = ["ticketlock init --yes", *(step["run"] for step in yaml.safe_load(job))]
    _, taken, _, freed = in_a_shell(steps, build, folder)
    assert json.loads(taken)["owner"] == json.loads(freed)["owner"] == "4711-1"


@pytest.mark.parametrize("name", commands_and_groups())
def test_the_page_names_each_command_and_each_of_its_options(name: str) -> None:
    page = text("docs/command.md")
    assert f"`{name}" in page or f"`ticketlock {name}" in page
    options = [each for each in commands_and_groups()[name].params if isinstance(each, click.Option)]
    told = {spelling for option in options for spelling in option.opts if spelling.startswith("--")}
    missing = {spelling for spelling in told if not re.search(rf"{spelling}(?![\w-])", page)}
    assert missing - {"--help", "--verbose"} == set()


def test_the_page_has_each_exit_code() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) +\|", text("docs/command.md"), re.MULTILINE)}
    ours = {value for name, value in vars(_exits).items() if name.isupper() and isinstance(value, int)}
    assert told == ours | {0, 1, 2}


def test_the_json_makes_the_librarys_table() -> None:
    (body,) = blocks("docs/table.md", "json")
    assert json.loads(body) == {**LOCK_TABLE.definition("locks"), "DeletionProtectionEnabled": True}


def cloudformation() -> Any:
    (body,) = blocks("docs/table.md", "yaml")
    return yaml.safe_load(body)["Resources"]


def test_the_template_makes_the_librarys_table() -> None:
    properties = cloudformation()["LockTable"]["Properties"]
    for name, value in LOCK_TABLE.definition("locks").items():
        assert name == "TableName" or properties[name] == value
    assert properties["TimeToLiveSpecification"] == {"AttributeName": TIME_TO_LIVE, "Enabled": True}


def test_the_templates_policies_are_the_constructs_grants() -> None:
    use, wake = cloudformation()["UseLocks"]["Properties"]["PolicyDocument"]["Statement"]
    assert use["Action"] == list(grants._USE)
    assert use["Condition"] == grants._LOCKS_ONLY
    assert (wake["Action"], wake["Condition"]) == ("dynamodb:Query", grants._TO_WAKE)
    read, scan = cloudformation()["ReadLocks"]["Properties"]["PolicyDocument"]["Statement"]
    assert read["Condition"] == grants._LOCKS_ONLY
    assert scan["Condition"]["ForAllValues:StringEquals"] == {"dynamodb:Attributes": list(grants._LISTED)}


def test_the_template_has_no_fault(tmp_path: Path) -> None:
    (body,) = blocks("docs/table.md", "yaml")
    (tmp_path / "locks.yaml").write_text(body)
    lint = [str(Path(sys.executable).with_name("cfn-lint")), str(tmp_path / "locks.yaml")]
    done = subprocess.run(lint, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_template_is_deployed_and_the_doctor_finds_nothing_that_init_does_not_mend(
    command: Command, emulator: Emulator
) -> None:
    (body,) = blocks("docs/table.md", "yaml")
    client = boto3.client("cloudformation", **client_arguments(emulator.endpoint))
    name = f"locks-{uuid.uuid4().hex[:8]}"
    client.create_stack(StackName=name, TemplateBody=body, Capabilities=["CAPABILITY_IAM"])
    client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    (output,) = client.describe_stacks(StackName=name)["Stacks"][0]["Outputs"]
    table = ("--table", output["OutputValue"])
    # ministack's CloudFormation leaves time to live out.
    why = "an emulator may ignore the template's setting; on AWS expired items would never be deleted"
    found = [line for line in command.run("doctor", *table).out.splitlines() if not line.startswith(" ok")]
    assert found == [f"  ?  time to live: off: {why}"]
    assert command.run("init", *table, "--yes").exit_code == 0
    assert command.run("doctor", *table).exit_code == 0
    client.delete_stack(StackName=name)


def test_the_terraform_example_agrees_with_the_template() -> None:
    (body,) = blocks("docs/table.md", "hcl")
    said = set(re.findall(r'(\w+)\s*=\s*"([^"]*)"', body))
    assert {("hash_key", "pk"), ("range_key", "sk"), ("attribute_name", TIME_TO_LIVE)} <= said
    assert ("billing_mode", LOCK_TABLE.definition("locks")["BillingMode"]) in said
    policy = cloudformation()["UseLocks"]["Properties"]["PolicyDocument"]["Statement"]
    _, *statements = re.split(r"^ +statement \{$", body, flags=re.MULTILINE)
    assert [in_terraform(each) for each in statements] == [in_the_template(each) for each in policy]


Said = tuple[list[str], dict[tuple[str, str], list[str]]]
"""A statement's actions and its conditions."""


def in_the_template(statement: Any) -> Said:
    conditions = statement["Condition"].items()
    return listed(statement["Action"]), {
        (test, key): listed(value) for test, keys in conditions for key, value in keys.items()
    }


def in_terraform(statement: str) -> Said:
    condition = r'test += "([^"]+)"\s+variable = "([^"]+)"\s+values += \[([^]]*)\]'
    return re.findall(r'"(dynamodb:\w+)"', statement.partition("resources")[0]), {
        (test, key): re.findall(r'"([^"]*)"', values) for test, key, values in re.findall(condition, statement)
    }
