"""What tests see: of a lock in the table, and of a command that is refused."""

from kit.command import Ended

from ticketlock import LockClient

WRONG_WORDS = 2
"""The exit code of a command whose usage is shown."""


def held(locks: LockClient, entity: str) -> int:
    item = locks.inspect(entity).item
    return 0 if item is None else item.held


def waiters(locks: LockClient, entity: str) -> int:
    return len(locks.inspect(entity).rows)


def is_refused(ended: Ended, exit_code: int, told: str = "") -> None:
    """It has printed nothing, and at the end of stderr a line of the command with this text."""
    assert (ended.exit_code, ended.out) == (exit_code, ""), ended
    # An unanswered question has no line break after it.
    last = ended.err.splitlines()[-1].rpartition("[y/N]: ")[2]
    assert last.startswith("ticketlock: "), ended
    assert told in last, ended
    assert ("Usage: ticketlock" in ended.err) == (exit_code == WRONG_WORDS), ended
