"""`python -m ticketlock_local.aws`: the command behind `make aws`."""

import argparse
import sys

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from ticketlock_local.aws import cost, report
from ticketlock_local.aws.account import Account, own_session
from ticketlock_local.aws.checklist.order import CHECKS
from ticketlock_local.aws.consent import agree
from ticketlock_local.aws.deployed import Bursts
from ticketlock_local.aws.own_stack import OwnStack
from ticketlock_local.aws.running import run
from ticketlock_local.errors import LocalCloudError

_BURST = 400
_LARGEST_BURST = 2_000
# The width of the table if the output is not a terminal.
_WIDTH = 160


def main() -> int:
    """Run the checklist: 0 if all is as assumed, 1 if something differs or is left, 2 if something was not seen."""
    given = _parser().parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    starts = 0 if given.no_bursts else given.burst_starts
    try:
        account = Account.of(own_session())
        stack = OwnStack(account)
        agree(account, _what(stack, starts), yes=given.yes, named=given.account, stdin=sys.stdin, tell=console.out)
        lines, left = run(account, stack, CHECKS, Bursts(starts), console.out)
    except (LocalCloudError, BotoCoreError, ClientError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(report.table(lines))
    if not account.is_aws:
        console.out(f"THIS WAS NOT AWS but {account.endpoint}: this result says nothing about AWS.")
    console.out(report.summary(lines))
    return report.exit_code(lines, left)


def _what(stack: OwnStack, starts: int) -> str:
    return "\n".join(
        [
            f"makes    the stack {stack.name}, and the bucket {stack.bucket} for its files",
            "deletes  both, also when it fails or is interrupted, and nothing else",
            "takes    some 15 to 40 minutes",
            f"costs    {cost.in_words(starts)}",
            f"by hand  aws cloudformation delete-stack --stack-name {stack.name}, should this process be killed",
        ]
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make aws", description="Check what ticketlock assumes of AWS, in your account."
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; needs --account")
    parser.add_argument("--account", metavar="ID", help="refuse to run in any other account")
    parser.add_argument("--no-bursts", action="store_true", help="start no bursts of executions")
    parser.add_argument(
        "--burst-starts",
        type=_burst,
        default=_BURST,
        metavar="N",
        help=f"executions of a burst, 1 to {_LARGEST_BURST}; default: {_BURST}",
    )
    return parser


def _burst(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _LARGEST_BURST:
        raise argparse.ArgumentTypeError(f"{number} is not from 1 to {_LARGEST_BURST}")
    return number


if __name__ == "__main__":
    sys.exit(main())
