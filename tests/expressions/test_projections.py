"""Projections: what a read hands out of an item."""

import pytest
from expressions.asked import item_of, projected

from ticketlock._expressions._values import ExpressionInvalid

ITEM = item_of(n=1, txt="hello", nums=[0, 1, 2, 3], nest={"k": 1, "entries": [{"q": 1, "r": 2}, {"q": 3}]})


def test_attributes_come_whole_and_absent_ones_are_left_out() -> None:
    assert projected("n, gone, nest.gone, txt.k, nums[4]", ITEM) == item_of(n=1)


def test_elements_stand_together_in_the_order_of_the_list() -> None:
    assert projected("nums[3], nums[0]", ITEM) == item_of(nums=[0, 3])


def test_parts_of_maps_and_lists_stay_where_they_are() -> None:
    assert projected("nest.entries[1], nest.entries[0].r, nest.k", ITEM) == item_of(
        nest={"k": 1, "entries": [{"r": 2}, {"q": 3}]}
    )


def test_what_is_handed_out_shares_nothing_with_the_item() -> None:
    projected("nest.entries", ITEM)["nest"]["M"]["entries"]["L"].clear()
    assert projected("nest.entries[0].q", ITEM) == item_of(nest={"entries": [{"q": 1}]})


@pytest.mark.parametrize(
    ("projection", "why"),
    [
        ("n, n", r"paths overlap .*; path one: \[n\], path two: \[n\]"),
        ("nest, nest.k", r"paths overlap .*; path one: \[nest\], path two: \[nest, k\]"),
        ("nums[1].a, nums[1]", r"paths overlap .*; path one: \[nums, \[1\], a\], path two: \[nums, \[1\]\]"),
        ("nums[1], nums.a", r"paths conflict .*; path one: \[nums, \[1\]\], path two: \[nums, a\]"),
        ("n,", 'Syntax error; token: "<EOF>"'),
        ("n nums", 'Syntax error; token: "nums"'),
        (":n", 'Syntax error; token: ":n"'),
        ("size", "reserved keyword: size"),
    ],
)
def test_a_wrong_projection_is_refused_with_the_reason(projection: str, why: str) -> None:
    with pytest.raises(ExpressionInvalid, match=f"Invalid ProjectionExpression: .*{why}"):
        projected(projection, ITEM)
