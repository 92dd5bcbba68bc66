"""`make local` and `make local-down`: a deployed cloud that outlives the command that started it."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import boto3

from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.cloud.deploy import client_arguments, client_environment, deploy, warm_up
from ticketlock_local.engines import STOP_GRACE_S, Emulator, command_line, end_group, health

_RECORD = BUILD / "local.json"
# As the pages name the outputs.
_EXPORTED = {
    "TICKETLOCK_TABLE": "TableName",
    "TICKETLOCK_UNITS_TABLE": "UnitsTableName",
    "STATE_MACHINE_ARN": "StateMachineArn",
    "EXAMPLE_TARGET_ARN": "ExampleTargetArn",
    "EXAMPLE_FUNCTION_ARN": "ExampleFunctionArn",
    "SWEEPER_NAME": "SweeperName",
}
# So many workers of each function are there for the user's first executions.
_WARM_LOCKS = 2
_SETTINGS = {"transactions": "true"}


@dataclass(frozen=True, kw_only=True)
class RunningCloud:
    """What `up` records for `down`, and for users of the cloud."""

    endpoint: str
    pid: int
    work_folder: str
    outputs: Mapping[str, str]

    def lives(self) -> bool:
        """Whether the process is still the one that we started: its command line has the unique work folder."""
        return self.work_folder in command_line(self.pid)


def up() -> int:
    """Start the emulator, deploy, record it and leave it running; or say that one runs already."""
    with exclusive("local"):
        running = _recorded()
        if running is not None and running.lives() and health(running.endpoint):
            print("The local cloud is running already.")
        else:
            _stop(running)
            running = _start()
        print(description(running))
    return 0


def down() -> int:
    """Stop what `up` started."""
    with exclusive("local"):
        running = _recorded()
        lived = running is not None and running.lives()
        _stop(running)
        print("Stopped the local cloud." if lived else "The local cloud was not running.")
    return 0


def _start() -> RunningCloud:
    with Emulator() as emulator:
        print("Deploying to the emulator ...", file=sys.stderr)
        outputs = deploy(emulator, context=_SETTINGS)
        print("The first calls of the functions are slow: making them ...", file=sys.stderr)
        arguments = client_arguments(emulator.endpoint)
        warm_up(boto3.client("stepfunctions", **arguments), outputs, _WARM_LOCKS)
        _empty(boto3.resource("dynamodb", **arguments).Table(outputs["TableName"]))
        running = RunningCloud(
            endpoint=emulator.endpoint,
            pid=emulator.pid,
            work_folder=str(emulator.work_folder),
            outputs=outputs,
        )
        _RECORD.write_text(json.dumps(asdict(running), indent=2) + "\n")
        emulator.detach()
    return running


def _empty(table: Any) -> None:
    """Delete the items of the first calls: nobody else has used the table."""
    with table.batch_writer() as batch:
        for item in table.scan()["Items"]:
            batch.delete_item(Key={"pk": item["pk"], "sk": item["sk"]})


def _stop(running: RunningCloud | None) -> None:
    if running is not None:
        if running.lives():
            end_group(running.pid, grace_s=STOP_GRACE_S)
        shutil.rmtree(running.work_folder, ignore_errors=True)
    _RECORD.unlink(missing_ok=True)


def _recorded() -> RunningCloud | None:
    return RunningCloud(**json.loads(_RECORD.read_text())) if _RECORD.exists() else None


def description(running: RunningCloud) -> str:
    """What `make local` prints: lines to paste into a shell."""
    execution_input = {
        "entity": "order-42",
        "recordWaitSeconds": 60,
        "task": {
            "stateMachineArn": running.outputs.get("ExampleTargetArn", "<ExampleTargetArn>"),
            "input": {"hello": "world"},
        },
    }
    start = ["aws", "stepfunctions", "start-execution"]
    start += ["--state-machine-arn", running.outputs.get("StateMachineArn", "<StateMachineArn>")]
    return "\n".join(
        [
            f"endpoint  {running.endpoint}  (process {running.pid}; stop it with `make local-down`)",
            f"deployed  with {' '.join(f'-c {name}={value}' for name, value in _SETTINGS.items())}",
            "          (a deployment with other settings needs them, too: without them it deletes the units table)",
            "",
            "Paste these lines into your shell, for the AWS CLI, the command `ticketlock`, your own programs and your",
            "own stack (docs/construct.md):",
            "",
            *_exports(running),
            "",
            "Run a workflow under the lock of its entity:",
            "",
            shlex.join([*start, "--input", json.dumps(execution_input)]),
            "",
            'With "input": {"seconds": 5} it takes 5 seconds, with {"fail": "sold out"} it fails.',
        ]
    )


def _exports(running: RunningCloud) -> Iterator[str]:
    environment = client_environment(running.endpoint)
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        yield f"export {name}={environment[name]}"
    for name, output in _EXPORTED.items():
        if output in running.outputs:
            yield f"export {name}={running.outputs[output]}"
    # For a stack of the user's own: the CDK's runtime prints a banner about some versions of Node.
    yield "export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=18,20"
    # A `ticketlock` or `python` that is there already wins.
    yield f"export PATH=$PATH:{shlex.quote(str(Path(sys.executable).parent))}"
