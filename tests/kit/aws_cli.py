"""The AWS CLI, in an environment of its own that knows nothing of the user's AWS settings: it pins its packages."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ticketlock_local.checkout import pinned_python
from ticketlock_local.errors import LocalCloudError

_REQUIREMENTS = Path(__file__).with_name("aws-cli-requirements.txt")
_TIMEOUT_S = 300.0


def run_script(script: str, *, env: Mapping[str, str], folder: Path) -> str:
    """Run commands of a shell that call ``aws``, and return what they print.

    Args:
        script: the commands; the first that fails ends it.
        env: more environment, such as an endpoint and credentials.
        folder: where to run them.
    """
    # The CLI is installed once for each list of pins.
    folder_of_aws = pinned_python("aws-cli-venv", _REQUIREMENTS).parent
    path = os.pathsep.join([str(folder_of_aws), os.defpath])
    apart = {"HOME": str(folder), "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env={"PATH": path, "AWS_EC2_METADATA_DISABLED": "true", "AWS_PAGER": "", **apart, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise LocalCloudError(f"{script}\nfailed with status {done.returncode}:\n{done.stdout}")
    return done.stdout
