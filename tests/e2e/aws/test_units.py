"""Units of work on the deployed tables: commits by marks, the index of open units, crashes, and ended executions."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError
from e2e.aws.checked import Checked, NotSeen, assumes
from kit.units import MARK, Killed, Line, Loss, Lost, some_account

from ticketlock.testing import ManualClock
from ticketlock.units import Outcome, Units, unit_owner
from ticketlock.units._records._rows import OPEN

_TRANSACTIONS = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html"
_INDEXES = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html#GSI.Writes"
_EVENTS = "https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html"
_REDRIVE = "https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html"
_NO_REDRIVE = "it redrives no execution as AWS does"
# More than one transaction takes.
_MANY = 120
_AN_HOUR_S = 3_600
_INDEX_FOLLOWS_WITHIN_S = 10.0
_SAVED_WITHIN_S = 5
_STOPPED_BEFORE_S = 600


def _written(checked: Checked, count: int, balance: int) -> list[dict[str, Any]]:
    """New accounts, written by a unit; their keys."""
    keys = [some_account() for _ in range(count)]
    with checked.units.begin() as unit:
        for key in keys:
            unit.put(checked.accounts, {**key, "balance": balance})
    return keys


def _stored(checked: Checked, keys: Sequence[Mapping[str, Any]]) -> tuple[list[int], int]:
    """The balances that a plain reader finds, and how many of the accounts have a mark."""
    items = [checked.got("AccountsTableName", key["id"]) for key in keys]
    return [int(item["balance"]) for item in items], sum(MARK in item for item in items)


def _is_indexed(checked: Checked, unit: str) -> bool:
    """Whether the index has the head of a unit."""
    found = checked.dynamodb.query(
        TableName=checked.outputs["UnitsTableName"],
        IndexName=OPEN,
        KeyConditionExpression="#open = :unit",
        ExpressionAttributeNames={"#open": OPEN},
        ExpressionAttributeValues={":unit": {"S": unit}},
    )
    return bool(found["Count"])


def _seconds_until(checked: Checked, unit: str, *, is_indexed: bool) -> float:
    """How long it takes from now on until the index has the head of a unit, or has it no more."""
    began = time.monotonic()
    what = f"the index, which {'lacks' if is_indexed else 'still has'} {unit}"
    checked.wait_until(lambda: _is_indexed(checked, unit) == is_indexed, what, 2 * _INDEX_FOLLOWS_WITHIN_S)
    return time.monotonic() - began


@assumes(assumed="all are written, none has a mark, and its record is closed", link=_TRANSACTIONS)
def test_a_unit_of_more_items_than_a_transaction_takes_is_committed_by_marks(checked: Checked) -> tuple[bool, str]:
    keys = _written(checked, _MANY, 100)
    began = time.monotonic()
    with checked.units.begin() as unit:
        for key in keys:
            unit.update(checked.accounts, key, "SET balance = balance - :n", {":n": 1})
    took_s = time.monotonic() - began
    balances, marks = _stored(checked, keys)
    left_s = _seconds_until(checked, unit.id, is_indexed=False)
    right = sum(balance == 99 for balance in balances)
    what = f"{right} of {_MANY} in {took_s:.1f} s; {marks} marks; out of the index of open units within {left_s:.1f} s"
    return (right, marks) == (_MANY, 0), what


@assumes(
    assumed=f"it comes, and goes with the commit, within {_INDEX_FOLLOWS_WITHIN_S:.0f} s; nothing waits for it",
    link=_INDEXES,
)
def test_the_index_has_a_unit_while_it_is_open(checked: Checked) -> tuple[bool, str]:
    """Save a unit, and commit it later."""
    unit = checked.units.begin()
    unit.put(checked.accounts, some_account())
    id = unit.save()
    came_s = _seconds_until(checked, id, is_indexed=True)
    with checked.units.resume(id):
        pass
    left_s = _seconds_until(checked, id, is_indexed=False)
    return max(came_s, left_s) <= _INDEX_FOLLOWS_WITHIN_S, f"there within {came_s:.1f} s, gone within {left_s:.1f} s"


# The sweeper.


@dataclass(frozen=True, slots=True)
class _Crash:
    """Two accounts with 100 that a unit was about to empty, when its process was killed.

    Attributes:
        plain, by_units: the balances that a plain reader and `get_all` found afterwards.
        swept, marks: the balances, and how many marks there were, after one pass of the sweeper.
    """

    plain: Sequence[int]
    by_units: Sequence[int]
    swept: Sequence[int]
    marks: int


def _before_its_decision(checked: Checked) -> _Crash:
    return _crashed(checked, Lost.KILLED_BEFORE, 3)


def _half_finished(checked: Checked) -> _Crash:
    return _crashed(checked, Lost.KILLED_AFTER, 4)


def _crashed(checked: Checked, how: Lost, update: int) -> _Crash:
    """Kill a process an hour ago at one of its updates: two marks, the decision, two new values; then sweep."""
    keys = _written(checked, 2, 100)
    client, clock = checked.new_dynamodb(), ManualClock(int((time.time() - _AN_HOUR_S) * 1_000))
    # One request at a time: they are counted.
    client.meta.config.max_pool_connections = 1
    units = Units(checked.outputs["UnitsTableName"], client=client, clocks=clock, sleep=clock.sleep)
    accounts = units.table(checked.accounts.name)
    Line(client, clock).losses.append(Loss(how, update, update, "UpdateItem"))
    unit = units.begin(engine="marked")
    for key in keys:
        unit.update(accounts, key, "SET balance = :none", {":none": 0})
    with suppress(Killed):
        unit.commit()
    found = checked.units.get_all([(checked.accounts, key) for key in keys])
    plain, _ = _stored(checked, keys)
    _seconds_until(checked, unit.id, is_indexed=True)
    checked.invoke(checked.outputs["SweeperName"], {})
    swept, marks = _stored(checked, keys)
    return _Crash(plain, [int(item["balance"]) for item in found if item is not None], swept, marks)


@assumes(assumed="a plain reader sees one item of it, a reader by units sees both", link=_TRANSACTIONS)
def test_units_see_all_of_a_unit_that_crashed_half_finished(checked: Checked) -> tuple[bool, str]:
    """Kill a process after its decision and one of two new values."""
    crash = checked.once(_half_finished)
    what = f"100 and 100 become 0 and 0: plain {crash.plain}, by units {crash.by_units}"
    return (sorted(crash.plain), crash.by_units) == ([0, 100], [0, 0]), what


def _sweeps(crash: Callable[[Checked], _Crash], balance: int, assumed: str) -> Callable[..., None]:
    """The test that a pass of the deployed function ends a unit that crashed like this."""

    @assumes(assumed=f"{assumed}, by one invocation of the function", link=_INDEXES)
    def observe(checked: Checked) -> tuple[bool, str]:
        found = checked.once(crash)
        return (found.swept, found.marks) == ([balance] * 2, 0), f"balances {found.swept}, {found.marks} marks"

    return observe


test_the_sweeper_rolls_a_unit_back_that_crashed_before_its_decision = _sweeps(
    _before_its_decision, 100, "both accounts have their 100 again, without marks"
)
test_the_sweeper_finishes_a_unit_that_crashed_after_its_decision = _sweeps(
    _half_finished, 0, "both accounts are empty, without marks"
)


# Ended executions.


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of an execution that had saved a unit.

    Attributes:
        detail: of EventBridge's event of its end.
        rolled_back_s: from that event until the unit was rolled back.
    """

    detail: Mapping[str, Any]
    rolled_back_s: float


def _saved(checked: Checked, execution: str, redrives: int) -> str:
    """Save a unit as a function of this run does; its id."""
    unit = checked.units.begin()
    unit.put(checked.accounts, some_account())
    return unit.save(owner=unit_owner(execution, redrives))


def _over(checked: Checked, execution: str, redrives: int, unit: str) -> _Run:
    """Wait for the event of a run's end, and until the run's unit is rolled back."""
    detail = checked.ends_told(execution, redrives + 1)[-1]
    began = time.monotonic()
    checked.wait_until(
        lambda: checked.units.outcome(unit=unit).state is Outcome.ROLLED_BACK,
        f"the end of the unit of {execution}",
        60.0,
    )
    return _Run(detail, time.monotonic() - began)


def _fails(checked: Checked) -> _Run:
    arn = checked.start({"seconds": _SAVED_WITHIN_S}, checked.outputs["SavesArn"])
    return _over(checked, arn, 0, _saved(checked, arn, 0))


def _is_redriven(checked: Checked) -> _Run:
    arn = checked.start({"seconds": _STOPPED_BEFORE_S}, checked.outputs["SavesArn"])
    first = _saved(checked, arn, 0)
    checked.stop(arn)
    _over(checked, arn, 0, first)
    try:
        checked.step_functions.redrive_execution(executionArn=arn)
    except ClientError as error:
        raise NotSeen(f"it was not redriven: {error}") from error
    second = _saved(checked, arn, 1)
    checked.stop(arn)
    return _over(checked, arn, 1, second)


def _rolled_back(
    run: Callable[[Checked], _Run], status: str, link: str, emulator_lacks: str = ""
) -> Callable[..., None]:
    """The test that the event of a run's end rolls back the unit that the run has saved."""

    @assumes(assumed=f"rolled back by the event, which says {status}", link=link, emulator_lacks=emulator_lacks)
    def observe(checked: Checked) -> tuple[bool, str]:
        found = checked.once(run)
        return found.detail["status"] == status, f"{found.detail['status']}; within {found.rolled_back_s:.1f} s of it"

    return observe


test_a_unit_of_an_execution_that_fails_is_rolled_back = _rolled_back(_fails, "FAILED", _EVENTS)
test_a_unit_of_an_execution_that_was_redriven_and_stopped_is_rolled_back = _rolled_back(
    _is_redriven, "ABORTED", _REDRIVE, _NO_REDRIVE
)


@assumes(
    assumed="redriveCount 1; without it the function asks DescribeExecution", link=_EVENTS, emulator_lacks=_NO_REDRIVE
)
def test_the_event_of_a_redriven_execution_tells_its_run(checked: Checked) -> tuple[bool, str]:
    detail = checked.once(_is_redriven).detail
    told = {name: value for name, value in sorted(detail.items()) if name.startswith("redrive")}
    return detail.get("redriveCount") == 1, f"{told}; all of it: {', '.join(sorted(detail))}"
