"""`python -m ticketlock_local.release`: what `make release` runs."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import ticketlock
from ticketlock_local.checkout import ROOT
from ticketlock_local.errors import LocalCloudError
from ticketlock_local.release.build import SUMS, build
from ticketlock_local.release.checks import check
from ticketlock_local.release.commit import checked_out, write_files
from ticketlock_local.release.tag import check_tag


def main() -> int:
    """Build and check a release, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ticketlock_local.release", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, help="the folder that gets the files")
    parser.add_argument("--tag", help="refuse unless this tag fits the version, the changelog and the proof")
    options = parser.parse_args()
    try:
        _release(options.into, options.tag)
    except LocalCloudError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _release(into: Path, tag: str | None) -> None:
    version = ticketlock.__version__
    commit = checked_out(ROOT)
    if tag is not None:
        check_tag(ROOT, tag, version)
    with tempfile.TemporaryDirectory(prefix="ticketlock-release-") as folder:
        source, files, used = (Path(folder) / name for name in ("source", "files", "used"))
        for each in (source, files, used):
            each.mkdir()
        write_files(ROOT, source)
        print(f"building ticketlock {version} from {commit.sha}")
        build(source, files, version, commit)
        print("checking each file as its users will use it")
        check(files, used, version)
        # Only now: what is in the folder has been checked. Files of an earlier release would be taken for this one's.
        into.mkdir(parents=True, exist_ok=True)
        for old in (*into.glob("ticketlock-*"), *into.glob(SUMS)):
            old.unlink()
        # The sums last: without them, the folder has only a part of a release.
        for file in sorted(files.iterdir(), key=lambda each: each.name == SUMS):
            shutil.copyfile(file, into / file.name)
    print(f"{into} has the files of the release:\n{(into / SUMS).read_text()}", end="")


if __name__ == "__main__":
    sys.exit(main())
