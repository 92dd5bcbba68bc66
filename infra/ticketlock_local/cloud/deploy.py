"""Deploy to an emulator as a user deploys to AWS: the CDK's own bootstrap and deploy."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import boto3
from botocore.exceptions import ClientError

from ticketlock import create_table
from ticketlock_local.cloud.cdk_cli import APP, app_arguments, run_cdk
from ticketlock_local.engines.emulator import Emulator

STACK = "Ticketlock"
REGION = "us-east-1"

_ACCOUNT = "000000000000"
_FAKE_KEY = "test"


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
