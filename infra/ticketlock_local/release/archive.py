"""Archives whose bytes depend only on the names and contents of their files."""

import stat
import time
import zipfile
from pathlib import Path

_UNIX = 3


def pack(folder: Path, archive: Path, *, time_s: int) -> None:
    """Write the files of a folder into a zip, below one folder that is named after it.

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
            member.create_system = _UNIX
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            packed.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
