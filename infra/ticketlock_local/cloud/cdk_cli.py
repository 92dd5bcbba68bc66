"""The pinned CDK command line, in an environment that knows nothing of the user's AWS settings; `check-template`."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ticketlock_local.checkout import BUILD, ROOT
from ticketlock_local.engines import end_group
from ticketlock_local.errors import CdkError

APP = ROOT / "app.py"

_CDK = ROOT / "node_modules" / ".bin" / "cdk"
_TIMEOUT_S = 600.0
_STOP_GRACE_S = 5.0
_TAIL_LINES = 40

_CFN_LINT = str(Path(sys.executable).with_name("cfn-lint"))
_KEY = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000"
# Settings add resources: check the defaults, and all optional resources.
_CONTEXTS: dict[str, dict[str, str]] = {
    "cdk.out": {},
    "cdk.out.everything": {
        "targets": "arn:aws:states:eu-west-1:123456789012:stateMachine:orders",
        "examples": "true",
        "encryption_key": _KEY,
        "vpc_id": "vpc-0123456789abcdef0",
        "subnet_ids": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
        "permissions_boundary": "developers",
        "dashboard": "true",
        "dashboard_live": "true",
        "alarms": "true",
        "alarm_topic": "arn:aws:sns:eu-west-1:123456789012:on-call",
        "transactions": "true",
        "data_tables": "accounts,orders",
    },
}


def run_cdk(*arguments: str, env: Mapping[str, str] | None = None, folder: Path = ROOT) -> None:
    """Run one command of the CDK with this interpreter's packages for the app.

    Args:
        arguments: the command and its options.
        env: more environment, such as an endpoint and credentials.
        folder: where to run it; cdk.json is read there.

    Raises:
        CdkError: it failed, or took longer than ten minutes.
    """
    if not _CDK.exists():
        raise CdkError(f"{_CDK} is missing: run `make install`")
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="ticketlock-cdk-") as home, ThreadPoolExecutor(1) as starter:

        def start() -> subprocess.Popen[str]:
            started.append(
                subprocess.Popen(
                    [_CDK, "--no-notices", "--no-color", *arguments],
                    cwd=folder,
                    env={**_environment(home), **(env or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    # Its own group, so that the app and its Node process end with it.
                    start_new_session=True,
                )
            )
            return started[0]

        try:
            # In a thread, which no signal interrupts: an interrupted start would leave a process that we do not know.
            process = starter.submit(start).result()
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        except BaseException as error:
            starter.shutdown()
            output = ""
            for process in started:
                end_group(process.pid, grace_s=_STOP_GRACE_S)
                output, _ = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise CdkError(f"cdk {arguments[0]} took over {_TIMEOUT_S:.0f} s:\n{_tail(output)}") from error
            raise
    if process.returncode != 0:
        raise CdkError(f"cdk {arguments[0]} failed with status {process.returncode}:\n{_tail(output)}")


def app_arguments(app: Path, context: Mapping[str, str]) -> list[str]:
    """Return the options that name an app, run by this very interpreter, and its context."""
    # For a shell. It begins with a bare word because the CLI strips quotes that enclose the whole.
    command = f"exec {shlex.join([sys.executable, str(app)])}"
    return ["--app", command, *(f"--context={key}={value}" for key, value in context.items())]


def check_template() -> int:
    """Synthesise without credentials into build/, with cdk-nag in the app, and lint the templates.

    Returns:
        0 if the app synthesises without unacknowledged findings, and cfn-lint accepts its templates.

    Raises:
        CdkError: it does not synthesise, or cdk-nag found something.
    """
    templates: list[str] = []
    for folder, context in _CONTEXTS.items():
        assembly = BUILD / folder
        shutil.rmtree(assembly, ignore_errors=True)  # delete templates that the app no longer makes
        run_cdk("synth", "--quiet", "--output", str(assembly), *app_arguments(APP, context))
        templates += sorted(str(path) for path in assembly.glob("*.template.json"))
    return lint(templates)


def lint(templates: Sequence[str], *unless: str) -> int:
    """Run cfn-lint, which prints its findings, and return its status.

    Args:
        templates: the files.
        unless: more checks that are left out.
    """
    # W3005: the CDK itself adds DependsOn entries that a GetAtt already implies.
    command = [_CFN_LINT, "--ignore-checks", "W3005", *unless, "--", *templates]
    return subprocess.run(command, check=False).returncode


def _environment(home: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    return {
        **kept,
        # The account that fake credentials stand for must not end up in the user's ~/.cdk cache.
        "CDK_HOME": home,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        # A list of Node's major versions; for untested ones, any value.
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "true",
    }


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-_TAIL_LINES:])
