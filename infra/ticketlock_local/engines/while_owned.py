"""Runs a command that ends with the process that started it.

It is a script, so it imports nothing of this project: `while_owned.py PROGRAM ARGUMENT...`, as the leader of a process
group. It becomes the program.

Standard input is a pipe whose other end only the owner holds. The kernel closes that end however the owner ends,
SIGKILL included; a child process waits for that, and ends the group.
"""

import os
import signal
import sys

if __name__ == "__main__":
    if os.fork() == 0:
        while os.read(0, 64):
            pass
        os.killpg(0, signal.SIGKILL)
    os.execv(sys.argv[1], sys.argv[1:])
