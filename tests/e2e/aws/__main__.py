"""`python -m e2e.aws`: the command behind `make aws`. Its checks are the tests beside it."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from e2e.aws.account import Account, agree, cost_in_words, own_session
from e2e.aws.checked import IN_ACCOUNT, Checked, Line, exit_code, line_of, summary
from e2e.aws.own_stack import OwnStack
from e2e.aws.running import run
from rich.console import Console
from ticketlock_local.errors import LocalCloudError

_BURST = 400
_LARGEST_BURST = 2_000
_FOLDER = Path(__file__).parent


class InAccount:
    """The plugin that gives the checks their stack, and collects and prints their lines.

    Attributes:
        lines: of the checks so far.
    """

    def __init__(self, checked: Checked, tell: Callable[[str], object]) -> None:
        # What pytest names a plugin by.
        self.__name__ = IN_ACCOUNT
        self.checked = checked
        self.lines: list[Line] = []
        self._tell = tell
        self._number_of_checks = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the checks."""
        self._number_of_checks = len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a line."""
        line = line_of(report)
        if line is not None:
            self.lines.append(line)
            place = f"[{len(self.lines)}/{self._number_of_checks}]"
            self._tell(f"{place} {line.sentence}: {line.seen.verdict}, {line.seen.what}")

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No letter for a check: it has a line."""
        return None if line_of(report) is None else (report.outcome, "", "")


def main(arguments: Sequence[str] | None = None, checks: Path = _FOLDER) -> int:
    """Run the checks: 0 if all is as assumed, 1 if something differs or is left, 2 if something was not seen."""
    given = _parser().parse_args(arguments)
    console = Console(highlight=False)
    starts = 0 if given.no_bursts else given.burst_starts
    lines: list[Line] = []
    failed = False

    def check(outputs: Mapping[str, str]) -> None:
        nonlocal failed
        plugin = InAccount(Checked(account, stack, outputs, starts), console.out)
        # Not the conftest of all tests, which hides the user's account from them.
        alone = ["--confcutdir", str(_FOLDER), "-p", "no:cacheprovider"]
        # In this process: another has neither this plugin nor this stack, and would check an emulator.
        here = ["-p", "no:xdist", "--timeout-method=signal"]
        os.environ.pop("PYTEST_ADDOPTS", None)
        # Its own colours and width; a check's failure is in its line.
        quiet = ["--quiet", "--quiet", "-rN", "--tb=short", "--show-capture=no"]
        code = pytest.main([str(checks), *alone, *here, *quiet], plugins=[plugin])
        lines.extend(plugin.lines)
        failed = code != pytest.ExitCode.OK

    try:
        account = Account.of(own_session())
        stack = OwnStack(account)
        agree(account, _what(stack, starts), yes=given.yes, named=given.account, stdin=sys.stdin, tell=console.out)
        left = run(account, stack, check, console.out)
    except (LocalCloudError, BotoCoreError, ClientError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    if not account.is_aws:
        console.out(f"THIS WAS NOT AWS but {account.endpoint}: this result says nothing about AWS.")
    console.out(summary(lines))
    return 1 if failed else exit_code(lines, left)


def _what(stack: OwnStack, starts: int) -> str:
    return "\n".join(
        [
            f"makes    the stack {stack.name}, and the bucket {stack.bucket} for its files",
            "deletes  both, also when it fails or is interrupted, and nothing else",
            "keeps    what AWS makes or stores by itself; the last lines tell it",
            "takes    some 15 to 40 minutes",
            f"costs    {cost_in_words(starts)}",
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
