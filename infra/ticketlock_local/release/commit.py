"""The commit that is checked out, from which alone a release is built."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ticketlock_local.errors import ReleaseError


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit.

    Attributes:
        sha: its full name.
        time_s: when it was made, in seconds since 1970.
    """

    sha: str
    time_s: int


def checked_out(root: Path) -> Commit:
    """The commit of a checkout, all of whose changes are committed.

    Raises:
        ReleaseError: files are changed or unknown to git; the message names them.
    """
    if changes := git(root, "status", "--porcelain", "--untracked-files=all"):
        raise ReleaseError(f"these changes are not committed:\n{changes}")
    sha, time_s = git(root, "log", "-1", "--format=%H %ct").split()
    return Commit(sha, int(time_s))


def write_files(root: Path, folder: Path) -> None:
    """Write the commit's files into a folder, without those that git ignores in the checkout."""
    # As they are stored: on some machines git is told to write other ends of lines.
    git(root, "-c", "core.autocrlf=false", "checkout-index", "--all", f"--prefix={folder}{os.sep}")


def git(root: Path, *arguments: str) -> str:
    """What a command of git prints, without the last line's end.

    Raises:
        ReleaseError: it failed.
    """
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")
