"""`make aws` makes one stack and one bucket, and deletes these and no others, also if it fails: on an emulator.

The stack is a small one of the tests' own; `tests/e2e/test_aws.py` deploys the real one.
"""

import json
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from e2e.aws.account import Account
from e2e.aws.own_stack import PREFIX, RUN_TAG, NameTaken, OwnStack
from e2e.aws.running import kept_by_aws, made_by_aws, run
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.errors import CdkError

pytestmark = pytest.mark.verify("tests no part of the product")

_APP = """\
from aws_cdk import App, CfnOutput, CliCredentialsStackSynthesizer, Stack
from aws_cdk import aws_sqs as sqs

app = App()
given = {name: app.node.try_get_context(name) for name in ("stack", "bucket", "run")}
stack = Stack(
    app,
    "Small",
    stack_name=given["stack"],
    tags={"ticketlock:run": RUN},
    synthesizer=CliCredentialsStackSynthesizer(file_assets_bucket_name=given["bucket"]),
)
CfnOutput(stack, "Url", value=sqs.Queue(stack, "Queue").queue_url)
app.synth()
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Check = Callable[[Mapping[str, str]], object]
_TEMPLATE = '{"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}'


class Place:
    """An emulated account, and runs in it."""

    def __init__(self, account: Account, folder: Path) -> None:
        self.account = account
        self.told: list[str] = []
        self.stack = OwnStack(account, secrets.token_hex(8))
        self._folder = folder

    def app(self, run: str = 'given["run"]') -> Path:
        """An app whose stack has the tag of this run, or of another."""
        path = self._folder / "small_app.py"
        path.write_text(_APP.replace("RUN", run))
        return path

    def runs(self, check: Check = lambda _: None, app: Path | None = None) -> list[str]:
        return run(self.account, self.stack, check, self.told.append, app=app or self.app())

    def stacks(self) -> list[str]:
        pages = self.account.client("cloudformation").get_paginator("describe_stacks").paginate()
        return [stack["StackName"] for page in pages for stack in page["Stacks"]]

    def buckets(self) -> list[str]:
        return [bucket["Name"] for bucket in self.account.client("s3").list_buckets()["Buckets"]]

    def make_stack(self, name: str) -> None:
        self.account.client("cloudformation").create_stack(StackName=name, TemplateBody=_TEMPLATE)

    def left_of_the_run(self) -> list[str]:
        return [name for name in (*self.stacks(), *self.buckets()) if name.startswith(self.stack.name)]


@pytest.fixture
def place(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    return in_an_account_of(emulator, monkeypatch, tmp_path)


def in_an_account_of(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Place:
    for name, value in client_environment(emulator.endpoint).items():
        monkeypatch.setenv(name, value)
    return Place(Account.of(boto3.Session()), folder)


def test_a_run_checks_what_it_has_deployed_and_leaves_nothing_of_its_own_and_all_that_others_have(
    place: Place,
) -> None:
    others = [f"{PREFIX}{secrets.token_hex(8)}", f"Ticketlock{secrets.token_hex(8)}"]
    for name in others:
        place.make_stack(name)
    there: list[Any] = []

    def check(outputs: Mapping[str, str]) -> None:
        (stack,) = place.account.client("cloudformation").describe_stacks(StackName=place.stack.id)["Stacks"]
        there.extend([set(outputs), {"Key": RUN_TAG, "Value": place.stack.run} in stack["Tags"]])
        there.extend(place.left_of_the_run())

    assert place.runs(check) == []
    assert there == [{"Url"}, True, place.stack.name, place.stack.bucket]
    assert place.left_of_the_run() == []
    assert place.told[-2] == "Deleted. Nothing that this run made is left."
    assert place.told[-1].startswith("AWS keeps the run's metrics")
    assert set(others) <= set(place.stacks())


def test_what_aws_has_made_or_changed_beside_the_stack_is_kept_and_what_was_there_before_is_not_told(
    place: Place,
) -> None:
    logs = place.account.client("logs")

    def write(*names: str) -> None:
        for name in names:
            logs.put_resource_policy(policyName=name, policyDocument=json.dumps({"Id": secrets.token_hex(8)}))

    write("There", "Changed")
    before = made_by_aws(place.account)
    write("Changed", "New")
    policy = "the resource policy {} of CloudWatch Logs, which lets services deliver their logs: {}"
    assert kept_by_aws(place.account, before)[:-1] == [policy.format("New", "new"), policy.format("Changed", "changed")]


def test_names_are_fresh_each_time_and_begin_alike(place: Place) -> None:
    names = {OwnStack(place.account).name for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith(PREFIX) for name in names)


def takes_the_stacks_name(place: Place) -> str:
    place.make_stack(place.stack.name)
    return place.stack.name


def takes_the_buckets_name(place: Place) -> str:
    place.account.client("s3").create_bucket(Bucket=place.stack.bucket)
    return place.stack.bucket


@pytest.mark.parametrize("takes", [takes_the_stacks_name, takes_the_buckets_name])
def test_a_stack_or_a_bucket_of_that_name_is_refused_and_not_touched(
    place: Place, takes: Callable[[Place], str]
) -> None:
    taken = takes(place)
    with pytest.raises(NameTaken, match="exists already"):
        place.runs()
    assert place.stack.delete() == []
    assert place.left_of_the_run() == [taken]


def test_a_stack_without_the_tag_of_the_run_is_not_deleted_but_reported(place: Place) -> None:
    (left,) = place.runs(app=place.app('"another"'))
    assert place.left_of_the_run() == [place.stack.name]
    assert "it does not have this run's tag" in left
    assert f"NOT DELETED: {left}" in place.told


def test_a_deployment_that_fails_leaves_nothing(place: Place) -> None:
    broken = place.app()
    broken.write_text(broken.read_text().replace("app.synth()", "raise SystemExit('no synthesis today')"))
    with pytest.raises(CdkError, match="no synthesis today"):
        place.runs(app=broken)
    assert place.left_of_the_run() == []


def caught(_: object) -> None:
    """An interrupt that the checks catch, as pytest does, which ends then."""
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def breaks_off(_: object) -> None:
    """An interrupt as whose consequence the checks break off, as pytest does where it cannot print its traceback."""
    caught(_)
    raise TypeError


@pytest.mark.parametrize("check", [caught, breaks_off])
def test_a_run_that_is_interrupted_leaves_nothing(place: Place, check: Callable[[object], None]) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with pytest.raises(KeyboardInterrupt):
        place.runs(check)
    assert place.left_of_the_run() == []
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_second_interrupt_does_not_break_the_deletion_off(place: Place) -> None:
    told: list[str] = []

    def tells(text: object) -> None:
        told.append(str(text))
        if str(text).startswith("Deleting"):
            os.kill(os.getpid(), signal.SIGHUP)

    with pytest.raises(KeyboardInterrupt):
        run(place.account, place.stack, lambda _: os.kill(os.getpid(), signal.SIGTERM), tells, app=place.app())
    assert any(text.startswith("Still deleting") for text in told)
    assert place.left_of_the_run() == []


def test_a_run_whose_terminal_is_gone_leaves_nothing(place: Place) -> None:
    def tells(text: object) -> None:
        if not str(text).startswith("Deploying"):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run(place.account, place.stack, lambda _: tells("[1/1]"), tells, app=place.app())
    assert place.left_of_the_run() == []


def test_what_cannot_be_deleted_is_listed_with_the_command_that_does_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Emulator() as doomed:
        place = in_an_account_of(doomed, monkeypatch, tmp_path)
        left = place.runs(lambda _: doomed.stop())
    assert len(left) == 2
    assert f"delete-stack --region us-east-1 --stack-name {place.stack.id}" in left[0]
    assert f"aws s3 rb --force s3://{place.stack.bucket}" in left[1]
    assert [text for text in place.told if text.startswith("NOT DELETED")] == [f"NOT DELETED: {text}" for text in left]


def test_a_bucket_that_is_gone_already_is_none_that_is_left(place: Place) -> None:
    deleted: list[list[str]] = []
    assert place.runs(lambda _: deleted.append(place.stack.delete())) == []
    assert deleted == [[]]
    with pytest.raises(ClientError):
        place.account.client("s3").head_bucket(Bucket=place.stack.bucket)
