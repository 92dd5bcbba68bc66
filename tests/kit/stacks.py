"""What tests of templates share: the actions that policies allow, constructs of the user's, and a function's asset as
Lambda runs it.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn


def on_table(found: Any, construct: Any, table: Any) -> set[str]:
    """The actions on a table that the policies of a role, or a function, have."""
    arn = {"Fn::GetAtt": [found.id_of(table), "Arn"]}
    statements = [one for one in found.statements(construct) if arn in as_list(one["Resource"])]
    return {action for one in statements for action in as_list(one["Action"])}


def allowed(found: Any, principal: Any, names: Mapping[str, str] | None = None) -> dict[str, set[str]]:
    """The actions that a principal is allowed on each resource, by its name of these if it has one."""
    on: dict[str, set[str]] = {}
    for statement in found.statements(principal):
        for resource in as_list(statement["Resource"]):
            text = found.text(resource)
            on.setdefault((names or {}).get(text, text), set()).update(as_list(statement["Action"]))
    return on


def as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def machine(scope: Any, id: str = "Workflow", chain: Any = None, **more: Any) -> sfn.StateMachine:
    """A state machine of the user's."""
    body = sfn.DefinitionBody.from_chainable(chain or sfn.Pass(scope, f"{id}Passes"))
    return sfn.StateMachine(scope, id, definition_body=body, **more)


def function(scope: Any, id: str = "Work", **more: Any) -> lambda_.Function:
    """A function of the user's."""
    code = lambda_.Code.from_inline("def handler(event, _context): ...")
    runtime = lambda_.Runtime.PYTHON_3_14
    return lambda_.Function(scope, id, runtime=runtime, handler="index.handler", code=code, **more)


def durable(scope: Any, id: str = "Durable", **more: Any) -> lambda_.Function:
    """A durable function of the user's."""
    config = lambda_.DurableConfig(execution_timeout=Duration.days(7))
    return function(scope, id, durable_config=config, **more)


def said_by(asset: Path, code: str) -> str:
    """What a program prints that has only the asset and the SDK of the runtime, and no other package.

    Args:
        asset: its folder; one beside it is made for the SDK.
        code: the program.
    """
    sdk = Path(inspect.getfile(boto3)).parents[1]
    runtime = asset.parent / "runtime"
    if not runtime.exists():
        runtime.mkdir()
        for name in ("boto3", "botocore", "jmespath", "s3transfer", "dateutil", "urllib3", "six.py"):
            (runtime / name).symlink_to(sdk / name)
    done = subprocess.run(
        # Without Python's own site-packages.
        [sys.executable, "-S", "-B", "-c", code],
        env={"PYTHONPATH": f"{asset}{os.pathsep}{runtime}", "AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
