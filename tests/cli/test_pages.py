"""What users copy works: the examples of docs/command.md, the policy for units, the templates of the lock table."""

import json
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml  # type: ignore[import-untyped]  # ships no types
from cli.left_units import AGO_S, books_on, left, left_insert
from cli.pages import Example, comparable, examples
from kit.command import Command
from kit.engines import Engine
from kit.pages import blocks, text
from kit.units import KEYS, Books, Party
from ticketlock_cdk.lock import grants
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.emulator import Emulator

from ticketlock.cli._local import serving
from ticketlock.locks._lock_table import LOCK_TABLE
from ticketlock.testing import MemoryDynamoDB
from ticketlock.units._marks import Marks
from ticketlock.units._operators import inspect, roll_back, settle
from ticketlock.units._record import UnitRecords
from ticketlock.wire._actions import TIME_TO_LIVE

PAGE = "docs/command.md"
PROGRAM = '#!/bin/sh\necho "migrating under fencing token $TICKETLOCK_FENCING_TOKEN"\n'
ID = re.compile(r"\b01[0-9A-Z]{24}\b")

pytestmark = pytest.mark.verify("each example is a process, or several")


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


@pytest.fixture
def memory() -> MemoryDynamoDB:
    return MemoryDynamoDB(lock_table=None)


@pytest.fixture
def books(memory: MemoryDynamoDB) -> Iterator[Books]:
    engine = Engine("memory", None, "locks", memory)
    with books_on(engine, engine.client(), {use: use for use in KEYS}) as made:
        yield made


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


def examples_of(*, units: bool) -> list[Example]:
    found = [example for block in blocks(PAGE, "console") for example in examples(block)]
    # It runs until a signal.
    found = [example for example in found if example.command != "ticketlock local"]
    return [example for example in found if example.command.startswith("ticketlock units") == units]


def test_each_example_of_locks_prints_what_the_page_says(here: dict[str, str], folder: Path) -> None:
    listed = examples_of(units=False)
    printed = in_a_shell([example.command for example in listed], here, folder)
    for example, each in zip(listed, printed, strict=True):
        assert (example.command, comparable(each)) == (example.command, comparable(example.prints))


def test_each_example_of_units_prints_what_the_page_says(
    memory: MemoryDynamoDB, books: Books, environment: dict[str, str], folder: Path
) -> None:
    listed = examples_of(units=True)
    committed, over, alive = dict.fromkeys(ID.findall("".join(example.prints for example in listed)))
    here = {
        committed: left(books, ["ann", "ben"], is_committed=True, ago_s=AGO_S),
        over: left(books, ["ann2", "ben2"], ago_s=AGO_S - 1),
        alive: left(books, ["ann3", "ben3"]),
    }
    row = books.raw("units", {"unit": here[alive], "row": "head"}) or {}
    now_ms = int(time.time() * 1_000)
    books.write("units", {**row, "born": now_ms - 100, "leaseUntilMs": now_ms + 61_000})

    def as_here(told: str) -> str:
        return ID.sub(lambda found: here[found[0]], told)

    with serving(memory, port=0) as endpoint:
        env = {**environment, "AWS_ENDPOINT_URL": endpoint, "TICKETLOCK_UNITS_TABLE": "units"}
        printed = in_a_shell([as_here(example.command) for example in listed], env, folder)
    for example, each in zip(listed, printed, strict=True):
        assert (example.command, comparable(each)) == (example.command, comparable(as_here(example.prints)))


def test_the_lines_of_local_are_those_of_the_page(command: Command) -> None:
    (said,) = [each for block in blocks(PAGE, "console") for each in examples(block) if "local" in each.command]
    local = command.start("local", env={"TICKETLOCK_TABLE": "locks"})
    printed = "\n".join(local.line() for _ in range(3))
    assert comparable(printed) == comparable(said.prints)


def test_the_steps_of_the_job_run_in_sequence(here: dict[str, str], folder: Path) -> None:
    (job,) = blocks(PAGE, "yaml")
    build = {**here, "GITHUB_RUN_ID": "4711", "GITHUB_RUN_ATTEMPT": "1"}
    steps = ["ticketlock init --yes", *(step["run"] for step in yaml.safe_load(job))]
    _, taken, _, freed = in_a_shell(steps, build, folder)
    assert json.loads(taken)["owner"] == json.loads(freed)["owner"] == "4711-1"


def test_the_permissions_for_units_are_what_is_used(books: Books) -> None:
    """Except the actions that no unit here needs: of corrections, of a unit that has own rows."""
    _, _, section = text(PAGE).partition("\n### Permissions\n")
    of_units, of_yours = (
        set(re.findall(r"`dynamodb:(\w+)`", each)) for each in section.partition("\n#")[0].split("\n- ")[1:]
    )
    boss, records, marks = Party(books, None), UnitRecords("units"), Marks("_tlu")
    settled, forced = left(books, ["ann"], is_committed=True, ago_s=AGO_S), left(books, ["ben"])
    boss.units.open_units()
    left(books, ["cy"], is_committed=True)
    boss.units.repair(boss.accounts, write=True)
    inserted = left_insert(books, ago_s=2 * AGO_S + AGO_S)
    asked = (inspect(records, marks, settled), settle(records, marks, settled), roll_back(records, marks, forced))
    for steps in (*asked, settle(records, marks, inserted)):
        boss.units._performer.follow(steps)
    used: dict[str, set[str]] = {"units": set(), "accounts": {"DescribeTable"}, "lines": set()}
    for sent in boss.line.sent:
        names = sent.parameters.get("RequestItems") or [sent.parameters["TableName"]]
        for name in names:
            used[name].add(sent.operation)
    assert used["units"] | {"ConditionCheckItem", "DeleteItem"} == of_units
    assert used["accounts"] | used["lines"] | {"DeleteItem"} == of_yours


def template() -> str:
    (found,) = blocks("docs/operations.md", "yaml")
    return found


def cloudformation() -> Any:
    return yaml.safe_load(template())["Resources"]


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
    (tmp_path / "locks.yaml").write_text(template())
    lint = [str(Path(sys.executable).with_name("cfn-lint")), str(tmp_path / "locks.yaml")]
    done = subprocess.run(lint, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_template_is_deployed_and_the_doctor_finds_nothing_that_init_does_not_mend(
    command: Command, emulator: Emulator
) -> None:
    client = boto3.client("cloudformation", **client_arguments(emulator.endpoint))
    name = f"locks-{uuid.uuid4().hex[:8]}"
    client.create_stack(StackName=name, TemplateBody=template(), Capabilities=["CAPABILITY_IAM"])
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
