"""No secret among the tracked files: by detect-secrets, as .secrets.baseline says, and without asking any service."""

import subprocess
import sys
from pathlib import Path

from ticketlock_local.checkout import ROOT
from ticketlock_local.errors import LocalCloudError

_HOOK = Path(sys.executable).with_name("detect-secrets-hook")
_BASELINE = ROOT / ".secrets.baseline"


def check_secrets(root: Path = ROOT) -> int:
    """Return 0 when none of a working tree's tracked files has a text that looks like a secret.

    Raises:
        LocalCloudError: nothing is tracked there, or git cannot tell.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False)
    # What somebody has deleted and not committed is tracked still.
    files = [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
    if listed.returncode != 0 or not files:
        raise LocalCloudError(f"no tracked file in {root}, so no secret could be looked for: {listed.stderr.strip()}")
    # Without verification: that would send what it finds to the service whose secret it may be.
    hook = [str(_HOOK), "--no-verify", "--baseline", str(_BASELINE), *files]
    return subprocess.run(hook, cwd=root, check=False).returncode
