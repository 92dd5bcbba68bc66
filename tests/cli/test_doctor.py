"""`ticketlock doctor`: what it finds, and that it leaves nothing behind."""

from typing import Any

import pytest
from kit.command import Command, Ended

from ticketlock.cli._doctor import table_findings
from ticketlock.locks._lock_table import LOCK_TABLE
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.testing import MemoryDynamoDB

VERIFY = pytest.mark.verify("each check is a process")


def verdicts(ended: Ended) -> dict[str, str]:
    """What was checked: how it is."""
    found = {}
    for line in ended.out.splitlines():
        verdict, what = line.partition(": ")[0].strip().split("  ")
        found[what] = verdict
    return found


def test_a_lock_table_with_all_that_it_needs_is_in_order_and_stays_as_it_was(
    command: Command, dynamodb: Any, table_name: str
) -> None:
    before = dynamodb.scan(TableName=table_name)["Items"]
    ended = command.run("doctor")
    assert (ended.exit_code, ended.err) == (0, "")
    assert set(verdicts(ended).values()) == {"ok"}
    actions = ("GetItem", "Query", "PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem", "Scan")
    assert {f"dynamodb:{action}" for action in actions} <= set(verdicts(ended))
    assert dynamodb.scan(TableName=table_name)["Items"] == before


@VERIFY
def test_a_table_with_wrong_keys_is_found_and_named_by_the_commands_that_read_it(
    command: Command, keyed_otherwise: str
) -> None:
    ended = command.run("doctor", "--table", keyed_otherwise)
    found = verdicts(ended)
    assert ended.exit_code == 78
    assert (found["table"], found["keys"], found["time to live"]) == ("ok", "BAD", "?")
    assert [what for what in found if what.startswith(("dynamodb:", "permissions"))] == ["permissions"]
    for words in (("ls",), ("show", "order-42")):
        said = command.run(*words, "--table", keyed_otherwise).err
        assert f"is '{keyed_otherwise}' a lock table? `ticketlock doctor`" in said


def test_missing_permissions_are_found_one_by_one(command: Command, denying: str) -> None:
    ended = command.run("doctor", "--endpoint-url", denying)
    found = verdicts(ended)
    assert ended.exit_code == 78
    assert ended.err == "ticketlock: 7 checks have failed\n"
    assert (found["table"], found["dynamodb:PutItem"], found["clock"]) == ("?", "BAD", "ok")


@VERIFY
def test_a_clock_that_is_far_off_is_found(command: Command, an_hour_ahead: str) -> None:
    ended = command.run("doctor", "--endpoint-url", an_hour_ahead)
    (line,) = [line for line in ended.out.splitlines() if " clock: " in line]
    # A Date has no fractions: up to a second is lost, or next to nothing.
    assert line.startswith(("BAD  clock: 35", "BAD  clock: 3600.0"))
    assert "behind the table's" in line


@pytest.mark.parametrize(
    "service", ["nobody", pytest.param("throttling", marks=VERIFY), pytest.param("web_page", marks=VERIFY)]
)
def test_an_endpoint_that_does_not_answer_as_dynamodb_does_is_not_in_order_and_nothing_else_is_checked(
    command: Command, request: pytest.FixtureRequest, service: str
) -> None:
    ended = command.run("doctor", "--endpoint-url", request.getfixturevalue(service))
    assert ended.exit_code == 69
    assert verdicts(ended) == {"versions": "ok", "endpoint": "BAD", "credentials": "ok"}
    assert ended.err == "ticketlock: the endpoint does not answer: the other checks were skipped\n"


@VERIFY
def test_an_endpoint_is_not_asked_without_credentials(command: Command) -> None:
    ended = command.run("doctor", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert ended.exit_code == 78
    assert verdicts(ended) == {"versions": "ok", "endpoint": "?", "credentials": "BAD"}


@VERIFY
def test_a_missing_table_is_found(command: Command) -> None:
    ended = command.run("doctor", "--table", "none")
    assert ended.exit_code == 78
    assert "there is no table 'none'" in ended.err
    # The locks of a table that is in use are not in a new one.
    assert "If these locks are in use, do not create a table" in ended.err


AWS, EMULATOR = "https://dynamodb.eu-west-1.amazonaws.com", "http://127.0.0.1:4566"


@pytest.mark.parametrize(
    ("endpoint", "attribute", "verdict", "says"),
    [
        (AWS, "expiresAt", "good", "on expiresAt"),
        (AWS, "until", "bad", "on until, not on expiresAt: expired items would never be deleted"),
        (AWS, None, "bad", "off: expired items would never be deleted; `ticketlock init` enables it"),
        (EMULATOR, None, "unsure", "off: an emulator may ignore the template's setting"),
    ],
)
def test_a_time_to_live_that_is_off_is_bad_unless_an_emulator_may_have_ignored_the_template(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, attribute: str | None, verdict: str, says: str
) -> None:
    memory = MemoryDynamoDB(lock_table=None)
    monkeypatch.setattr(memory.meta, "endpoint_url", endpoint)
    memory.create_table(**LOCK_TABLE.definition("locks"))
    if attribute is not None:
        wanted = {"Enabled": True, "AttributeName": attribute}
        memory.update_time_to_live(TableName="locks", TimeToLiveSpecification=wanted)
    (found,) = [each for each in table_findings(memory.client, "locks") if each.what == "time to live"]
    assert (found.verdict, found.text[: len(says)]) == (verdict, says)


def test_an_operator_without_access_to_sessions_may_read_the_time() -> None:
    assert not TIME_CHECK.key["pk"]["S"].startswith("session#")
