"""Synthesise without credentials into build/, with cdk-nag in the app, and lint the templates."""

import shutil
import subprocess
import sys
from pathlib import Path

from ticketlock_local.checkout import BUILD
from ticketlock_local.cloud.cdk_cli import APP, app_arguments, run_cdk

_CFN_LINT = str(Path(sys.executable).with_name("cfn-lint"))
_KEY = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000"
# Settings add resources: check the defaults, and all optional resources.
_CONTEXTS: dict[str, dict[str, str]] = {
    "cdk.out": {},
    "cdk.out.everything": {
        "targets": "arn:aws:states:eu-west-1:123456789012:stateMachine:orders",
        "encryption_key": _KEY,
        "vpc_id": "vpc-0123456789abcdef0",
        "subnet_ids": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
        "permissions_boundary": "developers",
        "dashboard": "true",
        "alarms": "true",
        "alarm_topic": "arn:aws:sns:eu-west-1:123456789012:on-call",
        "transactions": "true",
        "data_tables": "accounts,orders",
    },
}


def check_template() -> int:
    """Return 0 if the app synthesises without unacknowledged findings, and cfn-lint accepts its templates.

    Raises:
        CdkError: it does not synthesise, or cdk-nag found something.
    """
    templates: list[str] = []
    for folder, context in _CONTEXTS.items():
        assembly = BUILD / folder
        shutil.rmtree(assembly, ignore_errors=True)  # delete templates that the app no longer makes
        run_cdk("synth", "--quiet", "--output", str(assembly), *app_arguments(APP, context))
        templates += sorted(str(path) for path in assembly.glob("*.template.json"))
    # W3005: the CDK itself adds DependsOn entries that a GetAtt already implies.
    lint = [_CFN_LINT, "--ignore-checks", "W3005", "--", *templates]
    return subprocess.run(lint, check=False).returncode
