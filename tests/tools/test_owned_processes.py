"""A program that is owned ends with its owner."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ticketlock_local.engines import processes

pytestmark = pytest.mark.verify("tests no part of the product")

LONG_S, PATIENCE_S = 3_600, 30
LAUNCHER = Path(processes.__file__).with_name("while_owned.py")
OWNER = """
import subprocess, sys
program = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE, start_new_session=True)
print(program.pid, flush=True)
sys.stdin.read()
"""


def test_a_program_ends_when_its_owner_is_killed() -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    command = [sys.executable, "-c", OWNER, str(LAUNCHER), sleep, str(LONG_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        group = int(owner.stdout.readline())
        # The launcher has become the program.
        assert processes.wait_until(lambda: processes.command_line(group) == f"{sleep} {LONG_S}", timeout_s=PATIENCE_S)
        # The program, and its watcher.
        assert len(processes.living_members(group)) == 2
        owner.send_signal(signal.SIGKILL)
    assert processes.wait_until(lambda: not processes.living_members(group), timeout_s=PATIENCE_S)
