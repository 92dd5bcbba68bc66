"""Values in their canonical form: which there are, which are equal, and how many bytes they have."""

from typing import Any

import pytest
from expressions.asked import item_of, wire

from ticketlock._expressions._values import (
    ExpressionInvalid,
    canonical,
    canonical_item,
    canonical_number,
    copy_of_item,
    number_bytes,
    size_of,
)

# Numbers.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1.50", "1.5"),
        ("007", "7"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1E3", "1000"),
        ("1" * 37, "1" * 37),
        ("1" * 38, "1" * 38),
        ("1" * 38 + "000", "1" * 38 + "000"),
        ("9" * 38 + "e87", "9" * 38 + "0" * 87),
        ("-9e125", "-9" + "0" * 125),
        ("-1e-129", "-0." + "0" * 128 + "1"),
    ],
)
def test_a_number_of_38_digits_in_dynamodb_s_range_is_kept_exactly(text: str, shown: str) -> None:
    assert canonical_number(text) == shown


NO_NUMBERS = {
    "more than 38 significant digits": ["1" * 39],
    "magnitude larger": ["1e126", "-1e126", "1e99999999999999999999"],
    "magnitude smaller": ["9.9e-131", "-1e-131"],
    "cannot be converted to a numeric value": ["", "NaN", "1_000", "\u0661", "1 "],
}


@pytest.mark.parametrize(("text", "why"), [(text, why) for why, texts in NO_NUMBERS.items() for text in texts])
def test_any_other_number_is_refused(text: str, why: str) -> None:
    with pytest.raises(ExpressionInvalid, match=why):
        canonical_number(text)


# What was measured at AWS, to the byte, is in the suite that is public as dynamodb-conformance.
MEASURED = {
    1: ["0"],
    2: ["12", "0042", "0.0000001", "1E-100", "0.15"],
    3: ["123", "1010", "1.5", "1.200", "-42"],
    4: ["123456"],
    20: ["12345678901234567890123456789012345678"],
}


@pytest.mark.parametrize(("text", "size"), [(text, size) for size, texts in MEASURED.items() for text in texts])
def test_a_number_has_a_byte_for_each_pair_of_digits_on_either_side_of_the_point(text: str, size: int) -> None:
    assert number_bytes(canonical_number(text)) == size


# Sizes.


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 0),
        ("text", 4),
        ("é\N{GRINNING FACE}", 6),
        (b"\x00\x01", 2),
        (True, 1),
        (None, 1),
        ({"a", "bc"}, 3),
        ({1, 100}, 4),
        ({b"", b"abc"}, 3),
        ([], 3),
        (["ab", 1], 3 + 2 + 1 + 2 + 1),
        ({}, 3),
        ({"ab": "c", "d": [None]}, 3 + 2 + 1 + 1 + 1 + (3 + 1 + 1) + 1),
    ],
)
def test_a_value_has_the_size_that_is_documented_for_its_type(value: Any, size: int) -> None:
    assert size_of({"né": canonical(wire(value))}) == len("né".encode()) + size


def test_the_item_in_the_documentation_has_23_bytes() -> None:
    assert size_of(canonical_item({"shirt-color": {"S": "R"}, "shirt-size": {"S": "M"}})) == 23


# Forms.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"N": "1"}, {"N": "1.0"}),
        ({"N": "1e2"}, {"N": "0100"}),
        ({"SS": ["a", "b"]}, {"SS": ("b", "a")}),
        ({"NS": ["1", "2"]}, {"NS": {"2.0", "1e0"}}),
        ({"BS": [b"a", b"b"]}, {"BS": [bytearray(b"b"), b"a"]}),
        ({"M": {"a": {"N": "1"}, "b": {"L": [{"N": "2"}]}}}, {"M": {"b": {"L": ({"N": "2.00"},)}, "a": {"N": "1"}}}),
    ],
)
def test_values_that_are_equal_for_dynamodb_have_one_form(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"N": "1"}, {"S": "1"}),
        ({"BOOL": True}, {"N": "1"}),
        ({"L": [{"N": "1"}, {"N": "2"}]}, {"L": [{"N": "2"}, {"N": "1"}]}),
        ({"BS": [b"\x01"]}, {"BS": [b"\x02"]}),
    ],
)
def test_values_that_are_not_equal_for_dynamodb_have_two_forms(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


NO_VALUES: dict[str, list[Any]] = {
    "must contain exactly one of the supported datatypes": [{}, {"S": "a", "N": "1"}, "text"],
    "not an attribute value": [{"N": 1}, {"BOOL": 1}, {"B": "text"}, {"X": "text"}, {"SS": "text"}],
    "An string set  may not be empty": [{"SS": []}],
    "An number set  may not be empty": [{"NS": ()}],
    "Binary sets should not be empty": [{"BS": set()}],
    r"Input collection \[a, a\] contains duplicates.": [{"SS": ["a", "a"]}],
    "^Input collection contains duplicates$": [{"NS": ["1", "1.0"]}],
    r"Input collection \[YQ==, YQ==\]of type BS contains duplicates.": [{"BS": [b"a", b"a"]}],
    "cannot be encoded as UTF-8": [{"S": "\ud800"}, {"M": {"\ud800": {"S": ""}}}],
}


@pytest.mark.parametrize(("value", "why"), [(value, why) for why, values in NO_VALUES.items() for value in values])
def test_what_is_no_value_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ExpressionInvalid, match=why):
        canonical(value)


@pytest.mark.parametrize("value", ["", b"", [], {}, {""}, {b""}])
def test_all_but_sets_may_be_empty(value: Any) -> None:
    assert canonical(wire(value)) == wire(value)


def test_an_item_s_mistake_says_where_it_is() -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        canonical_item({"order": {"M": {"lines": {"L": [{"N": "1"}, {"M": {"price": {"N": "cheap"}}}]}}}})
    assert caught.value.where == ("order", "lines", 1, "price")


def test_a_copy_shares_nothing_with_its_item() -> None:
    item = item_of(a=[1, {"b": {1, 2}}], c="x")
    copied = copy_of_item(item)
    assert copied == item
    copied["a"]["L"][1]["M"]["b"]["NS"].clear()
    copied["c"]["S"] = "y"
    assert item == item_of(a=[1, {"b": {1, 2}}], c="x")
