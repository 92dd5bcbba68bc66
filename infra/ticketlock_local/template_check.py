"""Synthesise without credentials into build/cdk.out, and lint the template."""

import shutil
import subprocess
import sys
from pathlib import Path

from ticketlock_local.cdk_cli import APP, app_arguments, run_cdk
from ticketlock_local.checkout import BUILD

_CFN_LINT = str(Path(sys.executable).with_name("cfn-lint"))


def check_template() -> int:
    """Return 0 when the app synthesises and cfn-lint accepts every template of it."""
    assembly = BUILD / "cdk.out"
    shutil.rmtree(assembly, ignore_errors=True)  # a template that the app no longer makes must not linger
    run_cdk("synth", "--quiet", "--output", str(assembly), *app_arguments(APP, {}))
    templates = sorted(str(path) for path in assembly.glob("*.template.json"))
    # W3005: the CDK itself adds DependsOn entries that a GetAtt already implies.
    lint = [_CFN_LINT, "--ignore-checks", "W3005", "--", *templates]
    return subprocess.run(lint, check=False).returncode
