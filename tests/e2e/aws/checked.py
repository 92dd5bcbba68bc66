"""The deployed stack, for the checks of what is assumed of AWS; what counts as seen; and the report.

A check is a test that returns whether all is as assumed, and what it saw. As assumed, it passes; otherwise it fails; if
it saw nothing, it is skipped.
"""

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from e2e.aws.account import Account
from e2e.aws.own_stack import OwnStack
from e2e.cloud import Cloud, History, T
from rich import box
from rich.table import Table
from rich.text import Text

from ticketlock import LockTable
from ticketlock.units import Units, UnitTable
from ticketlock.wire._sdk import CLIENT_SETTINGS

LEASE_S = 40
"""The lock's lease: a heartbeat every 20 s."""

ERROR = "OutOfPaint"
"""The error of the work that fails."""

LONGEST_RUN_S = 2_400.0
"""No check begins later. The longest takes some minutes, and deleting a quarter of an hour at most."""

IN_ACCOUNT = "ticketlock in an account"
"""The name of the plugin that has the stack of a run of `make aws`."""

LINE = "assumption of AWS"
"""The property of a test's report that is a line of the table."""

_REFUSALS = ("AccessDenied", "AccessDeniedException")


class Verdict(StrEnum):
    """The verdict on an assumption."""

    AS_ASSUMED = "as assumed"
    OTHERWISE = "otherwise"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen.

    Attributes:
        verdict: whether it is as assumed.
        what: what was seen, in words and figures; why not, if nothing was.
    """

    verdict: Verdict
    what: str


class NotSeen(Exception):
    """The check could not be made, or shows nothing; the message says why."""


class Checked(Cloud):
    """One stack with its lock, in an account or on an emulator.

    Args:
        account: where.
        stack: whose.
        outputs: the stack's.
        burst_starts: nested executions that a burst starts, and stops; 0 for none.
        longest_s: after that no check begins.

    Attributes:
        must_answer: whether it fails if a check has a mistake, or an emulator can answer it and it has seen nothing.
    """

    poll_every_s = 0.5

    def __init__(
        self,
        account: Account,
        stack: OwnStack,
        outputs: Mapping[str, str],
        burst_starts: int = 0,
        *,
        longest_s: float = LONGEST_RUN_S,
        must_answer: bool = False,
    ) -> None:
        super().__init__(account.endpoint, outputs)
        self.account = account
        self.stack = stack
        self.burst_starts = burst_starts
        self.must_answer = must_answer
        self._longest_s = longest_s
        self._over = time.monotonic() + longest_s
        self._done: dict[Callable[[Checked], Any], Any] = {}
        self._ends: dict[str, dict[int, Mapping[str, Any]]] = {}

    def refuse_to_begin_late(self) -> None:
        """Raises NotSeen after the time limit."""
        if time.monotonic() >= self._over:
            raise NotSeen(f"the {self._longest_s:.0f} s of a run were over")

    def once(self, experiment: "Callable[[Checked], T]") -> T:
        """The result of an experiment, which is run once for all checks that use it.

        Raises:
            NotSeen: or any other error of the experiment, each time.
        """
        if experiment not in self._done:
            try:
                self._done[experiment] = experiment(self)
            except Exception as error:
                self._done[experiment] = error
        found = self._done[experiment]
        if isinstance(found, Exception):
            raise found
        shown: T = found
        return shown

    def client(self, service: str) -> Any:
        """A client with the caller's credentials."""
        return self.account.client(service)

    @cached_property
    def dynamodb(self) -> Any:
        """DynamoDB as the library calls it, with the caller's credentials."""
        return self.new_dynamodb()

    def new_dynamodb(self) -> Any:
        """Another such client, as another process has one."""
        return self._dynamodb(self.account.session)

    @cached_property
    def units(self) -> Units:
        return Units(self.outputs["UnitsTableName"], client=self.dynamodb)

    @cached_property
    def accounts(self) -> UnitTable:
        """The table whose items units write."""
        return self.units.table(self.outputs["AccountsTableName"])

    def start(self, execution_input: Any, machine: str | None = None) -> str:
        """Start an execution, which waits for 300 s at most."""
        return super().start({"recordWaitSeconds": 300, **execution_input}, machine)

    def wait_until_parked(self, arn: str) -> None:
        """Wait until an execution is parked: its session has a token, which is not read. Logs come late on AWS."""
        request = {
            "TableName": self.outputs["TableName"],
            "KeyConditionExpression": "pk = :session",
            "FilterExpression": "attribute_exists(wakeUpToken)",
            "ExpressionAttributeValues": {":session": {"S": f"session#{arn}"}},
            "ConsistentRead": True,
            "Select": "COUNT",
        }
        self.wait_until(lambda: self.dynamodb.query(**request)["Count"] > 0, f"{arn} being parked")

    def ends_told(self, arn: str, count: int = 1) -> Sequence[Mapping[str, Any]]:
        """The details of EventBridge's events of so many ends of an execution, in the order of its ends.

        A rule of the stack sends them to a queue; copies count once.
        """
        sqs, url = self.client("sqs"), self.outputs["EndsQueueUrl"]

        def told() -> Sequence[Mapping[str, Any]] | None:
            answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2)
            for message in answer.get("Messages", []):
                detail = json.loads(message["Body"])["detail"]
                self._ends.setdefault(detail["executionArn"], {})[detail["stopDate"]] = detail
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            found = self._ends.get(arn, {})
            return [found[stopped] for stopped in sorted(found)] if len(found) >= count else None

        return self.wait_for(told, f"the events of {count} ends of {arn}", 60.0)

    def acting_as(self, role: str) -> boto3.Session:
        """A session of the role `Operator`, `Client` or `Units`, which have only the constructs' grants."""

        def assumed() -> Mapping[str, str] | None:
            try:
                answer = self.client("sts").assume_role(
                    RoleArn=self.outputs[f"{role}RoleArn"], RoleSessionName="check", ExternalId=self.stack.run
                )
            except ClientError as error:
                if error.response["Error"]["Code"] in _REFUSALS:
                    return None  # IAM is eventually consistent
                raise
            credentials: Mapping[str, str] = answer["Credentials"]
            return credentials

        now = self.wait_for(assumed, f"the role {role} to be assumed")
        return boto3.Session(
            now["AccessKeyId"], now["SecretAccessKey"], now["SessionToken"], region_name=self.account.region
        )

    def table_of(self, session: boto3.Session) -> LockTable:
        """The lock table, with another session."""
        return LockTable(self.outputs["TableName"], client=self._dynamodb(session))

    def _dynamodb(self, session: boto3.Session) -> Any:
        return self.account.client_of(session, "dynamodb", Config(**CLIENT_SETTINGS))


Observation = Callable[[Checked], tuple[bool, str]]
"""Observes; returns whether all is as assumed, and what it saw. Raises NotSeen if it saw nothing."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: the subject, what ticketlock relies on, the AWS page that says so, and what was seen."""

    sentence: str
    assumed: str
    link: str
    seen: Seen


def seen_in(checked: Checked, observe: Observation, emulator_lacks: str = "") -> Seen:
    """Run a check. If it fails with an error, the result is "not seen"."""
    try:
        checked.refuse_to_begin_late()
        as_assumed, what = observe(checked)
    except NotSeen as reason:
        return Seen(Verdict.NOT_SEEN, str(reason))
    except Exception as error:
        if checked.must_answer and not isinstance(error, AssertionError | ClientError):
            raise  # a mistake of the check, which `make verify` has to show
        return Seen(Verdict.NOT_SEEN, f"{type(error).__name__}: {error}")
    if emulator_lacks and not checked.account.is_aws:
        return Seen(Verdict.NOT_SEEN, f"an emulator: {emulator_lacks} (here: {what})")
    return Seen(Verdict.AS_ASSUMED if as_assumed else Verdict.OTHERWISE, what)


def assumes(*, assumed: str, link: str = "", emulator_lacks: str = "") -> Callable[[Observation], Callable[..., None]]:
    """Make a test, whose name is a sentence, from an observation.

    Args:
        assumed: what ticketlock relies on.
        link: the AWS page that says so; empty if none does.
        emulator_lacks: why an emulator can show nothing of it; empty if it can.
    """

    def decorate(observe: Observation) -> Callable[..., None]:
        def test(checked: Checked, request: pytest.FixtureRequest) -> None:
            seen = seen_in(checked, observe, emulator_lacks)
            sentence = request.node.name.removeprefix("test_").replace("_", " ")
            line = Line(sentence, assumed, link, seen)
            request.node.user_properties.append((LINE, _as_texts(line)))
            had_to_answer = checked.must_answer and not emulator_lacks
            if seen.verdict is Verdict.OTHERWISE or (seen.verdict is Verdict.NOT_SEEN and had_to_answer):
                pytest.fail(f"{seen.verdict}: {seen.what}", pytrace=False)
            if seen.verdict is Verdict.NOT_SEEN:
                # It shows nothing, so it must not pass; the line of the table says why, and `make aws` ends with 2.
                pytest.skip(f"not seen: {seen.what}")

        test.__module__, test.__doc__ = observe.__module__, observe.__doc__
        verify = pytest.mark.verify("deploys and waits for minutes; tests what is assumed of AWS")
        return pytest.mark.timeout(1_800)(verify(test))

    return decorate


def _as_texts(line: Line) -> list[str]:
    """A line as xdist can send it."""
    return [line.sentence, line.assumed, line.link, str(line.seen.verdict), line.seen.what]


def line_of(report: pytest.TestReport) -> Line | None:
    """The line that a check has reported."""
    for name, texts in report.user_properties:
        if name == LINE and report.when == "call" and isinstance(texts, list):
            sentence, assumed, link, verdict, what = texts
            return Line(sentence, assumed, link, Seen(Verdict(verdict), what))
    return None


_STYLES = {Verdict.AS_ASSUMED: "green", Verdict.OTHERWISE: "bold red", Verdict.NOT_SEEN: "yellow"}


def table(lines: Sequence[Line]) -> Table:
    """A table with a row for each check: its sentence and page, what is assumed, what was seen."""
    made = Table(box=box.SIMPLE_HEAD, show_lines=True)
    for name in ("", "assumed", "seen"):
        made.add_column(name, overflow="fold", ratio=1)
    for line in lines:
        seen = line.seen
        result = Text(f"{seen.verdict}: ", style=_STYLES[seen.verdict]).append(seen.what, style="default")
        assumed = Text(line.assumed)
        if line.link:
            assumed.append(f"\n{line.link}", style="dim")
        made.add_row(Text(line.sentence), assumed, result)
    return made


def summary(lines: Sequence[Line]) -> str:
    """How many of each."""
    counts = Counter(line.seen.verdict for line in lines)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)


def exit_code(lines: Sequence[Line], left: Sequence[str]) -> int:
    """0 if all is as assumed and nothing is left; 1 if something differs or is left; 2 if something was not seen."""
    verdicts = {line.seen.verdict for line in lines}
    if left or Verdict.OTHERWISE in verdicts:
        return 1
    return 0 if verdicts == {Verdict.AS_ASSUMED} else 2


# What the checks share.


def entity(what: str) -> str:
    """An unused name."""
    return f"{what}-{uuid.uuid4().hex[:8]}"


def is_refused(request: Callable[[], object]) -> bool:
    """Whether IAM refuses a request; any other error is raised."""
    try:
        request()
    except ClientError as error:
        if error.response["Error"]["Code"] in _REFUSALS:
            return True
        raise
    return False


def in_state(history: History, *names: str) -> list[Mapping[str, Any]]:
    """The events of a history that follow from entering a state."""
    by_id = {event["id"]: event for event in history}

    def entered(event: Mapping[str, Any]) -> str:
        for before in _back(by_id, event):
            if before["type"].endswith("StateEntered"):
                name: str = before["stateEnteredEventDetails"]["name"]
                return name
        return ""

    return [event for event in history if entered(event) in names]


def ends_of_parking(history: History) -> list[str]:
    """How the callback task of a waiter ended, each time: it succeeds when the waiter is woken.

    Raises:
        NotSeen: it is not in the history.
    """
    parked = in_state(history, "WaitForWakeUp", "WaitForWakeUpBriefly")
    ends = [event["type"] for event in parked if event["type"] in ("TaskSucceeded", "TaskTimedOut", "TaskFailed")]
    if not ends:
        raise NotSeen("the history has no end of the parking")
    return ends


def details(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The details of an event of any type."""
    found = [value for key, value in event.items() if key.endswith("EventDetails")]
    return found[0] if found else {}


def _back(by_id: Mapping[int, Mapping[str, Any]], event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    seen: set[int] = set()
    while event["id"] not in seen:
        seen.add(event["id"])
        yield event
        previous = by_id.get(event.get("previousEventId", 0))
        if previous is None:
            return
        event = previous
