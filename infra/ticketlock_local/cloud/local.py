"""`make local` and `make local-down`: a deployed cloud that outlives the command that started it."""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.cloud.deploy import client_environment, deploy
from ticketlock_local.engines.emulator import STOP_GRACE_S, Emulator, health
from ticketlock_local.engines.processes import command_line, end_group

_RECORD = BUILD / "local.json"


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
        print(_description(running))
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
        outputs = deploy(emulator, context={"transactions": "true"})
        running = RunningCloud(
            endpoint=emulator.endpoint,
            pid=emulator.pid,
            work_folder=str(emulator.work_folder),
            outputs=outputs,
        )
        _RECORD.write_text(json.dumps(asdict(running), indent=2) + "\n")
        emulator.detach()
    return running


def _stop(running: RunningCloud | None) -> None:
    if running is not None:
        if running.lives():
            end_group(running.pid, grace_s=STOP_GRACE_S)
        shutil.rmtree(running.work_folder, ignore_errors=True)
    _RECORD.unlink(missing_ok=True)


def _recorded() -> RunningCloud | None:
    return RunningCloud(**json.loads(_RECORD.read_text())) if _RECORD.exists() else None


def _description(running: RunningCloud) -> str:
    execution_input = {
        "entity": "order-42",
        "recordWaitSeconds": 60,
        "task": {
            "stateMachineArn": running.outputs.get("ExampleTargetArn", "<ExampleTargetArn>"),
            "input": {"hello": "world"},
        },
    }
    environment = client_environment(running.endpoint)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    start = [
        *("aws", "--endpoint-url", running.endpoint, "stepfunctions", "start-execution"),
        *("--state-machine-arn", running.outputs.get("StateMachineArn", "<StateMachineArn>")),
        *("--input", json.dumps(execution_input)),
    ]
    return "\n".join(
        [
            f"endpoint  {running.endpoint}  (process {running.pid}; stop it with `make local-down`)",
            *(f"output    {name} = {value}" for name, value in running.outputs.items()),
            "",
            "Run a workflow under the lock of its entity:",
            "",
            " ".join(f"{name}={environment[name]}" for name in names) + " \\\n" + shlex.join(start),
            "",
            f"The same locks and units of work for the command {Path(sys.executable).with_name('ticketlock')},",
            "and a place for your own stack (docs/construct.md), in a shell with these:",
            "",
            f"export AWS_ENDPOINT_URL={running.endpoint} TICKETLOCK_TABLE={running.outputs.get('TableName', '')}",
            f"export TICKETLOCK_UNITS_TABLE={running.outputs.get('UnitsTableName', '')}",
            "export " + " ".join(f"{name}={environment[name]}" for name in names),
        ]
    )
