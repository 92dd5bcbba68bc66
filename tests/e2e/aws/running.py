"""A run: deploy, check, and delete what was made, however it ends."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from botocore.exceptions import BotoCoreError, ClientError
from e2e.aws.account import Account
from e2e.aws.own_stack import APP, LONGEST_DELETE_S, OwnStack

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MANAGED_RULE = "StepFunctionsGetEventsForStepFunctionsExecutionRule"

Tell = Callable[[str], object]


def run(
    account: Account,
    stack: OwnStack,
    check: Callable[[Mapping[str, str]], object],
    tell: Tell,
    app: Path = APP,
) -> list[str]:
    """Deploy a stack, check it, and delete it, whether or not that went well.

    Args:
        account: where.
        stack: not yet made.
        check: makes the checks of a stack with these outputs.
        tell: prints progress.
        app: the CDK app of the stack.

    Returns:
        What could not be deleted.

    Raises:
        NameTaken: a stack or a bucket of this name exists; nothing was made.
        CdkError, ClientError, KeyboardInterrupt: raised after the deletion; what is left was printed.
    """
    stack.refuse_a_taken_name()
    rule_was_there = _has_managed_rule(account)
    left: list[str] = []
    with _deleting(stack, left, tell) as interrupts:
        tell(f"Deploying {stack.name} ...")
        check(stack.deploy(app))
        if interrupts.raised:
            # pytest ends its run at an interrupt, and does not raise it again.
            raise KeyboardInterrupt
        if not rule_was_there:
            _tell_of_the_managed_rule(account, tell)
    return left


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
def _deleting(stack: OwnStack, left: list[str], tell: Tell) -> "Iterator[_Interrupts]":
    """Delete a stack at the end of a block, even if a signal ends it; a further signal does not interrupt that."""

    def say(text: str) -> None:
        # The terminal may be closed, or the pipe broken, for which rich exits.
        with suppress(OSError, SystemExit):
            tell(text)

    interrupts = _Interrupts(say)
    before = {number: signal.signal(number, interrupts) for number in _SIGNALS}
    try:
        try:
            yield interrupts
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
