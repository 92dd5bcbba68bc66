"""What is logged: another's owner is named in full only in the error of a wait, a task token never.

Of functions: their log lines, their metrics, what they raise, the causes they give. Of clients and the command: what
goes to the logger. An execution's own ARN is told, so that its lines are found.
"""

import hashlib
import io
import json
import logging
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import _observed
import check_position
import clean_up
import heartbeat
import pytest
import release
import take_ticket
import wait_for_wake_up
from botocore.exceptions import ClientError
from kit.command import Command
from kit.functions import functions_over
from kit.places import Moved
from kit.step_functions import TaskService
from security.workflows import FUNCTION, LEASE_S, TARGET, Execution, Table

from ticketlock import LockClient, LockLost, LockName, RecordWaitExceeded, TableRefused
from ticketlock.locks._items import Session
from ticketlock.wire._driver import SystemClocks

pytestmark = pytest.mark.verify("reads all logs of many runs; nothing else depends on it")

ENTITY = "order-42"
REQUEST = {"entity": ENTITY, "task": {"functionArn": FUNCTION}}


class Functions:
    """The functions over a table in memory; records the output of each call with its execution."""

    def __init__(self, table: Table, lines: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
        self.table = table
        self.told: list[tuple[str, str]] = []
        self.executions: list[str] = []
        self.tokens: list[str] = []
        self._lines = lines
        self._capsys = capsys

    def execution(self) -> Execution:
        made = self.table.execution(uuid.uuid4().hex)
        self.executions.append(made.arn)
        return made

    def token(self) -> str:
        self.tokens.append(f"AQCoAAAAKgAAAAM-{uuid.uuid4().hex}-{uuid.uuid4().hex}")
        return self.tokens[-1]

    def call(self, handler: Callable[..., Any], event: Mapping[str, Any], of: Execution) -> Any:
        """Call one and record all its output, also what it raises, which Lambda logs."""
        reply = raised = None
        try:
            reply = handler(event, None)
        except Exception as error:
            raised = error
            self.told.append((of.arn, "".join(traceback.format_exception(error))))
        self.told += [(of.arn, line) for line in self._lines.getvalue().splitlines()]
        self._lines.seek(0)
        self._lines.truncate()
        self.told += [(of.arn, line) for line in self._capsys.readouterr().out.splitlines()]
        turn = (reply or {}).get("lock", {}).get("turn", reply) or {}
        self.told.append((of.arn, str(turn.get("cause", ""))))
        self.told += [(of.arn, answer.cause) for answer in self.table.tasks.answers if answer.cause is not None]
        self.table.tasks.answers.clear()
        return raised if raised is not None else reply

    # The steps.

    def takes_ticket(self, of: Execution, request: Any = None, **more: Any) -> Any:
        asked = of.ticket_event(request if request is not None else REQUEST, **more)
        reply = self.call(take_ticket.handler, asked, of)
        of.turn = reply["lock"]["turn"]
        return of.turn["status"]

    def parks(self, of: Execution) -> Any:
        return self.call(wait_for_wake_up.handler, of.event("WaitForWakeUp", self.token()), of)

    def polls(self, of: Execution) -> Any:
        of.turn = self.call(check_position.handler, of.event("CheckPosition"), of)
        return of.turn["status"]

    def beats(self, of: Execution, retry: int = 0) -> Any:
        return self.call(heartbeat.handler, of.event("Heartbeat", self.token(), retry), of)

    def releases(self, of: Execution, **failure: Any) -> Any:
        return self.call(release.handler, of.event("Release") | failure, of)

    def cleans_up_after(self, of: Execution) -> Any:
        return self.call(clean_up.handler, of.end_event(REQUEST), of)

    # What no log may contain.

    def secrets_told(self) -> list[str]:
        """Other owners and task tokens in what was logged, returned or raised."""
        return [
            text
            for execution, text in self.told
            for secret in (*(each for each in self.executions if each != execution), *self.tokens)
            if secret in text
        ]


@pytest.fixture
def functions(capsys: pytest.CaptureFixture[str]) -> Iterator[Functions]:
    table = Table(SystemClocks())
    with functions_over(lease_s=LEASE_S, level="DEBUG") as lines:
        over = _observed.workflow()._table
        table.memory.serve(over.client)
        table.tasks.serve(over._clients["stepfunctions"])
        yield Functions(table, lines, capsys)


def test_the_functions_log_no_other_owner_and_no_task_token(functions: Functions) -> None:
    holder, waiter, third, in_a_fragment = (functions.execution() for _ in range(4))
    assert functions.takes_ticket(holder) == "granted"
    functions.beats(holder)
    for each in (waiter, third):
        assert functions.takes_ticket(each) == "parked"
        functions.parks(each)
        assert functions.polls(each) == "parked"
    fragment = {"entity": ENTITY}
    assert functions.takes_ticket(in_a_fragment, fragment, workMachine="", place=f"Payment/{uuid.uuid4()}") == "parked"
    functions.beats(holder, retry=1)
    functions.releases(holder)
    functions.beats(holder, retry=2)
    assert functions.polls(waiter) == "granted"
    functions.cleans_up_after(third)
    functions.cleans_up_after(waiter)
    hashed = hashlib.sha256(holder.arn.encode()).hexdigest()[:8]
    assert any(f'"{hashed}"' in text for execution, text in functions.told if execution == waiter.arn)
    assert {execution for execution, text in functions.told if execution in text} == set(functions.executions)
    assert functions.secrets_told() == []


@pytest.mark.parametrize("step", [Functions.beats, Functions.releases])
def test_a_step_that_finds_its_lease_lost_logs_no_other_owner_and_no_task_token(
    functions: Functions, step: Callable[[Functions, Execution], Any]
) -> None:
    holder, thief = functions.execution(), functions.execution()
    functions.takes_ticket(holder)
    functions.beats(holder)
    operator = _observed.workflow()._table
    operator.force_release(LockName(ENTITY), holder.turn["grant"]["fencingToken"])
    assert functions.takes_ticket(thief) == "granted"
    # Long ago, as far as its turn and its session know.
    holder.turn = {**holder.turn, "grant": {**holder.turn["grant"], "leaseUntilMs": 1}}
    functions.table.memory.update_item(
        TableName="locks",
        Key=Session(holder.arn, "serialize").key(),
        UpdateExpression="SET leaseUntilMs = :long_ago",
        ExpressionAttributeValues={":long_ago": {"N": "1"}},
    )
    told = len(functions.told)
    step(functions, holder)
    assert any("LostLeases" in text for _, text in functions.told[told:])
    assert functions.secrets_told() == []


def test_the_release_after_failed_or_unended_work_logs_no_other_owner_and_no_task_token(functions: Functions) -> None:
    for failure in ({"Error": "OutOfPaint", "Cause": "{}"}, {"Error": "States.Timeout", "Cause": ""}):
        holder = functions.execution()
        functions.takes_ticket(holder, {"entity": holder.arn[-8:], "task": {"functionArn": FUNCTION}})
        functions.beats(holder)
        functions.releases(holder, failure=failure, kind="function", work=FUNCTION)
    assert functions.secrets_told() == []


def test_another_number_of_permits_is_refused_without_a_word_of_the_holder(functions: Functions) -> None:
    functions.takes_ticket(functions.execution())
    assert functions.takes_ticket(functions.execution(), {**REQUEST, "permits": 2}) == "PermitsMismatch"
    assert functions.secrets_told() == []


def test_a_record_wait_that_ends_names_the_holder_in_the_cause_of_its_execution_and_nowhere_else(
    functions: Functions,
) -> None:
    holder, waiter = functions.execution(), functions.execution()
    functions.takes_ticket(holder)
    assert functions.takes_ticket(waiter, {**REQUEST, "recordWaitSeconds": 0}) == "RecordWaitExceeded"
    assert f'held by "{holder.arn}" since ' in waiter.turn["cause"]
    assert functions.secrets_told() == [waiter.turn["cause"]]


def test_a_refused_request_is_logged_without_its_text(functions: Functions) -> None:
    """Its cause quotes the caller's own values, but not a lock that another workflow has added to the input."""
    holder = functions.execution()
    functions.takes_ticket(holder)
    foreign = {"owner": holder.arn, "taskToken": functions.token()}
    task = {"functionArn": FUNCTION}
    forwarded = {"entity": ENTITY, "task": {**task, "input": {"lock": foreign}}}
    assert functions.takes_ticket(functions.execution(), forwarded) == "InvalidLockRequest"
    assert functions.secrets_told() == []
    for request in (
        foreign,
        json.dumps(foreign),
        {"entity": foreign, "task": task},
        {"entity": ENTITY, "task": task, "lock": foreign},
        {"entity": ENTITY, "task": task, holder.arn: 1},
        {"entity": ENTITY, "task": {**task, "stateMachineArn": TARGET, "input": foreign}},
        {"entity": ENTITY, "task": {"functionArn": holder.arn}},
    ):
        told = len(functions.told)
        status = functions.takes_ticket(functions.execution(), request)
        assert status in ("InvalidLockRequest", "TaskNotAllowed")
        logged = [text for _, text in functions.told[told:] if text.startswith("{") and '"level"' in text]
        assert [json.loads(line)["refused"] for line in logged] == [status]
        assert [secret for secret in (holder.arn, *functions.tokens) for line in logged if secret in line] == []


def test_a_token_that_the_service_quotes_in_its_refusal_is_not_logged(functions: Functions) -> None:
    """As it does of parameters that it finds invalid."""
    holder = functions.execution()
    functions.takes_ticket(holder)
    functions.beats(holder)
    functions.table.tasks.quotes = True
    raised = functions.releases(holder)
    assert isinstance(raised, TableRefused)
    assert "Value '...' at 'taskToken'" in str(raised)
    functions.beats(holder, retry=1)
    assert functions.secrets_told() == []


def test_a_refusal_that_quotes_a_token_is_the_sdks_own_error() -> None:
    with pytest.raises(ClientError, match="Value 'a token' at 'taskToken'"):
        TaskService(quotes=True).client().send_task_success(taskToken="a token", output="{}")


# Clients.

OWNERS = HOLDER, NEXT, STRANGER = [f"host-{name}.example:4711/{uuid.uuid4().hex}" for name in ("a", "b", "c")]


def test_a_client_logs_no_owner(moved: Moved, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="ticketlock")
    first, second = moved.client(owner_name="host-a.example"), moved.client(owner_name="host-b.example")
    held = first.acquire(ENTITY, owner=HOLDER, data="build 4711")
    with pytest.raises(RecordWaitExceeded) as in_vain:
        second.acquire(ENTITY, owner=NEXT, record_wait=0)
    with moved.time_flies(), pytest.raises(RecordWaitExceeded) as too_long:
        second.acquire(ENTITY, owner=NEXT, record_wait=2)
    moved.lose(ENTITY)
    taken = second.acquire(ENTITY, owner=NEXT)
    with pytest.raises(LockLost) as lost:
        held.renew()
    with pytest.raises(LockLost) as stolen:
        first.resume(ENTITY, owner=STRANGER)
    taken.release(data_left="done")
    told = [record.getMessage() for record in caplog.records]
    told += [record.exc_text or "" for record in caplog.records]
    assert any("is lost" in text for text in told)
    assert any("waiting for" in text for text in told)
    told += ["".join(traceback.format_exception(lost.value))]
    assert [text for text in told for owner in OWNERS if owner in text] == []
    # The error of a wait names the holder to the caller that waited.
    assert all([owner for owner, _, _ in each.value.holders] == [HOLDER] for each in (in_vain, too_long))
    # That of a call that names an owner may name it again.
    assert [owner for owner in (HOLDER, NEXT) if owner in str(stolen.value)] == []


def test_the_command_names_the_holder_to_its_user_and_in_no_log_line(
    command: Command, locks: LockClient, entity: str
) -> None:
    with locks.acquire(entity, owner=HOLDER):
        waited = command.run("-v", "run", entity, "--wait", "1", "--", "true")
        shown = command.run("-v", "show", entity)
    assert waited.exit_code == 75
    *logged, error = waited.err.splitlines()
    assert any("waiting for" in line for line in logged)
    assert HOLDER in error
    assert [line for line in logged if HOLDER in line] == []
    assert HOLDER in shown.out
    assert HOLDER not in shown.err
