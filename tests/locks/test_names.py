"""The names of locks and the arguments of a claim: what is accepted, and how others are refused."""

import math
import uuid
from typing import Any

import pytest
from kit.world import Process, World

from ticketlock import Claim, InvalidLockRequest, LockName
from ticketlock.locks._items import record_wait_ms
from ticketlock.locks._modes import MAX_HOLDERS
from ticketlock.locks._outcomes import MAX_LEASE_MS, MIN_LEASE_MS

NAMESPACES = ["a", "ab", "a-b", "a.b", "a b", "a!", "default"]
ENTITIES = [
    "order/42",
    "#",
    "/",
    "session#arn:aws:states:::execution:m:1",
    "ÅÅ",
    "é",
    "e\u0301",
    " ",
    "\x00",
    "😀" * 256,
]


def test_namespaces_on_one_entity_never_touch_each_other(alice: Process, bob: Process) -> None:
    entity = f"entity-{uuid.uuid4().hex}"
    locks = [LockName(entity, namespace) for namespace in NAMESPACES]
    for lock in locks:
        alice.granted(alice.claim(lock))
        bob.queued(bob.claim(lock))
    for lock in locks:
        state = alice.table.inspect(lock)
        assert state.item is not None
        assert (state.item.held, state.item.waiting, len(state.rows)) == (1, 1, 1)


@pytest.mark.parametrize("entity", ENTITIES)
def test_any_text_names_an_entity(alice: Process, bob: Process, entity: str) -> None:
    lock = LockName(entity, uuid.uuid4().hex)
    grant = alice.granted(alice.claim(lock))
    state = bob.table.inspect(lock)
    assert state.item is not None
    assert state.item.fencing_token == grant.fencing_token


def test_names_are_not_normalised(world: World) -> None:
    namespace = uuid.uuid4().hex
    for entity in ("e", "E", "e ", "é", "e\u0301", "E\u0301"):
        process = world.process()
        process.granted(process.claim(LockName(entity, namespace)))


# The arguments that a caller may pass, and how others are refused.


LOCK = LockName("order-42")


@pytest.mark.parametrize(
    ("asked", "ms"),
    [(0, 0), (0.0, 0), (-0.0, 0), (60, 60_000), (1.5, 1_500), (0.0001, 1), (0.0015, 2), (86_400 * 365, 31_536_000_000)],
)
def test_a_record_wait_is_a_number_of_seconds_rounded_up_to_milliseconds(asked: float, ms: int) -> None:
    assert record_wait_ms("recordWaitSeconds", asked) == ms


@pytest.mark.parametrize("asked", ["Infinity", math.inf])
def test_a_record_wait_may_be_unlimited(asked: object) -> None:
    assert record_wait_ms("recordWaitSeconds", asked) is None


@pytest.mark.parametrize(
    "asked",
    [
        math.nan,
        -math.inf,
        -1,
        -0.001,
        True,
        False,
        None,
        "",
        "60",
        "infinity",
        "inf",
        "-Infinity",
        "NaN",
        [],
        {},
        b"Infinity",
    ],
)
def test_any_other_record_wait_is_refused_with_its_field_and_what_is_allowed(asked: object) -> None:
    with pytest.raises(InvalidLockRequest, match=r"recordWaitSeconds is .*Infinity") as refused:
        record_wait_ms("recordWaitSeconds", asked, infinity='"Infinity"')
    assert refused.value.field == "recordWaitSeconds"


@pytest.mark.parametrize("asked", [1e308, 10**400])
def test_a_record_wait_longer_than_any_execution_is_unlimited(asked: float) -> None:
    """JSON has such numbers, so a caller can send them."""
    assert record_wait_ms("recordWaitSeconds", asked) is None


@pytest.mark.parametrize("entity", ["a", "Ünïcode ☃", "a/b#c d\n", "x" * 1_024, "☃" * 341, "\x00"])
def test_an_entity_is_any_text_of_up_to_1024_bytes(entity: str) -> None:
    assert LockName(entity).entity == entity


@pytest.mark.parametrize(
    "entity", ["", "x" * 1_025, "é" * 513, "☃" * 342, "\ud800", None, 42, True, b"order-42", ["order-42"]]
)
def test_any_other_entity_is_refused_by_name(entity: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^entity is .*1 to 1,024 bytes"):
        LockName(entity)


@pytest.mark.parametrize("namespace", ["default", " ", "a#b", "x" * 255])
def test_a_namespace_is_any_text_of_up_to_255_bytes_without_a_slash(namespace: str) -> None:
    assert LockName("order-42", namespace).namespace == namespace


@pytest.mark.parametrize("namespace", ["", "x" * 256, "a/b", "/", "a/", "\udfff", None, 7, True, b"a", ["a"]])
def test_any_other_namespace_is_refused_by_name(namespace: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^namespace is "):
        LockName("order-42", namespace)


@pytest.mark.parametrize("lease_ms", [MIN_LEASE_MS, MAX_LEASE_MS])
@pytest.mark.parametrize("permits", [1, MAX_HOLDERS])
@pytest.mark.parametrize("data", [None, "x", "☃" * 85, "x" * 256])
def test_a_claim_may_reach_its_bounds(lease_ms: int, permits: int, data: str | None) -> None:
    claim = Claim(LOCK, "x" * 1_024, lease_ms, permits, data)
    assert (claim.lease_ms, claim.permits, claim.data) == (lease_ms, permits, data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner", ""),
        ("owner", "x" * 1_025),
        ("owner", None),
        ("owner", "\ud800"),
        ("lease_ms", MIN_LEASE_MS - 1),
        ("lease_ms", MAX_LEASE_MS + 1),
        ("lease_ms", 0),
        ("lease_ms", -60_000),
        ("lease_ms", math.nan),
        ("lease_ms", math.inf),
        ("permits", 0),
        ("permits", -1),
        ("permits", MAX_HOLDERS + 1),
        ("data", ""),
        ("data", "x" * 257),
        ("data", "☃" * 86),
        ("data", 42),
    ],
)
def test_a_claim_beyond_its_bounds_is_refused_by_the_name_of_the_field(field: str, value: object) -> None:
    asked: dict[str, Any] = {"owner": "me", "lease_ms": 60_000, field: value}
    with pytest.raises(InvalidLockRequest, match=f"^{field} is ") as refused:
        Claim(LOCK, **asked)
    assert refused.value.field == field


@pytest.mark.parametrize("value", [1_500.5, "60000", None])
def test_a_lease_that_is_not_a_whole_number_is_refused(value: Any) -> None:
    """It would be written into the table, and read back as another number."""
    with pytest.raises(InvalidLockRequest, match=r"^lease_ms is "):
        Claim(LOCK, "me", value)


@pytest.mark.parametrize("value", [1.5, True, "1", None])
def test_a_number_of_permits_that_is_not_a_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=r"^permits is "):
        Claim(LOCK, "me", 60_000, value)
