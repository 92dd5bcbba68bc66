"""The stack of a run, and the bucket with its files: made under a fresh name, identified and deleted by its id."""

import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from e2e.aws.account import Account
from ticketlock_local.cloud.cdk_cli import app_arguments, run_cdk
from ticketlock_local.errors import LocalCloudError

PREFIX = "ticketlock-check-"
"""The prefix of the names of the stack and of the bucket with its files."""

RUN_TAG = "ticketlock:run"
"""The stack's tag with the run that has made it."""

APP = Path(__file__).with_name("app.py")

LONGEST_DELETE_S = 900.0
"""The time limit for a deletion; AWS takes a minute or two."""

# A request that was in flight when the CDK was ended may still be performed.
_MAY_APPEAR_S = 15.0
_POLL_EVERY_S = 1.0
_OVER = ("DELETE_COMPLETE", "DELETE_FAILED")


class NameTaken(LocalCloudError):
    """A stack or a bucket of this name exists already, and is not touched."""


class OwnStack:
    """The stack and the bucket that a run makes in an account; it deletes nothing else.

    Args:
        account: where.
        run: the run's own id, fresh and random.
    """

    def __init__(self, account: Account, run: str | None = None) -> None:
        self.run = run if run is not None else secrets.token_hex(8)
        self.name = f"{PREFIX}{self.run}"
        self.bucket = f"{PREFIX}{self.run}-{account.id}"
        self.id: str | None = None
        """The stack's ARN, once it is known to belong to this run."""
        self._account = account
        self._cloudformation = account.client("cloudformation")
        self._s3 = account.client("s3")
        # Set before the request: after an interruption its outcome is unknown.
        self._made_bucket = self._began = self._deployed = False

    def refuse_a_taken_name(self) -> None:
        """Check that there is no stack or bucket of this name.

        Raises:
            NameTaken: there is one.
        """
        if self._described(self.name) is not None:
            raise NameTaken(f"a stack {self.name} exists already: nothing was made")
        try:
            self._s3.head_bucket(Bucket=self.bucket)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return
        raise NameTaken(f"a bucket {self.bucket} exists already: nothing was made")

    def deploy(self, app: Path = APP) -> Mapping[str, str]:
        """Make the bucket and the stack; return the stack's outputs.

        Raises:
            NameTaken: the name is taken.
            CdkError: the CDK failed; call `delete` for what it has made.
        """
        self.refuse_a_taken_name()
        place = {"CreateBucketConfiguration": {"LocationConstraint": self._account.region}}
        self._began = True
        try:
            self._made_bucket = True
            self._s3.create_bucket(Bucket=self.bucket, **({} if self._account.region == "us-east-1" else place))
        except ClientError:
            self._made_bucket = False
            raise
        context = {"stack": self.name, "bucket": self.bucket, "run": self.run}
        with tempfile.TemporaryDirectory(prefix="ticketlock-aws-") as folder:
            outputs = Path(folder) / "outputs.json"
            run_cdk(
                *("deploy", "--all", *app_arguments(app, context)),
                *("--output", f"{folder}/cdk.out", "--outputs-file", str(outputs)),
                # Without a change set, which would make the stack before it has its tag.
                *("--require-approval", "never", "--progress", "events", "--method", "direct"),
                env=self._account.environment(),
            )
            stacks: dict[str, dict[str, str]] = json.loads(outputs.read_text()) if outputs.exists() else {}
        self._deployed = True
        self._find()
        return stacks.get(self.name, {})

    def resources(self) -> list[Mapping[str, Any]]:
        """The stack's resources as CloudFormation lists them; empty if the stack is not this run's."""
        if self.id is None:
            return []
        pages = self._cloudformation.get_paginator("list_stack_resources").paginate(StackName=self.id)
        return [resource for page in pages for resource in page["StackResourceSummaries"]]

    def delete(self, patience_s: float = LONGEST_DELETE_S, *, stop_executions: bool = True) -> list[str]:
        """Delete what this run has made, and nothing else; it may be called again.

        Args:
            patience_s: how long to wait until it is deleted.
            stop_executions: whether to stop running executions, so that their machines are deleted sooner.

        Returns:
            What is left, each with the reason and how to delete it; empty if nothing is.
        """
        return [*self._stack_left(patience_s, stop_executions), *self._bucket_left()]

    def _stack_left(self, patience_s: float, stop_executions: bool) -> Iterator[str]:
        by_hand = f"aws cloudformation delete-stack --region {self._account.region} --stack-name {self.id or self.name}"
        try:
            self._find()
            if self.id is None:
                if self._began and self._described(self.name) is not None:
                    yield f"stack {self.name}: it does not have this run's tag, so it is not touched"
                return
            if stop_executions:
                self._stop_executions()
            self._cloudformation.delete_stack(StackName=self.id)
            status = self._until_over(patience_s)
            if status != "DELETE_COMPLETE":
                kept = [each for each in self.resources() if each["ResourceStatus"] != "DELETE_COMPLETE"]
                yield f"stack {self.id}, {status} after at most {patience_s:.0f} s: {by_hand}"
                for each in kept:
                    reason = each.get("ResourceStatusReason", each["ResourceStatus"])
                    yield f"  {each['ResourceType']} {each.get('PhysicalResourceId', '')}: {reason}"
        except (BotoCoreError, ClientError) as error:
            yield f"stack {self.id or self.name}, perhaps: {error}; {by_hand}"

    def _bucket_left(self) -> Iterator[str]:
        if not self._made_bucket:
            return
        try:
            pages = self._s3.get_paginator("list_object_versions").paginate(Bucket=self.bucket)
            for each in (one for page in pages for one in page.get("Versions", []) + page.get("DeleteMarkers", [])):
                self._s3.delete_object(Bucket=self.bucket, Key=each["Key"], VersionId=each["VersionId"])
            self._s3.delete_bucket(Bucket=self.bucket)
            self._made_bucket = False
        except self._s3.exceptions.NoSuchBucket:
            self._made_bucket = False
        except (BotoCoreError, ClientError) as error:
            yield f"bucket {self.bucket}: {error}; aws s3 rb --force s3://{self.bucket}"

    def _find(self) -> None:
        """Find the stack's id, if it has this run's tag."""
        if self.id is not None or not self._began:
            return
        patience_s = 0.0 if self._deployed else _MAY_APPEAR_S
        described = _until(lambda: self._described(self.name), patience_s)
        tags = {tag["Key"]: tag["Value"] for tag in (described or {}).get("Tags", [])}
        if described is not None and tags.get(RUN_TAG) == self.run:
            self.id = described["StackId"]

    def _stop_executions(self) -> None:
        """Stop executions: a state machine is deleted when its last execution has ended."""
        machines = [each for each in self.resources() if each["ResourceType"] == "AWS::StepFunctions::StateMachine"]
        step_functions = self._account.client("stepfunctions")
        for machine in machines:
            try:
                pages = step_functions.get_paginator("list_executions").paginate(
                    stateMachineArn=machine["PhysicalResourceId"], statusFilter="RUNNING"
                )
                for arn in [each["executionArn"] for page in pages for each in page["executions"]]:
                    step_functions.stop_execution(executionArn=arn)
            except (BotoCoreError, ClientError, KeyError):
                continue  # it was never made, or is gone; stopping it only saves time

    def _until_over(self, patience_s: float) -> str:
        def over() -> str | None:
            described = self._described(self.id)
            status: str = "DELETE_COMPLETE" if described is None else described["StackStatus"]
            return status if status in _OVER else None

        return _until(over, patience_s) or "not deleted"

    def _described(self, name: str | None) -> Mapping[str, Any] | None:
        try:
            [stack] = self._cloudformation.describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationError" and "does not exist" in str(error):
                return None
            raise
        found: Mapping[str, Any] = stack
        return found


def _until(probe: "Callable[[], Any]", patience_s: float) -> Any:
    """Poll until something is found; None if nothing is found in time."""
    deadline = time.monotonic() + patience_s
    while True:
        found = probe()
        if found is not None or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_EVERY_S)
