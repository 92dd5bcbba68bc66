"""A unit with a name keeps the result of its call in its commit, for everyone who repeats it."""

from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from math import ceil
from typing import Any

import pytest
from kit.capacity import item_bytes
from kit.crashes import crashes
from kit.units import THREADS_ONLY, Books, Key, Killed, Lost, Party, some_name
from units.golden_rows import empty_books, golden, party

from ticketlock.errors import InvalidUnitRequest, OutcomeUnknown, UnitFinished, UnsupportedFormat
from ticketlock.units import READ_LOCK, Outcome, Unit, UnitOutcome
from ticketlock.units._records._results import MOST_RESULT_BYTES

pytestmark = pytest.mark.shows("exactly once")

TAKE, TEN = "SET balance = balance - :n", {":n": 10}
COMMIT = "TransactWriteItems"
ENGINES = pytest.mark.parametrize("engine", [None, "marked"], ids=["native", "marked"])

KEPT: dict[str, Any] = {
    "an object": {"left": 90, "rate": 0.1, "tags": ["a", "ä", None, True], "deep": {"": [[]]}},
    "text": "{}",
    "a large number": 10**40,
    "false": False,
    "an empty list": [],
    "a decimal": Decimal("0.10"),
    "an item": {"balance": Decimal(5), "n": 5, "set": {"a", "b"}, "none": None},
    "bytes": b"\x00\xff",
}


DEEP: list[Any] = []
"""Deeper than Python follows."""
for _ in range(10_000):
    DEEP = [DEEP]


def takes_ten(given: Party, account: Key, result: Any, **terms: Any) -> Unit:
    """A unit of which all is stated, with a result."""
    unit = given.begin(**terms)
    unit.update(given.accounts, account, TAKE, TEN)
    unit.result = result
    return unit


def told(given: Party, name: str) -> Any:
    """What a unit of that name is told, which does not commit anything more."""
    with given.begin(name=name) as unit:
        assert unit.repeated
        unit.result = "of another try"
    return unit.result


@ENGINES
@pytest.mark.parametrize("which", KEPT)
def test_a_repeated_unit_has_the_result_of_the_first_one_which_its_outcome_tells_too(
    books: Books, ann: Party, ben: Party, account: Key, which: str, engine: str | None
) -> None:
    name, result = some_name(), KEPT[which]
    takes_ten(ann, account, result, name=name, engine=engine).commit()
    assert [told(ben, name), told(ann, name)] == [result, result]
    assert ben.units.outcome(name=name) == UnitOutcome(Outcome.COMMITTED, result)
    assert books.balance(account) == 90


def test_json_comes_back_in_its_own_types_and_other_values_in_those_of_boto3(ann: Party, account: Key) -> None:
    name, other = some_name(), some_name()
    takes_ten(ann, account, {"n": 5, "x": 0.5}, name=name).commit()
    takes_ten(ann, account, {"n": 5, "x": Decimal("0.5")}, name=other).commit()
    assert [[type(each) for each in told(ann, which).values()] for which in (name, other)] == [
        [int, float],
        [Decimal, Decimal],
    ]


@ENGINES
@pytest.mark.parametrize("size", [MOST_RESULT_BYTES - 1, MOST_RESULT_BYTES, MOST_RESULT_BYTES + 1])
@pytest.mark.parametrize("made", [lambda size: "x" * (size - 2), lambda size: b"x" * size], ids=["JSON", "bytes"])
def test_a_result_of_8_kilobytes_is_kept_and_a_larger_one_is_refused_before_anything_is_written(
    books: Books, ann: Party, account: Key, made: Callable[[int], Any], size: int, engine: str | None
) -> None:
    name, result, is_kept = some_name(), made(size), size <= MOST_RESULT_BYTES
    before = books.everything()

    def takes_ten_in_a_block() -> None:
        with ann.begin(name=name, engine=engine) as unit:
            unit.update(ann.accounts, account, TAKE, TEN)
            unit.result = result

    with nullcontext() if is_kept else pytest.raises(InvalidUnitRequest, match=r"^the result has 8,193 bytes"):
        takes_ten_in_a_block()
    if is_kept:
        assert told(ann, name) == result
    else:
        assert books.everything() == before


@pytest.mark.parametrize(
    "result",
    [
        (1, 2),
        {"deep": [(1,)]},
        {1: "a number"},
        object(),
        float("nan"),
        [0.5, Decimal(1)],
        # boto3 writes it with 39 digits, and refuses to read those.
        Decimal("1E+38"),
        set(),
        "\ud800",
        DEEP,
    ],
    ids=[
        "a tuple",
        "one in it",
        "a key",
        "an object",
        "no number",
        "both kinds",
        "39 digits",
        "an empty set",
        "half a sign",
        "deep",
    ],
)
def test_a_result_that_would_not_come_back_equal_is_refused_and_nothing_is_written(
    books: Books, ann: Party, account: Key, result: Any
) -> None:
    before = books.everything()
    unit = ann.begin(name=some_name())
    unit.update(ann.accounts, account, TAKE, TEN)
    with pytest.raises(InvalidUnitRequest) as raised:
        unit.result = result
    assert raised.value.field == "result"
    unit.rollback()
    assert books.everything() == before


def test_a_repeated_call_sends_one_read_and_writes_nothing(books: Books, ann: Party, ben: Party, account: Key) -> None:
    name = some_name()
    takes_ten(ann, account, KEPT["an object"], name=name).commit()
    before = books.everything()
    assert ben.sends(lambda: told(ben, name)) == ["GetItem"]
    assert books.everything() == before


def test_a_result_is_kept_by_a_commit_under_read_locks(ann: Party, ben: Party, account: Key) -> None:
    name = some_name()
    takes_ten(ann, account, {"left": 90}, name=name, isolation=READ_LOCK).commit()
    assert told(ben, name) == {"left": 90}


@pytest.mark.parametrize(
    ("result", "write_units"),
    [(None, 4), ("x" * 1_022, 6), (b"x" * 4_096, 12), ("x" * (MOST_RESULT_BYTES - 2), 20)],
    ids=["none", "1 KB", "4 KB", "8 KB"],
)
@THREADS_ONLY
def test_a_commit_with_a_result_pays_two_write_units_for_each_kilobyte_of_its_receipt(
    ann: Party, account: Key, result: Any, write_units: int
) -> None:
    takes_ten(ann, account, result, name=some_name()).commit()
    (commit,) = [each.parameters["TransactItems"] for each in ann.line.sent if each.operation == COMMIT]
    (receipt,) = [write["Put"]["Item"] for write in commit if "Put" in write]
    # The account has less than 1 KB.
    assert 2 * (len(commit) - 1) + 2 * ceil(item_bytes(receipt) / 1_024) == write_units


@ENGINES
@THREADS_ONLY
def test_after_a_crash_between_the_commit_and_its_answer_a_repeated_unit_has_the_first_result(
    ann: Party, ben: Party, account: Key, engine: str | None
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, {"left": 90}, name=name, engine=engine)
    # The transaction with the receipt is the only one: the account has a version.
    crashes(ann, 1, COMMIT, is_sent=True)
    with pytest.raises(Killed):
        unit.commit()
    assert told(ben, name) == {"left": 90}
    assert ben.units.get(ben.accounts, account) == {**account, "balance": 90}


def test_a_commit_of_unknown_outcome_is_told_with_its_result_if_it_was_committed(
    ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    unit = takes_ten(ann, account, [1], name=name)
    ann.loses(Lost.REPLY, 1, float("inf"))
    with pytest.raises(OutcomeUnknown):
        unit.commit()
    assert ben.units.outcome(name=name) == UnitOutcome(Outcome.COMMITTED, [1])


def test_a_name_that_was_given_up_has_no_result(ann: Party) -> None:
    assert ann.units.outcome(name=some_name()) == UnitOutcome(Outcome.ROLLED_BACK, None)


def test_a_result_of_a_unit_for_which_nobody_could_ask_is_refused(ann: Party, account: Key) -> None:
    with pytest.raises(InvalidUnitRequest, match="a unit with a name"):
        takes_ten(ann, account, 1)


def test_a_result_that_comes_after_the_commit_is_refused(ann: Party, account: Key) -> None:
    unit = ann.begin(name=some_name())
    unit.update(ann.accounts, account, TAKE, TEN)
    unit.commit()
    with pytest.raises(UnitFinished):
        unit.result = 1


# Saved units.


@ENGINES
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "unnamed"])
def test_the_process_that_commits_a_saved_unit_keeps_a_result_for_those_that_resume_it_again(
    books: Books, ann: Party, ben: Party, account: Key, is_named: bool, engine: str | None
) -> None:
    name = some_name() if is_named else None
    unit = ann.begin(name=name, engine=engine)
    unit.update(ann.accounts, account, TAKE, TEN)
    saved = unit.save()
    with ann.units.resume(saved) as unit:
        unit.result = {"paid": 10}
    with ben.units.resume(saved) as again:
        assert (again.repeated, again.result) == (True, {"paid": 10})
    assert ben.units.outcome(unit=saved) == UnitOutcome(Outcome.COMMITTED, {"paid": 10})
    if name is not None:
        assert told(ben, name) == {"paid": 10}
    assert books.balance(account) == 90


def test_a_save_refuses_the_result_that_its_process_has_set_and_saves_the_unit_without(
    ann: Party, ben: Party, account: Key
) -> None:
    unit = takes_ten(ann, account, 1, name=some_name())
    with pytest.raises(InvalidUnitRequest, match="by the process that commits the unit"):
        unit.save()
    unit.result = None
    with ben.units.resume(unit.save()) as resumed:
        assert resumed.result is None


def test_a_repeated_unit_that_is_saved_and_resumed_has_the_result_of_its_name(
    ann: Party, ben: Party, account: Key
) -> None:
    name = some_name()
    takes_ten(ann, account, "first", name=name).commit()
    unit = ann.begin(name=name)
    unit.get(ann.accounts, account)
    saved = unit.save()
    resumed = ben.units.resume(saved)
    assert (resumed.repeated, resumed.result) == (True, "first")
    resumed.rollback()


# Calls.


@pytest.fixture
def charge(ann: Party, account: Key) -> Callable[..., Callable[..., Any]]:
    """Makes a function that takes so much from the account, and returns what the first argument makes of it."""

    def make(result: Callable[[Any], Any] = dict, **options: Any) -> Callable[..., Any]:
        def charge(unit: Unit, amount: int) -> Any:
            return result(unit.update(ann.accounts, account, TAKE, {":n": amount}))

        decorate: Any = ann.units.transactional
        charged: Callable[..., Any] = decorate(**{"name": some_name(), **options})(charge)
        return charged

    return make


@THREADS_ONLY
def test_a_repeated_call_returns_what_the_first_one_has_returned(
    books: Books, account: Key, charge: Callable[..., Callable[..., Any]]
) -> None:
    charged = charge(lambda item: {"left": int(item["balance"])})
    assert [charged(10), charged(10), charged(20)] == [{"left": 90}] * 3
    assert books.balance(account) == 90


@THREADS_ONLY
def test_the_first_call_returns_its_result_as_it_is_kept(charge: Callable[..., Callable[..., Any]]) -> None:
    charged = charge(lambda item: {"n": 1, "left": item["balance"]})
    first, second = charged(10), charged(10)
    assert first == second
    assert [type(each) for each in first.values()] == [type(each) for each in second.values()] == [Decimal, Decimal]


@THREADS_ONLY
def test_a_call_whose_result_cannot_be_kept_is_rolled_back_and_has_not_used_its_name(
    books: Books, account: Key, charge: Callable[..., Callable[..., Any]]
) -> None:
    name = some_name()
    with pytest.raises(InvalidUnitRequest, match="would come back as another value"):
        charge(lambda item: (item["balance"],), name=name)(10)
    assert (books.balance(account), books.receipt(name)) == (100, None)


@THREADS_ONLY
def test_a_call_without_a_name_returns_anything(charge: Callable[..., Callable[..., Any]]) -> None:
    assert charge(lambda _: (1, object), name=None)(10) == (1, object)


@THREADS_ONLY
@pytest.mark.parametrize("sets", [False, True])
def test_every_call_of_a_function_that_commits_its_unit_itself_returns_what_it_has_set_before(
    ann: Party, account: Key, sets: bool
) -> None:
    @ann.units.transactional(name=some_name())
    def charge(unit: Unit) -> str:
        unit.update(ann.accounts, account, TAKE, TEN)
        if sets:
            unit.result = "set"
        unit.commit()
        return "returned"

    assert [charge(), charge()] == ["set" if sets else None] * 2


# Payloads.


@THREADS_ONLY
def test_a_call_of_a_name_with_another_payload_is_refused_and_one_with_the_same_is_repeated(
    books: Books, account: Key, charge: Callable[..., Callable[..., Any]]
) -> None:
    name = some_name()
    charged = charge(name=name, payload=lambda amount: {"amount": amount, "for": "tea"})
    again = charge(name=name, payload=lambda amount: {"for": "tea", "amount": amount})
    assert charged(10) == again(10)
    with pytest.raises(InvalidUnitRequest, match=f"^the name '{name}' was committed with another payload") as raised:
        again(11)
    assert raised.value.field == "payload"
    assert books.balance(account) == 90


@THREADS_ONLY
@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ([1], [1], True),
        ([1], [1.5], False),
        ("1", 1, False),
        ({"a", "b"}, {"b", "a"}, True),
        (Decimal("1.0"), Decimal(1), True),
        (1, 1.0, False),
        (1, Decimal(1), False),
        ((1, 2), [1, 2], True),
        (b"a", b"b", False),
        ({"x": {"y": b"\xff"}}, {"x": {"y": b"\xff"}}, True),
        ("x" * 100_000, "x" * 100_000, True),
    ],
    ids=[
        "equal",
        "a number",
        "a type",
        "sets",
        "decimals",
        "a float",
        "a decimal",
        "a tuple",
        "bytes",
        "bytes within",
        "long",
    ],
)
def test_payloads_are_compared_by_their_values(
    charge: Callable[..., Callable[..., Any]], one: Any, other: Any, is_same: bool
) -> None:
    name = some_name()
    charge(name=name, payload=lambda _amount: one)(10)
    with nullcontext() if is_same else pytest.raises(InvalidUnitRequest, match="payload"):
        charge(name=name, payload=lambda _amount: other)(10)


@THREADS_ONLY
def test_a_payload_is_compared_only_if_both_calls_have_one(charge: Callable[..., Callable[..., Any]]) -> None:
    name, other = some_name(), some_name()
    first = charge(name=name)(10)
    assert charge(name=name, payload=lambda amount: amount)(11) == first
    first = charge(name=other, payload=lambda amount: amount)(10)
    assert charge(name=other)(11) == first


@THREADS_ONLY
@pytest.mark.parametrize("payload", [None, object()], ids=["none", "an object"])
def test_a_call_whose_payload_is_none_or_cannot_be_compared_sends_nothing(
    ann: Party, charge: Callable[..., Callable[..., Any]], payload: Any
) -> None:
    charged = charge(payload=lambda _amount: payload)

    def refused() -> None:
        with pytest.raises(InvalidUnitRequest, match="payload is"):
            charged(10)

    assert ann.sends(refused) == []


@THREADS_ONLY
def test_a_call_with_a_payload_cannot_save_its_unit_whose_commit_would_not_keep_it(
    books: Books, ann: Party, account: Key
) -> None:
    name = some_name()

    @ann.units.transactional(name=name, payload=lambda amount: amount)
    def charge(unit: Unit, amount: int) -> str:
        unit.update(ann.accounts, account, TAKE, {":n": amount})
        return unit.save()

    with pytest.raises(InvalidUnitRequest) as raised:
        charge(10)
    assert (raised.value.field, books.receipt(name)) == ("payload", None)


# What is stored.


def test_a_receipt_of_version_0_1_has_no_result() -> None:
    with golden("names") as books:
        ben = party(books)
        assert told(ben, "committed") is None
        assert ben.units.outcome(name="committed") == UnitOutcome(Outcome.COMMITTED, None)


def test_results_that_an_earlier_process_has_kept_are_told() -> None:
    with golden("results") as books:
        ben = party(books)
        assert told(ben, "in JSON") == {"left": 0, "rate": 0.5}
        assert told(ben, "in DynamoDB's types") == {"left": Decimal(0), "raw": b"\x00"}


def test_a_name_whose_result_a_newer_version_has_written_is_known_to_be_used_and_its_result_is_refused() -> None:
    def change(row: dict[str, Any]) -> None:
        row.update({"resultFormat": {"N": "2"}} if "result" in row else {})

    with golden("results", change) as books:
        ben = party(books)
        with ben.begin(name="in JSON") as unit:
            assert unit.repeated
        for ask in (lambda: unit.result, lambda: ben.units.outcome(name="in JSON")):
            with pytest.raises(UnsupportedFormat, match="data format 2"):
                ask()


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.pop("resultFormat"),
        lambda row: row.update(result={"S": "{"}),
        lambda row: row.update(resultFormat={"S": "1"}),
    ],
    ids=["no number", "no JSON", "no number in the number"],
)
def test_a_result_that_no_unit_has_written_is_refused(change: Callable[[Any], object]) -> None:
    def breaks(row: dict[str, Any]) -> None:
        if "result" in row:
            change(row)

    with golden("results", breaks) as books, pytest.raises(InvalidUnitRequest, match="no unit has written this row"):
        party(books).units.outcome(name="in JSON")


def test_a_receipt_without_a_result_is_as_before() -> None:
    with empty_books() as books:
        ann = party(books)
        key = books.account()
        takes_ten(ann, key, None, name="a").commit()
        assert set(books.receipt("a") or {}) == {"unit", "row", "format", "state", "by", "expiresAt"}
