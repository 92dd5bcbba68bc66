"""The names of locks and the arguments of a claim: what is accepted, and how others are refused."""

import datetime
import enum
import math
import numbers
import re
import uuid
from decimal import Decimal
from typing import Any

import pytest
from kit.world import Process, World
from locks.waiting_line import counts, holds, item_of, waits

from ticketlock import Claim, InvalidLockRequest, LockName
from ticketlock.locks._items import record_wait_ms
from ticketlock.locks._modes import MAX_HOLDERS
from ticketlock.locks._outcomes import MAX_LEASE_MS, MIN_LEASE_MS

ID = uuid.UUID("0a1b2c3d-0000-4000-8000-00000000002a")
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
        holds(alice, lock)
        waits(bob, lock)
    assert [counts(alice, lock) for lock in locks] == [(1, 1, 1)] * len(locks)


@pytest.mark.parametrize("entity", ENTITIES)
def test_any_text_names_an_entity(alice: Process, bob: Process, entity: str) -> None:
    lock = LockName(entity, uuid.uuid4().hex)
    token = holds(alice, lock).token
    assert item_of(bob, lock).fencing_token == token


def test_names_are_not_normalised(world: World) -> None:
    namespace = uuid.uuid4().hex
    for entity in ("e", "E", "e ", "é", "e\u0301", "E\u0301"):
        holds(world.process(), LockName(entity, namespace))


class Tea(int, enum.Enum):
    GREEN = 42


class Level(enum.IntEnum):
    HIGH = 42


class Order(str, enum.Enum):  # noqa: UP042  # its hash is not that of its value
    FIRST = "42"


class Kind(enum.Enum):
    FIRST = "42"


class Wide(int):
    """As a database's driver may have: its own text form is not its digits."""

    def __str__(self) -> str:
        return f"Wide({int(self)})"

    def __index__(self) -> int:
        return 7

    __int__ = __index__


class OfNumpy:
    """An int of numpy is no int of Python."""

    def __index__(self) -> int:
        return 42


numbers.Integral.register(OfNumpy)


@pytest.mark.parametrize(
    "entity",
    [
        42,
        Tea.GREEN,
        Level.HIGH,
        Order.FIRST,
        Wide(42),
        OfNumpy(),
        Decimal("42"),
        Decimal("42.00"),
        Decimal("4.2E+1"),
        Decimal("0.42E+2"),
    ],
    ids=lambda entity: f"{type(entity).__name__}-{entity!r}" if not isinstance(entity, OfNumpy) else "OfNumpy",
)
def test_equal_numbers_and_their_digits_name_one_entity(entity: Any) -> None:
    lock = LockName(entity)
    assert type(lock.entity) is str
    assert (lock, hash(lock)) == (LockName("42"), hash(LockName("42")))


@pytest.mark.parametrize("entity", [ID, str(ID), uuid.UUID(ID.hex), uuid.UUID(f"{{{str(ID).upper()}}}")])
def test_a_uuid_names_the_entity_of_its_usual_text(entity: Any) -> None:
    assert LockName(entity) == LockName("0a1b2c3d-0000-4000-8000-00000000002a")


def test_a_namespace_of_an_enum_is_its_value() -> None:
    assert len({LockName("a", Order.FIRST), LockName("a", "42")}) == 1


@pytest.mark.parametrize(
    ("entity", "advice"),
    [
        (None, "perhaps the object is not stored yet"),
        (True, "true and false name nothing"),
        (4.0, "int("),
        (math.nan, "a float"),
        (b"42", ".decode()"),
        (bytearray(b"42"), ".decode()"),
        (memoryview(b"42"), ".decode()"),
        (Kind.FIRST, "name.value"),
        (Decimal("4.2"), "as text"),
        (Decimal("NaN"), "as text"),
        (Decimal("sNaN"), "as text"),
        (Decimal("-Infinity"), "as text"),
        (Decimal("1E+999999"), "a Decimal"),
        (10**5_000, "fewer digits"),
        (("acme", 42), "as one text"),
        ({"id": 42}, "one of its values"),
        (datetime.date(2026, 1, 1), "isoformat()"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_names_no_entity_is_refused_with_what_to_write_instead(entity: Any, advice: str) -> None:
    allowed = "text, a whole number or a UUID of 1 to 1,024 bytes in UTF-8; "
    with pytest.raises(InvalidLockRequest, match=f"^entity is .*allowed: {allowed}.*{re.escape(advice)}"):
        LockName(entity)


# The arguments that a caller may pass, and how others are refused.


@pytest.mark.parametrize(
    ("asked", "ms"),
    [(0, 0), (0.0, 0), (-0.0, 0), (60, 60_000), (1.5, 1_500), (0.0001, 1), (0.0015, 2), (86_400 * 365, 31_536_000_000)],
)
def test_a_record_wait_is_a_number_of_seconds_rounded_up_to_milliseconds(asked: float, ms: int) -> None:
    assert record_wait_ms("recordWaitSeconds", asked) == ms


@pytest.mark.parametrize("asked", ["Infinity", math.inf])
def test_a_record_wait_may_be_unlimited(asked: object) -> None:
    assert record_wait_ms("recordWaitSeconds", asked) is None


@pytest.mark.parametrize("asked", [math.nan, -math.inf, -0.001, True, None, "60", "inf", "-Infinity", [], b"Infinity"])
def test_any_other_record_wait_is_refused_with_its_field_and_what_is_allowed(asked: object) -> None:
    with pytest.raises(InvalidLockRequest, match=r"recordWaitSeconds is .*Infinity") as refused:
        record_wait_ms("recordWaitSeconds", asked, infinity='"Infinity"')
    assert refused.value.field == "recordWaitSeconds"


@pytest.mark.parametrize("asked", [1e308, 10**400])
def test_a_record_wait_longer_than_any_execution_is_unlimited(asked: float) -> None:
    """JSON has such numbers, so a caller can send them."""
    assert record_wait_ms("recordWaitSeconds", asked) is None


AT_THE_BOUNDS = [
    ("entity", "a"),
    ("entity", "a/b#c d\n"),
    ("entity", "x" * 1_024),
    ("entity", "☃" * 341),
    ("namespace", " "),
    ("namespace", "a#b"),
    ("namespace", "x" * 255),
    ("owner", "x" * 1_024),
    ("lease_ms", MIN_LEASE_MS),
    ("lease_ms", MAX_LEASE_MS),
    ("permits", 1),
    ("permits", MAX_HOLDERS),
    ("data", None),
    ("data", "x"),
    ("data", "☃" * 341),
    ("data", "x" * 1_024),
]
BEYOND_THEM = [
    ("entity", ""),
    ("entity", "x" * 1_025),
    ("entity", "☃" * 342),
    ("entity", "\ud800"),
    *(("entity", value) for value in (None, True, 4.2, b"order-42", ["order-42"])),
    ("namespace", ""),
    ("namespace", "x" * 256),
    *(("namespace", value) for value in ("a/b", "/", "a/", "\udfff", None, 7)),
    ("owner", ""),
    ("owner", "x" * 1_025),
    ("owner", None),
    ("lease_ms", MIN_LEASE_MS - 1),
    ("lease_ms", MAX_LEASE_MS + 1),
    # They would be written into the table, and read back as another number.
    *(("lease_ms", value) for value in (math.nan, math.inf, 1_500.5, "60000", None)),
    ("permits", 0),
    ("permits", MAX_HOLDERS + 1),
    *(("permits", value) for value in (1.5, True, "1", None)),
    ("data", ""),
    ("data", "x" * 1_025),
    ("data", "☃" * 342),
    ("data", 42),
]


def claim_with(field: str, value: Any) -> Claim:
    """A claim with this value; the others are usual."""
    values: dict[str, Any] = {"entity": "order-42", "namespace": "default", "owner": "me", "lease_ms": 60_000}
    values |= {field: value}
    return Claim(LockName(values.pop("entity"), values.pop("namespace")), **values)


@pytest.mark.parametrize(("field", "value"), AT_THE_BOUNDS)
def test_a_claim_and_its_lock_may_reach_their_bounds(field: str, value: Any) -> None:
    claim = claim_with(field, value)
    assert getattr(claim.lock if field in ("entity", "namespace") else claim, field) == value


@pytest.mark.parametrize(("field", "value"), BEYOND_THEM)
def test_a_claim_or_lock_beyond_its_bounds_is_refused_by_the_name_of_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidLockRequest, match=f"^{field} is ") as refused:
        claim_with(field, value)
    assert refused.value.field == field
