"""Builds the files of a release from the files of a commit."""

import hashlib
import os
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ticketlock_local.errors import ReleaseError
from ticketlock_local.release import sbom
from ticketlock_local.release.commit import Commit

SUMS = "SHA256SUMS"


def build(source: Path, into: Path, version: str, commit: Commit) -> None:
    """Build every file of a release.

    Args:
        source: the folder with the commit's files; what is built in between is left in it.
        into: the folder that gets the files.
        version: of the package.
        commit: gives the time that all files have.

    Raises:
        ReleaseError: a command failed.
    """
    work = source / "build"
    environment = {
        **os.environ,
        # https://reproducible-builds.org/specs/source-date-epoch/
        "SOURCE_DATE_EPOCH": str(commit.time_s),
        # Before the checkout, which is installed in this environment.
        "PYTHONPATH": os.pathsep.join([str(source / "src"), str(source / "infra")]),
        # The functions' packages come from the index, with their hashes, not from a cache that anyone may have changed.
        "XDG_CACHE_HOME": str(work / "cache"),
        # Those of the `make` that runs this.
        "MAKEFLAGS": "",
    }
    # The wheel is built from the sdist, which so has all that it needs.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(source), env=environment)
    run(sys.executable, "-m", "ticketlock_local", "template", env=environment)
    pack(work / "template", into / f"ticketlock-template-{version}.zip", time_s=commit.time_s)
    run("make", "docs", "--old-file=install", f"BIN={sys.executable}", env=environment, cwd=source)
    pack(work / "site", into / f"ticketlock-site-{version}.zip", time_s=commit.time_s)
    (into / f"ticketlock-{version}.cdx.json").write_text(sbom.written(source, version, commit))
    (into / SUMS).write_text(sums(into))


def pack(folder: Path, archive: Path, *, time_s: int) -> None:
    """Write the files of a folder into a zip, below one folder that is named after it.

    Its bytes depend only on their names and contents.

    Args:
        folder: what to pack.
        archive: the zip, which is written.
        time_s: the time that every file gets, in seconds since 1970.
    """
    # A zip knows no time zone.
    year, month, day, hour, minute, second, *_ = time.gmtime(time_s)
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            name = f"{archive.stem}/{path.relative_to(folder).as_posix()}"
            member = zipfile.ZipInfo(name, (year, month, day, hour, minute, second))
            member.create_system = 3  # Unix
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            packed.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)


def sums(folder: Path) -> str:
    """The SHA-256 of each file, as `sha256sum --check` reads them."""
    files = sorted(each for each in folder.iterdir() if each.name != SUMS)
    return "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files)


def run(*command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a command prints.

    Raises:
        ReleaseError: it failed.
    """
    done = subprocess.run(
        command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout
