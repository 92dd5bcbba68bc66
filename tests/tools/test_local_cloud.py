"""`make local` prints lines that work as they are."""

import itertools
import json
import shutil
import subprocess
from pathlib import Path

import boto3
import pytest
from ticketlock_local.cloud.deploy import client_arguments
from ticketlock_local.cloud.local import RunningCloud, _empty, description

from ticketlock import LockClient
from ticketlock.testing import MemoryDynamoDB

ARN = "arn:aws:states:us-east-1:000000000000:stateMachine:"
RUNNING = RunningCloud(
    endpoint="http://127.0.0.1:4566",
    pid=1,
    work_folder="none",
    outputs={
        "TableName": "locks",
        "UnitsTableName": "units",
        "StateMachineArn": f"{ARN}Serialize",
        "ExampleTargetArn": f"{ARN}Example",
        "ExampleFunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:Example",
        "SweeperName": "sweeper",
    },
)


@pytest.fixture
def lines() -> list[str]:
    return description(RUNNING).splitlines()


def in_a_bare_shell(script: str) -> str:
    shell = shutil.which("bash")
    assert shell is not None
    return subprocess.run(
        [shell, "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    ).stdout


def test_make_local_tells_with_which_settings_it_has_deployed(lines: list[str]) -> None:
    [(told, why)] = [pair for pair in itertools.pairwise(lines) if pair[0].startswith("deployed ")]
    assert "-c transactions=true" in told.split("with ")[1]
    assert "without them it deletes the units table" in why


def test_nothing_is_left_of_the_first_calls(memory: MemoryDynamoDB) -> None:
    dynamodb = boto3.resource("dynamodb", **client_arguments(RUNNING.endpoint))
    memory.serve(dynamodb.meta.client)
    table = dynamodb.Table("locks")
    with LockClient("locks", client=memory.client) as locks:
        for entity in ("warm-up-1", "warm-up-2"):
            locks.acquire(entity).release()
            locks.acquire(entity)
        assert table.scan()["Items"]
        _empty(table)
        assert table.scan()["Items"] == []


def test_the_exports_of_make_local_set_everything_that_the_pages_use(lines: list[str]) -> None:
    exports = "\n".join(line for line in lines if line.startswith("export "))
    environment = dict(line.split("=", 1) for line in in_a_bare_shell(f"{exports}\nenv").splitlines())
    assert environment["AWS_ENDPOINT_URL"] == RUNNING.endpoint
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"} <= set(environment)
    assert (environment["TICKETLOCK_TABLE"], environment["TICKETLOCK_UNITS_TABLE"]) == ("locks", "units")
    assert environment["STATE_MACHINE_ARN"] == f"{ARN}Serialize"
    # The command is found.
    assert Path(in_a_bare_shell(f"{exports}\ncommand -v ticketlock").strip()).name == "ticketlock"


def test_the_command_line_of_make_local_starts_an_execution_of_the_example(lines: list[str]) -> None:
    (line,) = [line for line in lines if line.startswith("aws ")]
    # Each word in a line of its own.
    words = in_a_bare_shell(f"printf '%s\\n' {line}").splitlines()
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert words[:3] == ["aws", "stepfunctions", "start-execution"]
    assert given["--state-machine-arn"] == f"{ARN}Serialize"
    assert json.loads(given["--input"])["task"]["stateMachineArn"] == f"{ARN}Example"
