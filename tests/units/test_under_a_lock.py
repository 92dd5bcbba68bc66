"""A unit under a lock, or in a workflow's task, is committed only while its lock is held with that fencing token."""

import enum
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from kit.events import turn_of
from kit.units import Books, Key, Lost, Party, UnitsWorld, some_name

from ticketlock import Fence, Lease, LockClient, LockTable
from ticketlock.errors import InvalidLockRequest, InvalidUnitRequest, LockLost, OutcomeUnknown, UnitConflict
from ticketlock.units import Outcome, Unit, unit_name
from ticketlock.workflow import Workflow

pytestmark = pytest.mark.shows("unit under a lock", "state that writes once")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}

LEASE_S = 60

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:charge"

STATE = "InvokeFunction"
"""The state of the workflow that calls the function."""


@pytest.fixture
def locks_table(books: Books) -> str:
    return books.engine.table_name


@pytest.fixture
def locks(units_world: UnitsWorld) -> LockClient:
    return units_world.locks()


@pytest.fixture(params=["a lease", "a fence"])
def held(request: pytest.FixtureRequest) -> Lease | Fence:
    """A held lock: by a client, and by a workflow for its task."""
    found: Lease | Fence = request.getfixturevalue(request.param.removeprefix("a "))
    return found


@pytest.fixture
def lease(locks: LockClient) -> Lease:
    return locks.acquire(some_name())


@pytest.fixture(params=[None, "marked"])
def unit(request: pytest.FixtureRequest, ann: Party, held: Lease | Fence, account: Key) -> Unit:
    """Under the lock; it takes ten from the account."""
    unit = ann.begin(under=held, engine=request.param)
    unit.update(ann.accounts, account, TAKE, TEN)
    return unit


def test_a_unit_is_committed_while_its_lock_is_held(books: Books, unit: Unit, account: Key) -> None:
    unit.commit()
    assert books.balance(account) == 90


@pytest.mark.parametrize("is_held_again", [False, True], ids=["released by force", "held by another owner since"])
def test_nothing_is_written_by_a_unit_whose_lock_was_lost(
    books: Books,
    units_world: UnitsWorld,
    locks_table: str,
    held: Lease | Fence,
    unit: Unit,
    account: Key,
    is_held_again: bool,
) -> None:
    LockTable(locks_table, client=books.client()).force_release(held.lock, held.fencing_token)
    if is_held_again:
        units_world.locks().acquire(held.lock.entity)
    with pytest.raises(LockLost, match=f"by the table {locks_table}: nothing was written"):
        unit.commit()
    assert books.balance(account) == 100


@pytest.mark.parametrize(("is_lost", "error"), [(True, LockLost), (False, UnitConflict)])
def test_a_lost_lock_is_reported_before_a_conflict_and_a_conflict_while_it_is_held(
    books: Books, ann: Party, ben: Party, lease: Lease, account: Key, is_lost: bool, error: type[Exception]
) -> None:
    unit = ann.begin(under=lease)
    unit.update(ann.accounts, account, TAKE, TEN)
    ben.changes(account, 55)
    if is_lost:
        lease.release()
    with pytest.raises(error):
        unit.commit()
    assert books.balance(account) == 55


def test_a_unit_that_only_reads_commits_under_its_lock_too(ann: Party, lease: Lease, account: Key) -> None:
    unit = ann.begin(under=lease)
    unit.get(ann.accounts, account)
    lease.release()
    with pytest.raises(LockLost):
        unit.commit()


@pytest.fixture
def event(units_world: UnitsWorld, locks_table: str) -> Mapping[str, Any]:
    """The input of the task of a workflow that has just acquired a lock, over the wire."""
    books = units_world.books
    workflow = Workflow(LockTable(locks_table, client=books.client(), clocks=books.clock))
    execution = f"arn:aws:states:us-east-1:123456789012:execution:serialize:{some_name()}"
    asked: dict[str, Any] = {"entity": some_name(), "task": {"functionArn": FUNCTION, "input": {"amount": 10}}}
    turn = turn_of(workflow, execution, asked, targets=[FUNCTION], handOver="poll")
    assert turn["status"] == "granted"
    handed: Mapping[str, Any] = json.loads(json.dumps({**asked["task"]["input"], **turn["work"]}))
    return handed


@pytest.fixture
def fence(event: Mapping[str, Any], locks_table: str) -> Fence:
    return Fence(event["lock"], locks_table)


def charge(party: Party, account: Key, **terms: Any) -> None:
    """What the task does."""
    with party.begin(**terms) as unit:
        unit.update(party.accounts, account, TAKE, TEN)


@pytest.mark.parametrize("is_named", [False, True], ids=["unnamed", "named"])
def test_nothing_is_written_by_a_late_task_of_an_earlier_grant_of_the_same_execution_and_its_name_is_left_to_the_next(
    books: Books,
    units_world: UnitsWorld,
    ann: Party,
    event: Mapping[str, Any],
    locks_table: str,
    account: Key,
    is_named: bool,
) -> None:
    fence, locks = Fence(event["lock"], locks_table), units_world.locks()
    name = unit_name(fence.owner, STATE) if is_named else None
    books.clock.advance(2 * LEASE_S)
    locks.acquire(fence.lock.entity, owner=some_name()).release()
    again = locks.acquire(fence.lock.entity, owner=fence.owner)
    with pytest.raises(LockLost):
        charge(ann, account, under=fence, name=name)
    if name is not None:
        assert books.receipt(name) is None
    charge(ann, account, under=Fence({**event["lock"], "fencingToken": again.fencing_token}, locks_table), name=name)
    assert books.balance(account) == 90


FORGED: Mapping[str, Any] = {
    "entity": "an-entity-without-a-holder",
    "namespace": "another",
    "owner": "arn:aws:states:us-east-1:123456789012:execution:serialize:another",
    "fencingToken": 1,
}


@pytest.mark.parametrize("field", FORGED)
def test_a_forged_lock_commits_nothing(
    books: Books, ann: Party, event: Mapping[str, Any], locks_table: str, account: Key, field: str
) -> None:
    forged = Fence({**event["lock"], field: FORGED[field]}, locks_table)
    with pytest.raises(LockLost):
        charge(ann, account, under=forged)
    assert books.balance(account) == 100


def test_of_all_tries_of_a_state_one_is_committed(books: Books, ann: Party, fence: Fence, account: Key) -> None:
    for _ in range(5):
        charge(ann, account, under=fence, name=unit_name(fence.owner, STATE))
    assert books.balance(account) == 90


def test_a_try_after_a_lost_reply_ends_well_though_the_lock_is_lost_since(
    books: Books, units_world: UnitsWorld, ann: Party, ben: Party, fence: Fence, account: Key
) -> None:
    name = unit_name(fence.owner, STATE)
    ann.loses(Lost.REPLY, 1, float("inf"), "TransactWriteItems")
    # The receipt cannot be read either: the task fails, and its commit remains.
    ann.loses(Lost.NOT_SENT, 3, float("inf"), "GetItem")
    with pytest.raises(OutcomeUnknown):
        charge(ann, account, under=fence, name=name)
    books.clock.advance(2 * LEASE_S)
    with units_world.locks().acquire(fence.lock.entity):
        charge(ben, account, under=fence, name=name)
    assert books.balance(account) == 90
    assert ben.units.outcome(name=name).state is Outcome.COMMITTED


def test_a_fence_sends_nothing_but_its_check_within_the_commit(
    books: Books, ann: Party, fence: Fence, account: Key
) -> None:
    assert ann.sends(lambda: charge(ann, account, under=fence)) == ["GetItem", "TransactWriteItems"]
    [*_, check] = ann.line.sent[-1].parameters["TransactItems"]
    assert check == fence.condition_check()
    assert books.balance(account) == 90


WHOLE: Mapping[str, Any] = {"entity": "e", "namespace": "n", "owner": "o", "fencingToken": 7}


@pytest.mark.parametrize("missing", WHOLE)
def test_a_field_that_is_missing_in_a_lock_is_named(missing: str) -> None:
    lock = {name: value for name, value in WHOLE.items() if name != missing}
    with pytest.raises(InvalidLockRequest, match=rf"^lock is .*; {missing} is missing$"):
        Fence(lock, "locks")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("entity", ""),
        ("entity", 7.0),
        ("entity", "x" * 1_025),
        ("namespace", "a/b"),
        ("namespace", None),
        ("owner", ""),
        ("owner", {"arn": "o"}),
        ("fencingToken", "7"),
        ("fencingToken", True),
        ("fencingToken", 0),
        ("fencingToken", 7.0),
        ("fencingToken", 10**39),
    ],
)
def test_a_field_that_is_malformed_in_a_lock_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=rf"^lock\.{field} is ") as raised:
        Fence({**WHOLE, field: value}, "locks")
    assert raised.value.field == f"lock.{field}"


@pytest.mark.parametrize("lock", [None, "order-42", ["order-42"], 7])
def test_a_lock_that_is_no_object_is_named(lock: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^lock is .*as the workflow passes it to its task"):
        Fence(lock, "locks")


@pytest.mark.parametrize("table", ["", None, 7])
def test_a_table_of_locks_without_a_name_is_named(table: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^table_name is "):
        Fence(WHOLE, table)


def test_a_fence_shows_neither_owner_nor_table_nor_what_a_later_version_adds_to_a_lock() -> None:
    assert repr(Fence({**WHOLE, "since": 1}, "locks")) == "Fence(entity='e', namespace='n', fencing_token=7)"


def test_the_check_of_a_fence_is_that_of_the_lease(lease: Lease, locks_table: str) -> None:
    names = {"entity": "entity", "namespace": "namespace", "owner": "owner", "fencingToken": "fencing_token"}
    fence = Fence({field: getattr(lease, name) for field, name in names.items()}, locks_table)
    for native in (False, True):
        assert fence.condition_check(native=native) == lease.condition_check(native=native)


ARN = "arn:aws:states:us-east-1:123456789012:execution:transfer:e-1"


def test_no_two_places_share_the_name_of_a_unit() -> None:
    places: list[tuple[Any, ...]] = [
        (ARN, "Move"),
        (ARN, "Move", 0),
        (ARN, "Move", 1),
        (ARN, "Move", "1", "0"),
        (ARN, "Move", "10"),
        (ARN, 'Move","0'),
        (ARN, "Move", ""),
        (ARN, "Undo"),
        (f"{ARN}2", "Move"),
    ]
    assert len({unit_name(*place) for place in places}) == len(places)


class Item(int, enum.Enum):
    SEVENTH = 7


def test_the_name_of_a_unit_is_the_same_at_each_retry_and_of_a_number_and_its_digits() -> None:
    assert unit_name(ARN, "Move", 7) == unit_name(ARN, "Move", 7) == unit_name(ARN, "Move", "7")
    assert unit_name(ARN, "Move", Decimal(7), Item.SEVENTH) == unit_name(ARN, "Move", 7, 7)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("execution", ("Move", ARN)),
        ("execution", (None, "Move")),
        ("execution", ("", "Move")),
        ("state", (ARN, "")),
        ("state", (ARN, None)),
        (r"item\[1\]", (ARN, "Move", 1, None)),
        (r"item\[0\]", (ARN, "Move", True)),
        (r"item\[0\]", (ARN, "Move", 1.5)),
        ("name", (ARN, "Move", "x" * 1_024)),
        ("name", (ARN, "Move", "\ud800")),
    ],
)
def test_what_makes_no_name_of_a_unit_is_named(field: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidUnitRequest, match=f"^{field} is "):
        unit_name(*given)


def test_the_longest_execution_and_state_leave_room_for_an_item() -> None:
    # https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
    arn = f"arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:{'m' * 80}:{'e' * 80}"
    assert unit_name(arn, "\U0001f600" * 80, "\U0001f600" * 80)
