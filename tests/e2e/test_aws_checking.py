"""`make aws`: the question before it, what counts as seen, and the exit code; no AWS account is used."""

import io
from typing import Any

import boto3
import pytest
from aws_cdk import App
from aws_cdk.assertions import Template
from botocore.exceptions import ClientError
from e2e.aws import app
from e2e.aws.account import Account, NoAccount, NotAgreed, agree, estimate_usd, own_session
from e2e.aws.app import CheckedStack
from e2e.aws.checked import ERROR, LEASE_S, Checked, Line, NotSeen, Seen, Verdict, exit_code, in_state, seen_in, summary
from e2e.aws.own_stack import RUN_TAG, OwnStack

from ticketlock import LockLost

pytestmark = pytest.mark.verify("tests no part of the product")

ID, OTHER_ID = "123456789012", "210987654321"


def account(endpoint: str = "https://sts.eu-west-1.amazonaws.com") -> Account:
    session = boto3.Session("key", "secret", region_name="eu-west-1")
    return Account(session, ID, f"arn:aws:iam::{ID}:user/me", "eu-west-1", endpoint)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def consents(
    answer: str | None = None, *, yes: bool = False, named: str | None = None, stdin: io.StringIO | None = None
) -> list[str]:
    """What is told of someone who agrees; without an answer, standard input has ended."""
    told: list[str] = []

    def ask(_question: str) -> str:
        # What is done where is told before the question.
        assert all(any(part in line for line in told) for part in (ID, "user/me", "eu-west-1", "it costs money"))
        if answer is None:
            raise EOFError
        return answer

    agree(account(), "it costs money", yes=yes, named=named, stdin=stdin or Terminal(), ask=ask, tell=told.append)
    return told


def test_the_accounts_id_typed_at_a_terminal_or_given_with_yes_is_an_agreement() -> None:
    assert consents(f" {ID}\n")
    assert consents(yes=True, named=ID, stdin=io.StringIO())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        *(({"answer": answer}, "nothing was made") for answer in ("", "y", "yes", OTHER_ID, None)),
        ({"answer": ID, "stdin": io.StringIO(ID)}, "not a terminal"),
        ({"yes": True}, "--yes needs --account"),
        ({"yes": True, "named": OTHER_ID, "answer": ID}, f"--account says {OTHER_ID}"),
        ({"yes": False, "named": OTHER_ID, "answer": ID}, f"--account says {OTHER_ID}"),
    ],
)
def test_anything_else_is_no_agreement(given: Any, why: str) -> None:
    with pytest.raises(NotAgreed, match=why):
        consents(**given)


def test_the_region_is_that_of_aws_region_or_else_the_sdks_own_and_without_one_there_is_no_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert own_session().region_name == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "")
    assert own_session().region_name == "us-east-1"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(NoAccount, match="AWS_REGION"):
        Account.of(boto3.Session("key", "secret"))


def test_more_executions_cost_more_and_the_largest_bursts_less_than_five_dollars() -> None:
    assert estimate_usd(0) < estimate_usd(400) < estimate_usd(2_000) < 5


def checked(endpoint: str = "https://sts.eu-west-1.amazonaws.com", **more: Any) -> Checked:
    where = account(endpoint)
    return Checked(where, OwnStack(where), {}, **more)


@pytest.mark.parametrize(("as_assumed", "verdict"), [(True, Verdict.AS_ASSUMED), (False, Verdict.OTHERWISE)], ids=str)
def test_a_check_that_observes_something_is_a_verdict(as_assumed: bool, verdict: Verdict) -> None:
    assert seen_in(checked(), lambda _: (as_assumed, "this")) == Seen(verdict, "this")


@pytest.mark.parametrize(
    "error",
    [
        NotSeen("waited 90 s"),
        ClientError({"Error": {"Code": "Throttling", "Message": "slow down"}}, "Scan"),
        LockLost("the lease is over"),
        AssertionError("no"),
        RuntimeError("never heard of"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_check_that_fails_with_any_error_has_seen_nothing(error: Exception) -> None:
    def fails(_: Checked) -> tuple[bool, str]:
        raise error

    assert seen_in(checked(), fails).verdict is Verdict.NOT_SEEN


@pytest.mark.parametrize("as_assumed", [True, False])
def test_what_an_emulator_lacks_is_never_seen_there(as_assumed: bool) -> None:
    def look(where: Checked) -> Seen:
        return seen_in(where, lambda _: (as_assumed, "this"), "it has no clock")

    seen = look(checked("http://127.0.0.1:4566"))
    assert (seen.verdict, "it has no clock" in seen.what) == (Verdict.NOT_SEEN, True)
    assert look(checked()).verdict is not Verdict.NOT_SEEN


def test_after_the_time_limit_of_a_run_no_check_begins_and_none_counts_as_seen() -> None:
    seen = seen_in(checked(longest_s=0.0), lambda _: pytest.fail("it began"))
    assert seen == Seen(Verdict.NOT_SEEN, "the 0 s of a run were over")


@pytest.mark.parametrize("host", ["amazonaws.com.example.org", "127.0.0.1", "notamazonaws.com"])
def test_only_hosts_of_aws_are_aws(host: str) -> None:
    assert not account(f"https://{host}").is_aws


def test_an_experiment_is_made_once_for_all_checks_that_use_it_even_if_it_fails() -> None:
    tries: list[Checked] = []

    def fails(where: Checked) -> str:
        tries.append(where)
        raise NotSeen("nothing")

    stack = checked()
    first, second = (seen_in(stack, lambda where: (True, where.once(fails))) for _ in range(2))
    assert first == second == Seen(Verdict.NOT_SEEN, "nothing")
    assert len(tries) == 1


def test_an_event_belongs_to_the_state_that_it_follows_from_and_not_to_the_one_before_it() -> None:
    def entered(id: int, previous: int, name: str) -> dict[str, object]:
        details = {"name": name}
        return {
            "id": id,
            "previousEventId": previous,
            "type": "TaskStateEntered",
            "stateEnteredEventDetails": details,
        }

    history = [
        entered(1, 0, "Work"),
        entered(2, 0, "Heartbeat"),
        {"id": 3, "previousEventId": 1, "type": "TaskScheduled"},
        {"id": 4, "previousEventId": 2, "type": "TaskScheduled"},
    ]
    assert [event["id"] for event in in_state(history, "Heartbeat")] == [2, 4]


def test_no_resource_of_the_real_stack_outlives_it_or_needs_an_account_that_may_reserve_concurrency() -> None:
    stack = CheckedStack(App(), "ticketlock-check-x", bucket="ticketlock-check-x", run="x")
    resources = Template.from_stack(stack).to_json()["Resources"]
    kept = {name for name, each in resources.items() if each.get("DeletionPolicy", "Delete") != "Delete"}
    assert kept == set()
    tables = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::DynamoDB::Table"]
    assert len(tables) == 3
    assert not [each for each in tables if "PointInTimeRecoverySpecification" in each]  # it would leave a backup
    functions = [each["Properties"] for each in resources.values() if each["Type"] == "AWS::Lambda::Function"]
    assert functions
    assert all("LoggingConfig" in each for each in functions)  # Lambda's own log groups would stay
    assert not [each for each in functions if "ReservedConcurrentExecutions" in each]


def test_the_app_has_the_constants_of_the_checks() -> None:
    assert (app.RUN_TAG, app.LEASE_S, app.ERROR) == (RUN_TAG, LEASE_S, ERROR)


def lines(*verdicts: Verdict) -> list[Line]:
    return [Line("one", "something", "", Seen(verdict, "this")) for verdict in verdicts]


@pytest.mark.parametrize(
    ("verdicts", "left", "code"),
    [
        ([Verdict.AS_ASSUMED], [], 0),
        ([Verdict.AS_ASSUMED, Verdict.NOT_SEEN], [], 2),
        ([Verdict.NOT_SEEN], [], 2),
        ([Verdict.AS_ASSUMED, Verdict.NOT_SEEN, Verdict.OTHERWISE], [], 1),
        ([Verdict.AS_ASSUMED], ["a bucket"], 1),
        ([], [], 2),
    ],
)
def test_only_all_as_assumed_and_nothing_left_is_a_success(verdicts: list[Verdict], left: list[str], code: int) -> None:
    assert exit_code(lines(*verdicts), left) == code


def test_what_was_not_seen_is_counted_apart() -> None:
    told = summary(lines(Verdict.AS_ASSUMED, Verdict.NOT_SEEN, Verdict.NOT_SEEN))
    assert told == "1 as assumed, 0 otherwise, 2 not seen"
