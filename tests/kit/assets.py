"""A function's asset, as Lambda runs it."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import boto3


def said_by(asset: Path, code: str) -> str:
    """What a program prints that has only the asset and the SDK of the runtime, and no other package.

    Args:
        asset: its folder; one beside it is made for the SDK.
        code: the program.
    """
    sdk = Path(inspect.getfile(boto3)).parents[1]
    runtime = asset.parent / "runtime"
    runtime.mkdir()
    for name in ("boto3", "botocore", "s3transfer", "dateutil", "urllib3", "six.py"):
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
