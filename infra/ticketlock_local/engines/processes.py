"""Process groups that we started: their members, and how they end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ticketlock_local.errors import LocalCloudError

_PROC = Path("/proc")
_KILL_WAIT_S = 5.0
_POLL_S = 0.02


def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    """Poll until the condition holds; False when it does not within the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def start_owned(command: Sequence[str], *, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program in the folder of its log, with a standard input whose other end only this process holds.

    It leads a new process group: Ctrl-C reaches only us, and we can find and end all processes that it starts.

    Args:
        command: must end when its input ends, as any command under ``while_owned.py`` does.
        env: the whole environment.
        log: holds what it prints.
    """
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            env=env,
            cwd=log.parent,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def lives(process: subprocess.Popen[bytes]) -> bool:
    """Whether the leader of a group has not ended."""
    # Not Popen.poll: it would reap, and so free the id for others while members of the group live.
    return process.pid in living_members(process.pid)


def end_owned(process: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """End a program that ``start_owned`` has started, and its group.

    Raises:
        LocalCloudError: a process of the group survived SIGKILL.
    """
    # Not reaped before the whole group is gone: until then no other process can get its id.
    end_group(process.pid, grace_s=grace_s)
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def living_members(group: int) -> list[int]:
    """Process ids of a process group, without zombies, which have ended and wait to be reaped."""
    return [pid for pid, pgid, state in _process_table() if pgid == group and state not in "ZX"]


def command_line(pid: int) -> str:
    """Return the command line of a process, or nothing when there is no such process."""
    # Linux first: small container images have /proc but no ps.
    if _has_proc():
        with suppress(OSError):
            return (_PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
        return ""
    return _ps("-ww", "-p", str(pid), "-o", "args=").strip()


def end_group(leader: int, *, grace_s: float) -> None:
    """End a process group: SIGTERM to its leader, SIGKILL to processes that outlive the leader or the grace period.

    The caller must make sure that the id is still this group's: an unreaped child, or a known command line.

    Raises:
        LocalCloudError: a process of the group survived SIGKILL.
    """
    with suppress(ProcessLookupError):
        os.kill(leader, signal.SIGTERM)
    wait_until(lambda: leader not in living_members(leader), timeout_s=grace_s)
    with suppress(ProcessLookupError, PermissionError):  # macOS: no permission for a group of zombies
        os.killpg(leader, signal.SIGKILL)
    if not wait_until(lambda: not living_members(leader), timeout_s=_KILL_WAIT_S):
        raise LocalCloudError(f"processes {living_members(leader)} of group {leader} survived SIGKILL")


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


def _process_table() -> list[tuple[int, int, str]]:
    """List (process id, process group id, one letter of state) of every visible process."""
    if not _has_proc():
        rows = (line.split() for line in _ps("-A", "-o", "pid=,pgid=,stat=").splitlines())
        return [(int(pid), int(pgid), stat[0]) for pid, pgid, stat in rows]
    table = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended since
                # "pid (name) state ppid pgrp ...": the name may hold spaces and brackets.
                state, _ppid, pgid = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                table.append((int(entry.name), int(pgid), state))
    return table


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], stdout=subprocess.PIPE, text=True, check=False).stdout
