"""Searches the tracked files for secrets with detect-secrets and .secrets.baseline, without any network request."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ticketlock_local.checkout import ROOT
from ticketlock_local.errors import LocalCloudError

_HOOK = Path(sys.executable).with_name("detect-secrets-hook")
_BASELINE = ROOT / ".secrets.baseline"
# Found no secret, but would update the baseline's line numbers or version.
_OLD_BASELINE = 3


def check_secrets(root: Path = ROOT, *, hook: Path = _HOOK) -> int:
    """Return 0 if no tracked file of a working tree has a text that may be a secret.

    In an unpacked archive, which is not a checkout, it does not search, and prints that.

    Raises:
        LocalCloudError: nothing is tracked in a checkout, or git or detect-secrets cannot be run.
    """
    try:
        files = _tracked(root)
    except LocalCloudError as error:
        if (root / ".git").exists():
            raise
        print(f"NOT SEARCHED FOR SECRETS, because this is not a git checkout: {error}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="ticketlock-secrets-") as folder:
        # A copy: the hook may write to it.
        baseline = shutil.copy(_BASELINE, folder)
        # Without verification, which would send a finding to the service whose secret it may be.
        done = _run([str(hook), "--no-verify", "--baseline", baseline, *files], root)
    if done.returncode in (0, _OLD_BASELINE):
        return 0
    print(done.stdout, done.stderr, sep="\n")
    return done.returncode


def _tracked(root: Path) -> list[str]:
    listed = _run(["git", "ls-files", "-z"], root)
    # A file that was deleted without a commit is still tracked.
    files = [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
    if listed.returncode != 0 or not files:
        raise LocalCloudError(
            f"no tracked file in {root}, so there is nothing to search for secrets: {listed.stderr.strip()}"
        )
    return files


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LocalCloudError(f"cannot search for secrets: {error}") from error
