"""For any name of a lock, an owner or a session: an operation reaches the items of its own lock, and no others.

The test has its own definition of ownership, a function from a key to one lock, so no key belongs to two.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import assume, example, given, settings
from hypothesis import strategies as some
from kit.events import ticket_event
from security.workflows import FUNCTION

from ticketlock import Claim, Grant, InvalidLockRequest, LockName, LockTable, Position, RecordWaitExceeded
from ticketlock.locks._items import Session, lock_key, row_key
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.workflow import Workflow

pytestmark = pytest.mark.verify("all that is done to one lock, for many names")

LEASE_MS = 60_000
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:serialize:e-1"
TASK = {"functionArn": FUNCTION}
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
MOST_BYTES = {"pk": 2_048, "sk": 1_024}

Key = tuple[str, str]


def lock_of(key: Key) -> tuple[str, str]:
    """The entity and the namespace to which an item belongs; of a session the namespace is empty."""
    return key[0], key[1].partition("/")[0]


# Texts that an attacker would try.

_OF_KEYS = ["pk", "session#", EXECUTION, "serialize", "default", "now", "0" * 38, "/", "#", "a", "ab"]
_OF_EXPRESSIONS = ["holder:", "token:", ":me", "#me", ".", "*", '"', "\\", "' OR '1'='1"]
_UNUSUAL = ["😀", "e\u0301", "é", " ", "\n", "\x00", "\uffff", "\ud800"]
crafted = some.lists(some.sampled_from(_OF_KEYS + _OF_EXPRESSIONS + _UNUSUAL), max_size=4).map("".join)
long = some.tuples(
    some.sampled_from(["x", "é", "😀", "/"]), some.sampled_from([63, 64, 255, 256, 257, 512, 1_024, 1_025])
)
texts = crafted | some.text(max_size=6) | long.map(lambda pair: pair[0] * pair[1])


# As the documentation has it.
MOST_BYTES_OF = {"entity": 1_024, "namespace": 255, "owner": 1_024, "data": 256}


def is_valid(field_name: str, value: str) -> bool:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return False
    return 1 <= size <= MOST_BYTES_OF[field_name] and not (field_name == "namespace" and "/" in value)


def valid(field_name: str) -> some.SearchStrategy[str]:
    return texts.filter(lambda value: is_valid(field_name, value))


entities, namespaces, owners = valid("entity"), valid("namespace"), valid("owner")
data_of_holders = crafted.filter(lambda value: is_valid("data", value))
locks = some.builds(LockName, entities, namespaces)


@dataclass
class Watched:
    """A client of a DynamoDB in memory, and the keys of all items that it named or received.

    Attributes:
        keys: of items that were written, named or read.
        prefixes: what was queried.
        expressions: the texts of all expressions.
    """

    memory: MemoryDynamoDB
    keys: set[Key] = field(default_factory=set)
    prefixes: set[Key] = field(default_factory=set)
    expressions: set[str] = field(default_factory=set)

    @property
    def meta(self) -> Any:
        return self.memory.meta

    def __getattr__(self, operation: str) -> Any:
        def call(**parameters: Any) -> Any:
            self._see(parameters)
            try:
                reply = getattr(self.memory, operation)(**parameters)
            except ClientError as error:
                self._see(error.response)
                raise
            self._see(reply)
            return reply

        return call

    def _see(self, found: Any) -> None:
        for each in _maps(found):
            if "pk" in each and "sk" in each:
                self.keys.add((each["pk"]["S"], each["sk"]["S"]))
            if "KeyConditionExpression" in each:
                assert each["KeyConditionExpression"] == "#partition = :partition AND begins_with(#sort, :prefix)"
                values = each["ExpressionAttributeValues"]
                self.prefixes.add((values[":partition"]["S"], values[":prefix"]["S"]))
            self.expressions.update(str(each[name]) for name in each if name.endswith("Expression"))


def _maps(found: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(found, Mapping):
        yield found
        for value in found.values():
            yield from _maps(value)
    elif isinstance(found, list | tuple):
        for value in found:
            yield from _maps(value)


class Place:
    """A table in memory, and the time that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=self.clock)
        self.watched = Watched(self.memory)
        watched: Any = self.watched
        self.table = LockTable("locks", client=watched, clocks=self.clock, sleep=self.clock.sleep)
        self.table.now()
        self.watched.keys.clear()

    def items(self) -> dict[Key, Any]:
        return {(item["pk"]["S"], item["sk"]["S"]): item for item in self.memory.items()}

    def is_used(self, lock: LockName, *, shared: bool = False) -> None:
        """It has a holder, waiters, and waiters that have crashed."""
        assert isinstance(self.table.take_ticket(Claim(lock, "neighbour-1", LEASE_MS, shared=shared), None), Grant)
        for owner in ("neighbour-2", "neighbour-3"):
            assert isinstance(self.table.take_ticket(Claim(lock, owner, LEASE_MS), None), Position)

    def does_everything(self, lock: LockName, owner: str = "me", data: str | None = None) -> None:
        """Every operation, on one lock."""
        mine, last = Claim(lock, owner, LEASE_MS, data=data), Claim(lock, owner + "5", LEASE_MS)
        grant = self.table.take_ticket(mine, None)
        assert isinstance(grant, Grant)
        self.table.renew(mine, grant.fencing_token)
        self.table.set_data(mine, grant.fencing_token, "seen")
        with pytest.raises(RecordWaitExceeded):
            self.table.take_ticket(Claim(lock, owner + "2", LEASE_MS), 0)
        for dies in (3, 4):
            assert isinstance(self.table.take_ticket(Claim(lock, f"{owner}{dies}", LEASE_MS), None), Position)
        found = self.table.take_ticket(last, None)
        # The leases of the holder and of the first two waiters end: they are taken over, and swept.
        for _ in range(6):
            self.clock.advance(LEASE_MS * 0.4 / 1_000)
            if isinstance(found, Position):
                found = self.table.check_turn(last, found.place, None)
        assert isinstance(found, Grant)
        assert self.table.inspect(lock).rows == ()
        self.table.release(last, found, data_left="left")
        self.table.set_limit(lock, 2)
        again = self.table.take_ticket(mine, None)
        assert isinstance(again, Grant)
        self.table.resume(lock, owner, LEASE_MS)
        self.table.force_release(lock, again.fencing_token)
        waiter = Claim(lock, owner + "6", LEASE_MS)
        self.table.set_limit(lock, 0)
        place = self.table.take_ticket(waiter, None)
        assert isinstance(place, Position)
        assert self.table.withdraw(waiter, place.place.ticket) is None


@settings(max_examples=60)
@given(mine=locks, theirs=locks)
def test_no_operation_on_one_lock_changes_another(mine: LockName, theirs: LockName) -> None:
    assume(mine != theirs)
    place = Place()
    place.is_used(theirs)
    before = place.items()
    assert {lock_of(key) for key in before} == {(theirs.entity, theirs.namespace)}
    place.watched.keys.clear()
    place.watched.prefixes.clear()
    place.does_everything(mine)
    assert {lock_of(key) for key in place.watched.keys} == {(mine.entity, mine.namespace)}
    assert place.watched.prefixes == {(mine.entity, mine.namespace + "/")}
    assert {
        key: item for key, item in place.items().items() if lock_of(key) == (theirs.entity, theirs.namespace)
    } == before


@settings(max_examples=40)
@given(entity=entities, shorter=namespaces, more=some.text(alphabet="/0a#\x00\uffff", min_size=1, max_size=3))
def test_a_namespace_that_begins_with_another_is_another_lock(entity: str, shorter: str, more: str) -> None:
    longer = shorter + more
    if not is_valid("namespace", longer):
        with pytest.raises(InvalidLockRequest):
            LockName(entity, longer)
        return
    place = Place()
    for namespace in (shorter, longer):
        place.is_used(LockName(entity, namespace))
    for namespace in (shorter, longer):
        found = place.table.inspect(LockName(entity, namespace))
        assert found.item is not None
        assert (found.item.held, found.item.waiting, len(found.rows)) == (1, 2, 2)


@settings(max_examples=150)
@given(entity=texts, namespace=texts, owner=texts)
def test_a_name_is_refused_before_any_request_or_it_is_one_of_a_lock(entity: str, namespace: str, owner: str) -> None:
    place = Place()
    sent = len(place.memory.sent)
    allowed = is_valid("entity", entity) and is_valid("namespace", namespace) and is_valid("owner", owner)
    if allowed:
        place.table.take_ticket(Claim(LockName(entity, namespace), owner, LEASE_MS), None)
        assert {lock_of(key) for key in place.watched.keys} == {(entity, namespace)}
        return
    with pytest.raises(InvalidLockRequest):
        place.table.take_ticket(Claim(LockName(entity, namespace), owner, LEASE_MS), None)
    assert len(place.memory.sent) == sent


@settings(max_examples=100)
@given(entity=texts, namespace=texts, in_a_fragment=some.booleans())
def test_a_workflows_input_reaches_its_lock_and_its_own_session_or_nothing(
    entity: str, namespace: str, in_a_fragment: bool
) -> None:
    place = Place()
    victim = LockName("victim")
    place.is_used(victim)
    sessions = {Session(EXECUTION + "-other", "serialize").key()["pk"]["S"]}
    before, sent = place.items(), len(place.memory.sent)
    place.watched.keys.clear()
    # As it arrives: JSON has lone surrogates too.
    named = json.loads(json.dumps({"entity": entity, "namespace": namespace}))
    given_place = {"place": "Payment/4711", "workMachine": ""} if in_a_fragment else {}
    asked = ticket_event(EXECUTION, named if in_a_fragment else {**named, "task": TASK}, **given_place)
    step = Workflow(place.table).take_ticket(asked)
    # The reply can be sent with any content.
    json.dumps(step.reply, ensure_ascii=False).encode()
    status = step.reply["lock"]["turn"]["status"]
    if not (is_valid("entity", entity) and is_valid("namespace", namespace)):
        assert status == "InvalidLockRequest"
        assert len(place.memory.sent) == sent
        return
    assert status in ("granted", "parked")
    own_session = (f"session#{EXECUTION}", "")
    touched = {lock_of(key) for key in place.watched.keys}
    assert touched <= {(entity, namespace), own_session}
    assert not sessions & {pk for pk, _ in place.watched.keys}
    if (entity, namespace) != (victim.entity, victim.namespace):
        assert {key: place.items()[key] for key in before} == before


@settings(max_examples=100)
@given(lock=locks, execution=crafted, place=crafted)
def test_no_lock_has_an_item_where_a_session_is_nor_a_session_where_a_lock_is(
    lock: LockName, execution: str, place: str
) -> None:
    key = Session(execution, place).key()
    session = key["pk"]["S"], key["sk"]["S"]
    assert lock_of(session)[1] == ""
    for one in (lock_key(lock), row_key(lock, 1)):
        assert lock_of((one["pk"]["S"], one["sk"]["S"])) == (lock.entity, lock.namespace)
        assert one != key
    # And each item names its owner.
    assert Session.of_key(key) == Session(execution, place)


@settings(max_examples=60)
@given(lock=locks, ticket=some.integers(min_value=0, max_value=10**38 - 1))
@example(lock=LockName("x" * 1_024, "y" * 255), ticket=10**38 - 1)
def test_every_key_is_within_the_bounds_of_dynamodb(lock: LockName, ticket: int) -> None:
    for key in (lock_key(lock), row_key(lock, ticket)):
        for name, most in MOST_BYTES.items():
            assert 0 < len(key[name]["S"].encode()) <= most


@settings(max_examples=60)
@given(lock=locks, first=owners, second=owners, data=some.none() | data_of_holders)
def test_two_owners_of_one_lock_are_two_holders_under_any_names(
    lock: LockName, first: str, second: str, data: str | None
) -> None:
    assume(first != second)
    place = Place()
    claims = [Claim(lock, owner, LEASE_MS, shared=True, data=data) for owner in (first, second)]
    grants = [place.table.take_ticket(claim, None) for claim in claims]
    found = place.table.inspect(lock).item
    assert found is not None
    assert [(holder.owner, holder.data) for holder in found.holders] == [(first, data), (second, data)]
    assert isinstance(grants[0], Grant)
    place.table.release(claims[0], grants[0])
    left = place.table.inspect(lock).item
    assert left is not None
    assert (left.holders, left.held) == (found.holders[1:], 1)


@settings(max_examples=40)
@given(lock=locks, owner=owners.filter(lambda owner: len(owner.encode()) < 1_000), data=data_of_holders)
def test_names_and_values_never_become_part_of_an_expression(lock: LockName, owner: str, data: str) -> None:
    plain, crafted_names = Place(), Place()
    plain.does_everything(LockName("order-42"), data="x")
    crafted_names.does_everything(lock, owner, data)
    assert crafted_names.watched.expressions == plain.watched.expressions
