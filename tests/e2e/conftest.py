"""The real stacks, deployed once a session by the real CDK, to an emulator that enforces the roles of the functions."""

import io
import json
import uuid
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from e2e.cloud import POLL_S, Cloud
from kit.aws_cli import run_script
from kit.pages import blocks
from ticketlock_cdk.examples import _FUNCTION as _WORKS
from ticketlock_local.cloud.deploy import client_arguments, client_environment, deploy
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.plain.template import write_to

from ticketlock.workflow._failures import execution_arn

_FAILS = """\
class OutOfPaint(Exception):
    pass


def handler(event, _context):
    raise OutOfPaint("there is no more " + event["colour"])
"""


@pytest.fixture(scope="session")
def guarded_emulator() -> Iterator[Emulator]:
    """An emulator in which functions may send only what their roles allow."""
    with Emulator(env={"AUTH": "true"}) as emulator:
        yield emulator


@pytest.fixture(scope="session")
def cloud(guarded_emulator: Emulator) -> Cloud:
    """The ready-made stack: waiters are woken, and a lease lasts for 60 s."""
    endpoint = guarded_emulator.endpoint
    failing = _new_function(endpoint, "out-of-paint", _FAILS)
    shown = {"dashboard": "true", "dashboard_live": "true", "examples": "true"}
    context = {"poll": str(POLL_S), "removal_policy": "destroy", "targets": failing, **shown}
    outputs = deploy(guarded_emulator, context=context)
    allow_answers_on_everything(endpoint)
    _check_that_it_guards(endpoint, outputs["TableName"])
    return _warmed_up(Cloud(endpoint, outputs, failing_function=failing))


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """The plain template, deployed as its page says, where the CDK has never been: waiters are woken."""
    folder = tmp_path_factory.mktemp("plain") / "template"
    write_to(folder)
    with Emulator(env={"AUTH": "true"}) as emulator:
        endpoint = emulator.endpoint
        works = _new_function(endpoint, "works", _WORKS)
        env = {**client_environment(endpoint), "BUCKET": "artifacts", "FUNCTIONS": works}
        run_script("aws s3 mb s3://$BUCKET", env=env, folder=folder)
        (deploy_it,) = [block for block in blocks("docs/construct.md", "sh") if "cloudformation deploy" in block]
        told = run_script(deploy_it, env=env, folder=folder)
        # What the last of the commands prints.
        outputs = {each["OutputKey"]: each["OutputValue"] for each in json.loads(told[told.index("\n[") :])}
        allow_answers_on_everything(endpoint)
        _check_that_it_guards(endpoint, outputs["TableName"])
        yield _warmed_up(Cloud(endpoint, {**outputs, "ExampleFunctionArn": works}))


_ANOTHER = pytest.mark.verify("another deployment; tests/infra compares the plain template with the construct's")


@pytest.fixture(params=["cloud", pytest.param("plain", marks=_ANOTHER)], ids=["the CDK", "plain template"])
def either(request: pytest.FixtureRequest) -> Cloud:
    """Both ways to deploy."""
    found: Cloud = request.getfixturevalue(request.param)
    return found


def _warmed_up(cloud: Cloud) -> Cloud:
    # Three at the same time: the lock is measured, not how fast the emulator starts processes.
    entity = f"warm-up-{uuid.uuid4().hex}"
    for arn in [cloud.sleep(entity, 0) for _ in range(3)]:
        assert cloud.ended(arn).status == "SUCCEEDED"
    machine = cloud.outputs["StateMachineArn"]
    nobody = execution_arn(machine, "nobody")
    ended = {"executionArn": nobody, "stateMachineArn": machine, "status": "FAILED", "stopDate": cloud.now_ms()}
    cloud.call("clean_up", {"detail": ended})
    return cloud


_TRUSTS_LAMBDA = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}],
}


def _new_function(endpoint: str, name: str, source: str) -> str:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("index.py", source)
    iam = boto3.client("iam", **client_arguments(endpoint))
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_TRUSTS_LAMBDA))["Role"]
    created = boto3.client("lambda", **client_arguments(endpoint)).create_function(
        FunctionName=name,
        Runtime="python3.14",
        Handler="index.handler",
        Role=role["Arn"],
        Code={"ZipFile": archive.getvalue()},
        Timeout=15,
    )
    return str(created["FunctionArn"])


def allow_answers_on_everything(endpoint: str) -> None:
    """Widen the resources of SendTask actions, but not the actions.

    The stack allows them on its machines, as the CDK does itself. The emulator wants them on "*": a request names its
    task's token only.
    """
    iam = boto3.client("iam", **client_arguments(endpoint))
    for role in (role["RoleName"] for page in iam.get_paginator("list_roles").paginate() for role in page["Roles"]):
        for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document: Any = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
            answers = [each for each in document["Statement"] if "states:SendTask" in str(each["Action"])]
            for statement in answers:
                statement["Resource"] = "*"
            if answers:
                iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(document))


def _check_that_it_guards(endpoint: str, table_name: str) -> None:
    iam, name = boto3.client("iam", **client_arguments(endpoint)), f"nobody-{uuid.uuid4().hex}"
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    arguments = client_arguments(endpoint)
    arguments["aws_access_key_id"], arguments["aws_secret_access_key"] = key["AccessKeyId"], key["SecretAccessKey"]
    with pytest.raises(ClientError, match="AccessDenied"):
        boto3.client("dynamodb", **arguments).scan(TableName=table_name)


@pytest.fixture
def entity() -> str:
    return f"order-{uuid.uuid4().hex}"


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """Report how long something took: in the summary, and as a property of the test in a report.

    pytest's own ``record_property`` warns of every report that is of its default format.
    """

    def record(what: str, seconds: float) -> None:
        request.node.user_properties.append((what, round(seconds, 2)))

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    for report in reports:
        if getattr(report, "when", "") == "call":
            for what, seconds in report.user_properties:
                if isinstance(seconds, float):  # a check of AWS reports texts
                    terminalreporter.write_line(f"measured: {seconds:6.2f} s {what}")
