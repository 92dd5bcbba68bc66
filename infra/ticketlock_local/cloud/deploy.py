"""Deploy to an emulator as a user deploys to AWS, by the CDK's own bootstrap and deploy; start executions there."""

import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import boto3
from botocore.exceptions import ClientError

from ticketlock import create_table
from ticketlock_local.cloud.cdk_cli import APP, app_arguments, run_cdk
from ticketlock_local.engines import Emulator
from ticketlock_local.errors import LocalCloudError

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

STACK = "Ticketlock"
REGION = "us-east-1"

_ACCOUNT = "000000000000"
_FAKE_KEY = "test"
_RECORD_WAIT_S = 300
_POLL_S = 0.25
_WARM_UP_TIMEOUT_S = 120.0
_WORK_S = 0.1


class ClientArguments(TypedDict):
    """Keyword arguments for `boto3.client` and `boto3.resource`."""

    endpoint_url: str
    region_name: str
    aws_access_key_id: str
    aws_secret_access_key: str


def client_arguments(endpoint: str) -> ClientArguments:
    """Return the keyword arguments that point a boto3 client at an emulator."""
    return {
        "endpoint_url": endpoint,
        "region_name": REGION,
        "aws_access_key_id": _FAKE_KEY,
        "aws_secret_access_key": _FAKE_KEY,
    }


def client_environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables that point AWS tools at an emulator."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ACCESS_KEY_ID": _FAKE_KEY,
        "AWS_SECRET_ACCESS_KEY": _FAKE_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "NO_PROXY": "127.0.0.1",
    }


def deploy(
    emulator: Emulator, *, context: Mapping[str, str] | None = None, app: Path = APP, stack: str = STACK
) -> Mapping[str, str]:
    """Deploy a stack and return its outputs; bootstraps first if needed.

    Args:
        emulator: where to.
        context: CDK context for the app.
        app: the Python program that defines the stack.
        stack: its name in the app.

    Raises:
        CdkError: a command of the CDK failed.
    """
    _bootstrap(emulator.endpoint)
    with tempfile.TemporaryDirectory(prefix="ticketlock-deploy-") as folder:
        outputs = Path(folder) / "outputs.json"
        run_cdk(
            *("deploy", stack, *app_arguments(app, context or {})),
            # Its own assembly folder: the CDK locks it, and two deployments may run at once.
            *("--output", f"{folder}/cdk.out", "--outputs-file", str(outputs)),
            *("--require-approval", "never", "--progress", "events"),
            env=client_environment(emulator.endpoint),
        )
        stacks: dict[str, dict[str, str]] = json.loads(outputs.read_text())
    of_stack = stacks.get(stack, {})
    if "TableName" in of_stack:
        # The emulator's CloudFormation leaves out the time to live that the template has.
        create_table(of_stack["TableName"], client=boto3.client("dynamodb", **client_arguments(emulator.endpoint)))
    return of_stack


def _bootstrap(endpoint: str) -> None:
    cloudformation = boto3.client("cloudformation", **client_arguments(endpoint))
    try:
        cloudformation.describe_stacks(StackName="CDKToolkit")
    except ClientError:
        # In a folder without a cdk.json: with one, bootstrap would run the app first, for nothing.
        with tempfile.TemporaryDirectory(prefix="ticketlock-bootstrap-") as folder:
            environment = f"aws://{_ACCOUNT}/{REGION}"
            run_cdk("bootstrap", environment, env=client_environment(endpoint), folder=Path(folder))
        # The bucket's policy demands TLS, which a loopback emulator does not speak; it enforces policies with AUTH.
        bucket = f"cdk-hnb659fds-assets-{_ACCOUNT}-{REGION}"
        boto3.client("s3", **client_arguments(endpoint)).delete_bucket_policy(Bucket=bucket)


class ExecutionsUnfinished(LocalCloudError):
    """Executions still run after the time limit."""


def start(client: "SFNClient", machine: str, name: str, entity: str, task: Mapping[str, Any]) -> str:
    """Start an execution of the serialised workflow.

    Args:
        client: Step Functions.
        machine: the ARN of the state machine.
        name: the execution's name.
        entity: the entity of its lock.
        task: the work, as in the workflow's input.

    Returns:
        The execution's ARN.
    """
    request = {"entity": entity, "recordWaitSeconds": _RECORD_WAIT_S, "task": task}
    return client.start_execution(stateMachineArn=machine, name=name, input=json.dumps(request))["executionArn"]


def wait_for_all(client: "SFNClient", executions: Iterable[str], *, timeout_s: float) -> None:
    """Wait until all have ended, however they end.

    Raises:
        ExecutionsUnfinished: one still runs.
    """
    deadline = time.monotonic() + timeout_s
    for arn in executions:
        while client.describe_execution(executionArn=arn)["status"] == "RUNNING":
            if time.monotonic() > deadline:
                raise ExecutionsUnfinished(f"{arn} still runs after {timeout_s:.0f} s")
            time.sleep(_POLL_S)


def warm_up(client: "SFNClient", outputs: Mapping[str, str], locks: int) -> None:
    """Make two executions of the example function wait for each other on each of so many locks.

    Args:
        client: Step Functions.
        outputs: the stack's.
        locks: how many.

    Raises:
        ExecutionsUnfinished: one still runs after two minutes.
    """
    task = {"functionArn": outputs["ExampleFunctionArn"], "input": {"seconds": _WORK_S}}
    entities = [f"warm-up-{number + 1}" for number in range(locks)]
    started = [
        start(client, outputs["StateMachineArn"], f"{entity}-{turn}", entity, task)
        for turn in (1, 2)
        for entity in entities
    ]
    wait_for_all(client, started, timeout_s=_WARM_UP_TIMEOUT_S)
