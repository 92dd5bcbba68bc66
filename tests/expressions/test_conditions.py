"""Conditions and filters: what each means to the evaluator, and that the engines agree."""

from typing import Any

import pytest
from expressions.asked import expressions, holds, item_of, wire
from expressions.beside import DIFFERENCES, Beside, Differences
from kit.engines import Engine

from ticketlock._expressions._evaluated import Expressions

ITEM = item_of(
    one=1,
    two=2,
    ten=10,
    txt="hello",
    octets=b"\x01\x02\x03",
    yes=True,
    nothing=None,
    tags={"cat", "dog"},
    primes={2, 3, 5},
    blobs={b"a", b"b"},
    nums=[2, 3, [5], {2, 1}],
    nest={"twig": 7, "entries": [{"q": 1}, {"q": 2}]},
    hollow=[],
)

CONDITIONS: list[tuple[str, Any, bool]] = [
    ("attribute_exists(one) AND attribute_exists(nest.twig) AND attribute_exists(nums[3])", None, True),
    ("attribute_not_exists(one) OR attribute_not_exists(nest.twig)", None, False),
    ("attribute_exists(nest.leaf) OR attribute_exists(one.twig)", None, False),
    ("attribute_exists(nums[4]) OR attribute_exists(txt[0]) OR attribute_exists(nest[0])", None, False),
    ("one < two AND two < ten AND one <> txt", None, True),
    ("two < one OR one = ten OR one < txt OR one > txt", None, False),
    ("NOT one = two AND NOT (one > two OR two > ten)", None, True),
    ("gone = one OR gone < one OR gone <= one OR gone > one OR gone >= one", None, False),
    ("one = gone OR one < gone OR one <= gone OR one > gone OR one >= gone", None, False),
    ("gone = away OR gone < away OR gone <= away OR gone > away OR gone >= away", None, False),
    ("gone <> one AND gone <> away AND one <> gone", None, True),
    ("(one < two OR one < ten) AND ten < two", None, False),
    ("nest.entries[1].q = two", None, True),
    ("nest.entries[0].q = two", None, False),
    ("two BETWEEN one AND ten", None, True),
    ("one between nest.entries[0].q and nest.entries[0].q", None, True),
    ("ten BETWEEN one AND two OR two BETWEEN ten AND one", None, False),
    ("two BETWEEN one AND txt OR gone BETWEEN one AND two", None, False),
    ("NOT gone BETWEEN one AND two", None, True),
    ("two BETWEEN one AND ten AND one < two", None, True),
    ("two IN (one, nest.entries[1].q)", None, True),
    ("two IN (one, ten, txt) OR gone IN (away, one)", None, False),
    ("begins_with(gone, txt) OR begins_with(txt, nothing) OR begins_with(txt, one)", None, False),
    ("size(txt) > size(hollow)", None, True),
    ("two <= size(tags) AND size(tags) <= two", None, True),
    ("size(one) = one", None, False),
    ("size(yes) <> one", None, True),
    ("size(gone) <> one", None, True),
    ("contains(nums, two)", None, True),
    ("contains(tags, two) OR contains(one, two) OR contains(ten, one)", None, False),
    ("contains(nest, two) OR contains(gone, two)", None, False),
    ("NOT NOT one < two", None, True),
    ("one = two OR one < two AND two < ten", None, True),
    ("NOT one = two AND one = two", None, False),
    # Each with the value `:v`.
    ("one <= :v AND one >= :v AND one = :v", 1, True),
    ("size(txt) = :v", 5, True),
    ("size(octets) = :v AND size(primes) = :v", 3, True),
    ("size(nums) = :v", 4, True),
    ("size(nest) = :v", 2, True),
    ("size(txt) = :v", "5", False),
    ("contains(txt, :v)", "ell", True),
    ("contains(txt, :v)", "", True),
    ("contains(txt, :v)", 1, False),
    ("contains(tags, :v)", "cat", True),
    ("contains(tags, :v)", "ca", False),
    ("contains(primes, :v)", 3, True),
    ("contains(primes, :v)", {3}, False),
    ("contains(blobs, :v)", b"a", True),
    ("contains(nums, :v)", [5], True),
    ("contains(nums, :v)", {1, 2}, True),
    ("contains(nums, :v)", {1}, False),
    ("begins_with(octets, :v)", b"\x01", True),
    ("attribute_type(txt, :v)", "S", True),
    ("attribute_type(nothing, :v)", "NULL", True),
    ("attribute_type(yes, :v)", "BOOL", True),
    ("attribute_type(tags, :v)", "SS", True),
    ("attribute_type(nums, :v)", "L", True),
    ("attribute_type(nest, :v)", "M", True),
    ("attribute_type(primes, :v)", "N", False),
    ("attribute_type(gone, :v)", "S", False),
    ("txt = :v", "hello", True),
    ("txt = :v", "hullo", False),
    ("octets = :v", b"\x01\x02\x03", True),
    ("octets = :v", b"\x00\x02\x03", False),
    ("octets < :v", b"\x01\x03", True),
    ("one = :v", 2, False),
    ("one = :v", "1", False),
    ("tags = :v", {"dog", "cat"}, True),
    ("nest.entries = :v", [{"q": 1}, {"q": 2}], True),
    ("nest.entries = :v", [{"q": 2}, {"q": 1}], False),
    ("one IN (:v, txt)", "1", False),
]


# moto or ministack answers otherwise to these, so only the evaluator is asked.
ANSWERED_OTHERWISE: list[tuple[str, Any, bool]] = [
    ("attribute_type(:v, :v)", "S", True),
    ("attribute_type(:v, :v)", "N", False),
    ("attribute_type(size(txt), :v)", "N", True),
    ("size(:v) = two", "ab", True),
    ("contains(octets, :v)", b"\x02\x03", True),
    ("begins_with(:v, txt)", "hello, you", True),
    ("yes = :v", 1, False),
    ("(one) < (two) AND (two) BETWEEN (one) AND (ten) AND (two) IN ((one), nest.entries[1].q)", None, True),
]


def values_of(value: Any) -> dict[str, Any]:
    return {} if value is None else {"v": value}


@pytest.mark.parametrize(("condition", "value", "true"), [*CONDITIONS, *ANSWERED_OTHERWISE])
def test_a_condition_means_what_it_means_in_dynamodb(condition: str, value: Any, true: bool) -> None:
    assert holds(condition, ITEM, **values_of(value)) is true


def test_the_engines_answer_the_same_to_each_condition_but_for_their_known_differences(engine: Engine) -> None:
    beside, differences = Beside(engine), DIFFERENCES.get(engine.name, Differences())
    for condition, value, true in CONDITIONS:
        request: dict[str, Any] = {"ConditionExpression": condition}
        if value is not None:
            request["ExpressionAttributeValues"] = {":v": wire(value)}
        found = beside.ask(ITEM, request)
        assert found.ours is true
        assert found.are_alike() or differences.explain(found), found


def test_a_number_equals_itself_however_it_is_written() -> None:
    assert holds("one = :a AND one IN (:b) AND contains(primes, :c)", ITEM, a=1, b=1, c=2)
    request = {"ConditionExpression": "one = :a", "ExpressionAttributeValues": {":a": {"N": "1.00e0"}}}
    assert Expressions(request).condition_holds(ITEM)


def test_the_bounds_of_between_may_be_one_value() -> None:
    assert holds("one BETWEEN :low AND :high", ITEM, low=1, high=1)
    assert not holds("two BETWEEN :low AND :high", ITEM, low=1, high=1)


def test_the_size_of_a_text_counts_characters_beyond_the_basic_plane_twice() -> None:
    assert holds("size(txt) = :v", item_of(txt="a\N{GRINNING FACE}é"), v=4)


def test_of_an_item_that_is_not_there_only_unequal_and_absent_are_true() -> None:
    assert holds("attribute_not_exists(one) AND one <> two AND NOT one = two")
    assert not holds("one BETWEEN two AND ten OR one IN (two) OR contains(one, two) OR size(one) = two")


def test_a_name_stands_for_any_attribute_and_a_dot_in_it_leads_nowhere() -> None:
    item = item_of(**{"a.b": 1, "size": 2})
    found = expressions({"v": 1}, {"a": "a.b", "s": "size"}, ConditionExpression="#a = :v AND #s > #a")
    assert found.condition_holds(item)


def test_a_filter_shows_what_it_is_true_of() -> None:
    found = expressions({"v": "cat"}, FilterExpression="contains(tags, :v)")
    assert found.shows(ITEM)
    assert not found.shows(item_of(tags={"dog"}))
