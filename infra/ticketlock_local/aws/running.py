"""A run: deploy, check, report, and delete what was made, however it ends."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from botocore.exceptions import BotoCoreError, ClientError

from ticketlock_local.aws.account import Account
from ticketlock_local.aws.checking import Check
from ticketlock_local.aws.deployed import Bursts, Deployed
from ticketlock_local.aws.own_stack import APP, LONGEST_DELETE_S, OwnStack
from ticketlock_local.aws.report import Line
from ticketlock_local.aws.seen import Seen, Verdict

LONGEST_RUN_S = 2_400.0
"""No check begins later. The longest takes some minutes, and deleting a quarter of an hour at most."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MANAGED_RULE = "StepFunctionsGetEventsForStepFunctionsExecutionRule"

Tell = Callable[[str], object]


def run(
    account: Account,
    stack: OwnStack,
    checks: Sequence[Check],
    bursts: Bursts,
    tell: Tell,
    app: Path = APP,
    longest_s: float = LONGEST_RUN_S,
) -> tuple[list[Line], list[str]]:
    """Deploy a stack, check it, and delete it, whether or not that went well.

    Args:
        account: where.
        stack: not yet made.
        checks: the checks to run.
        bursts: the sizes of the bursts.
        tell: prints progress.
        app: the CDK app of the stack.
        longest_s: after that no check begins.

    Returns:
        What was seen, line by line, and what could not be deleted.

    Raises:
        NameTaken: a stack or a bucket of this name exists; nothing was made.
        CdkError, ClientError, KeyboardInterrupt: raised after the deletion; what is left was printed.
    """
    stack.refuse_a_taken_name()
    rule_was_there = _has_managed_rule(account)
    lines: list[Line] = []
    left: list[str] = []
    with _deleting(stack, left, tell):
        tell(f"Deploying {stack.name} ...")
        deployed = Deployed(account, stack, stack.deploy(app), bursts)
        over = time.monotonic() + longest_s
        for number, check in enumerate(checks, start=1):
            seen = (
                check.seen_in(deployed)
                if time.monotonic() < over
                else Seen(Verdict.NOT_SEEN, f"the {longest_s:.0f} s of a run were over")
            )
            lines.append((check, seen))
            tell(f"[{number}/{len(checks)}] {check.sentence}: {seen.verdict}, {seen.what}")
        if not rule_was_there:
            _tell_of_the_managed_rule(account, tell)
    return lines, left


class _Interrupts:
    """A signal handler that raises at most once, and never after the deletion has begun."""

    def __init__(self, say: Tell) -> None:
        self.deleting = self.raised = False
        self._say = say

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.deleting or self.raised:
            self._say("Still deleting, for a quarter of an hour at most")
        else:
            self.raised = True
            raise KeyboardInterrupt


@contextmanager
def _deleting(stack: OwnStack, left: list[str], tell: Tell) -> Iterator[None]:
    """Delete a stack at the end of a block, even if a signal ends it; a further signal does not interrupt that."""

    def say(text: str) -> None:
        # The terminal may be closed, or the pipe broken, for which rich exits.
        with suppress(OSError, SystemExit):
            tell(text)

    interrupts = _Interrupts(say)
    before = {number: signal.signal(number, interrupts) for number in _SIGNALS}
    try:
        try:
            yield
        finally:
            interrupts.deleting = True
    finally:
        say(f"Deleting {stack.name} ...")
        left += stack.delete(LONGEST_DELETE_S)
        for each in left:
            say(f"NOT DELETED: {each}")
        if not left:
            say("Deleted. Nothing of this run is left.")
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_managed_rule(account: Account) -> bool:
    return bool(account.client("events").list_rules(NamePrefix=_MANAGED_RULE)["Rules"])


def _tell_of_the_managed_rule(account: Account, tell: Tell) -> None:
    with suppress(BotoCoreError, ClientError):
        if _has_managed_rule(account):
            tell(
                f"The rule {_MANAGED_RULE} is new. Step Functions has made it and manages it, for all "
                "state machines of the Region; it is free, and is not deleted."
            )
