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
# https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html
_KEPT_FOR_A_WHILE = (
    "the run's metrics in CloudWatch and its traces in X-Ray, until they expire; its KMS key, for 7 days"
)

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
    before = made_by_aws(account)
    left: list[str] = []
    with _deleting(stack, left, tell, lambda: kept_by_aws(account, before)) as interrupts:
        tell(f"Deploying {stack.name} ...")
        try:
            check(stack.deploy(app))
        finally:
            if interrupts.raised:
                # pytest ends its run at an interrupt, and does not raise it again; where an interrupt met code
                # that has no line number (3.11.7 knows some), pytest raises a TypeError as it prints it.
                raise KeyboardInterrupt
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
def _deleting(stack: OwnStack, left: list[str], tell: Tell, kept: Callable[[], list[str]]) -> "Iterator[_Interrupts]":
    """Delete a stack at the end of a block, even if a signal ends it; a further signal does not interrupt that.

    Then tell what AWS keeps.
    """

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
            say("Deleted. Nothing that this run made is left.")
        for each in kept():
            say(f"AWS keeps {each}")
        for number, handler in before.items():
            signal.signal(number, handler)


def made_by_aws(account: Account) -> Mapping[str, str]:
    """What AWS makes in an account beside the stack, and does not delete with it: in words, with its contents."""
    rules = account.client("events").list_rules(NamePrefix=_MANAGED_RULE)["Rules"]
    pages = account.client("logs").get_paginator("describe_resource_policies").paginate()
    policies = [policy for page in pages for policy in page["resourcePolicies"]]
    return {
        # https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
        **{f"the rule {rule['Name']}, by which Step Functions hears of nested executions": "" for rule in rules},
        # https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/AWS-logs-infrastructure-CWL.html
        **{
            f"the resource policy {policy['policyName']} of CloudWatch Logs, which lets services deliver their logs": (
                policy["policyDocument"]
            )
            for policy in policies
        },
    }


def kept_by_aws(account: Account, before: Mapping[str, str]) -> list[str]:
    """What of that is new or has changed, and what expires."""
    try:
        after = made_by_aws(account)
    except (BotoCoreError, ClientError) as error:
        return [f"perhaps more, which cannot be listed: {error}", _KEPT_FOR_A_WHILE]
    new = [f"{what}: new" for what in after if what not in before]
    changed = [f"{what}: changed" for what, contents in after.items() if before.get(what, contents) != contents]
    return [*new, *changed, _KEPT_FOR_A_WHILE]
