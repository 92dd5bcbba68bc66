"""What users copy works: the examples of two pages, the policy for units, the templates of the lock table."""

import json
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import boto3
import pytest
import yaml  # type: ignore[import-untyped]  # ships no types
from click.testing import CliRunner
from kit.command import Command
from kit.left_units import AGO_S, left, left_insert
from kit.pages import blocks, rows, text
from kit.units import Books, Party
from ticketlock_cdk.lock import grants
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.engines.emulator import Emulator

from ticketlock import Claim, LockClient, LockName, Position
from ticketlock.cli import _commands
from ticketlock.cli._local import serving
from ticketlock.locks._items import Session, holder_attribute, lock_key
from ticketlock.locks._lock_table import LOCK_TABLE
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.units._records._record import UnitRecords
from ticketlock.units._recovery._operators import corrections, inspect, roll_back, settle
from ticketlock.wire._actions import TIME_TO_LIVE

PAGE = "docs/command.md"
PROGRAM = '#!/bin/sh\necho "migrating under fencing token $TICKETLOCK_FENCING_TOKEN"\n'
ID = re.compile(r"\b01[0-9A-Z]{24}\b")
# The users of the runbook's lock.
HOLDER, WAITER = "web-3:4711/0f9c", "web-5:812/77ab"
WORKFLOW = "arn:aws:states:eu-west-1:123456789012:execution:Serialize:order-42-b"
LONG_LEASE_MS = 3_600_000

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


def listed(page: str) -> Iterator[tuple[str, str]]:
    """The command lines of a page, each with what it prints."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, prints = part.partition("\n")
            yield line, prints


@cache
def examples() -> dict[str, list[tuple[str, str]]]:
    """The command lines of the page: of the server, of units, and of locks."""
    found: dict[str, list[tuple[str, str]]] = {"local": [], "units": [], "locks": []}
    for line, prints in listed(PAGE):
        found.get(line.partition(" ")[2].partition(" ")[0], found["locks"]).append((line, prints))
    return found


def comparable(printed: str) -> str:
    """A text without times, tokens, ports and versions, and without the width of a table."""
    one_number = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d+(\.\d+)+|\d{4,}|\d+(?= ?s\b)", "0", printed)
    one_space = re.sub(r" *$", "", re.sub(r" +", " ", one_number), flags=re.MULTILINE)
    return re.sub(r"─+", "─", one_space).strip()


def assert_prints(commands: list[tuple[str, str]], environment: dict[str, str], folder: Path) -> None:
    printed = in_a_shell([line for line, _ in commands], environment, folder)
    for (line, prints), each in zip(commands, printed, strict=True):
        assert (line, comparable(each)) == (line, comparable(prints))


def test_each_example_of_locks_prints_what_the_page_says(here: dict[str, str], folder: Path) -> None:
    assert_prints(examples()["locks"], here, folder)


def test_each_example_of_units_prints_what_the_page_says(
    memory: MemoryDynamoDB, books: Books, environment: dict[str, str], folder: Path
) -> None:
    commands = examples()["units"]
    committed, over, alive = dict.fromkeys(ID.findall("".join(prints for _, prints in commands)))
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
        assert_prints([(as_here(line), as_here(prints)) for line, prints in commands], env, folder)


@dataclass(frozen=True)
class NumbersHere:
    """The holder's fencing token, and the ticket of the last in line, where the locks are as in the runbook."""

    fencing_token: int
    last_ticket: int


@pytest.fixture
def numbers_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[NumbersHere]:
    # The command goes by the table's time: however long it takes, it prints the same.
    clock = ManualClock()
    memory = MemoryDynamoDB(lock_table="locks", clock=clock)
    with serving(memory, port=0) as endpoint:
        for name, value in {"AWS_ENDPOINT_URL": endpoint, "TICKETLOCK_TABLE": "locks"}.items():
            monkeypatch.setenv(name, value)
        with LockClient("locks") as locks:
            for entity in ("order-42", "order-43"):
                locks.acquire(entity).release()
            locks.table.set_limit(LockName("order-43"), 0)
            for owner in (HOLDER, WORKFLOW, WAITER):
                session = Session(owner, "serialize") if owner is WORKFLOW else None
                lease_ms = 60_000 if owner is HOLDER else LONG_LEASE_MS
                found = locks.table.take_ticket(Claim(LockName("order-42"), owner, lease_ms, session=session), None)
            assert isinstance(found, Position)
            # As if it had been granted long ago, and renewed until it crashed.
            times = {"#holder.sinceMs": 744_000, "#holder.leaseUntilMs": 44_000}
            memory.update_item(
                TableName="locks",
                Key=lock_key(LockName("order-42")),
                UpdateExpression="SET " + ", ".join(f"{name} = {name} - :{ms}" for name, ms in times.items()),
                ExpressionAttributeNames={"#holder": holder_attribute(HOLDER)},
                ExpressionAttributeValues={f":{ms}": {"N": str(ms)} for ms in times.values()},
            )
            clock.advance(3)
            (holder,) = found.holders
            yield NumbersHere(holder.fencing_token, found.place.ticket)


@pytest.mark.always("it runs in this process")
def test_each_example_of_the_runbook_prints_what_the_page_says(numbers_here: NumbersHere) -> None:
    commands = list(listed("docs/runbook.md"))
    told = " ".join(line for line, _ in commands)
    (token,), (ticket,) = (
        set(re.findall(each, told)) for each in (r"--fencing-token (\d+)", r"remove-waiter \S+ (\d+)")
    )
    for line, prints in commands:
        here = line.replace(token, str(numbers_here.fencing_token)).replace(ticket, str(numbers_here.last_ticket))
        done = CliRunner().invoke(_commands._ticketlock, shlex.split(here)[1:])
        assert (line, without_durations(done.output)) == (line, without_durations(prints))


def without_durations(printed: str) -> str:
    one_time = re.sub(r"\b\d+(\.\d+)? (s|min|h)\b", "0 s", re.sub(r"\b\d+[smh]\b", "0s", printed))
    return comparable(re.sub(r" \(http.*\)", "", one_time))


def test_the_lines_of_local_are_those_of_the_page(command: Command) -> None:
    ((_, prints),) = examples()["local"]
    local = command.start("local", env={"TICKETLOCK_TABLE": "locks"})
    assert comparable("\n".join(local.line() for _ in range(3))) == comparable(prints)


def test_the_steps_of_the_job_run_in_sequence(here: dict[str, str], folder: Path) -> None:
    (job,) = blocks(PAGE, "yaml")
    build = {**here, "GITHUB_RUN_ID": "4711", "GITHUB_RUN_ATTEMPT": "1"}
    steps = ["ticketlock init --yes", *(step["run"] for step in yaml.safe_load(job))]
    _, taken, _, freed = in_a_shell(steps, build, folder)
    assert json.loads(taken)["owner"] == json.loads(freed)["owner"] == "4711-1"


def test_the_permissions_for_units_are_what_is_used(books: Books) -> None:
    """Except the actions that no unit here needs: of corrections, of a unit that has own rows."""
    (row,) = [row for row in rows("docs/permissions.md", "Units of work") if "`ticketlock units`" in row[0]]
    of_units, of_yours = (set(re.findall(r"`([A-Z]\w+)`", each)) for each in row[1:])
    boss, records = Party(books, None), UnitRecords("units")
    settled, forced = left(books, ["ann"], is_committed=True, ago_s=AGO_S), left(books, ["ben"])
    boss.units.open_units()
    left(books, ["cy"], is_committed=True)
    boss.units.repair(boss.accounts, write=True)
    inserted = left_insert(books, ago_s=3 * AGO_S)
    asked = (inspect(records, settled), settle(records, settled), roll_back(records, forced))
    for steps in (*asked, settle(records, inserted), corrections(records, settled)):
        boss.units._performer.perform_steps(steps)
    used: dict[str, set[str]] = {"units": set(), "accounts": {"DescribeTable"}, "lines": set()}
    for sent in boss.line.sent:
        names = sent.parameters.get("RequestItems") or [sent.parameters["TableName"]]
        for name in names:
            used[name].add(sent.operation)
    assert used["units"] | {"ConditionCheckItem", "DeleteItem"} == of_units
    assert used["accounts"] | used["lines"] | {"DeleteItem"} == of_yours


TEMPLATE = text("examples/locks.yaml")


def test_the_template_makes_the_librarys_table_and_its_policies_are_the_constructs_grants() -> None:
    made = {name: each["Properties"] for name, each in yaml.safe_load(TEMPLATE)["Resources"].items()}
    of_the_library = {**LOCK_TABLE.definition("locks")}
    del of_the_library["TableName"]
    assert {name: made["LockTable"][name] for name in of_the_library} == of_the_library
    assert made["LockTable"]["TimeToLiveSpecification"] == {"AttributeName": TIME_TO_LIVE, "Enabled": True}
    use, wake = made["UseLocks"]["PolicyDocument"]["Statement"]
    assert (use["Action"], use["Condition"]) == (list(grants._USE), grants._LOCKS_ONLY)
    assert (wake["Action"], wake["Condition"]) == ("dynamodb:Query", grants._TO_WAKE)
    read, scan = made["ReadLocks"]["PolicyDocument"]["Statement"]
    assert read["Condition"] == grants._LOCKS_ONLY
    assert scan["Condition"]["ForAllValues:StringEquals"] == {"dynamodb:Attributes": list(grants._LISTED)}


def test_the_template_has_no_fault(tmp_path: Path) -> None:
    (tmp_path / "locks.yaml").write_text(TEMPLATE)
    lint = [str(Path(sys.executable).with_name("cfn-lint")), str(tmp_path / "locks.yaml")]
    done = subprocess.run(lint, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_template_is_deployed_and_the_doctor_finds_nothing_that_init_does_not_mend(
    command: Command, emulator: Emulator
) -> None:
    client = boto3.client("cloudformation", **client_arguments(emulator.endpoint))
    name = f"locks-{uuid.uuid4().hex[:8]}"
    client.create_stack(StackName=name, TemplateBody=TEMPLATE, Capabilities=["CAPABILITY_IAM"])
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
