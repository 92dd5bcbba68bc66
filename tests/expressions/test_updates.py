"""Updates, applied to items without a database."""

from typing import Any

import pytest
from expressions.asked import expressions, item_of, nested, updated

from ticketlock._expressions._evaluated import Expressions
from ticketlock._expressions._updates import ItemUpdate
from ticketlock._expressions._values import ItemInvalid, copy_of_item

ITEM = item_of(
    n=5, txt="hello", tags={"cat", "dog"}, nums=[2, 3, 4, 5, 6, 7], nest={"k": 1, "entries": [{"q": 1}, {"q": 2}]}
)


def changed(update: str, **values: Any) -> dict[str, Any]:
    """The attributes that the update has changed; None for those that it has removed."""
    after = updated(update, ITEM, **values)
    assert after is not None
    names = sorted(ITEM.keys() | after.keys())
    return {name: after.get(name) for name in names if after.get(name) != ITEM.get(name)}


# SET.


def test_elements_of_lists_and_members_of_maps_are_set_beside_the_others() -> None:
    assert changed("SET nums[1] = :v, nest.entries[0].q = nest.entries[1].q, nest.more = :v", v="x") == item_of(
        nums=[2, "x", 4, 5, 6, 7], nest={"k": 1, "entries": [{"q": 2}, {"q": 2}], "more": "x"}
    )


def test_an_element_behind_the_end_is_appended_and_several_in_the_order_of_their_numbers() -> None:
    assert changed("SET nums[84] = :a, nums[37] = :b, nums[6] = :c", a=1, b=2, c=3) == item_of(
        nums=[2, 3, 4, 5, 6, 7, 3, 2, 1]
    )


def test_a_list_is_appended_to_and_begun_where_there_is_none() -> None:
    begun = "diary = list_append(if_not_exists(diary, :l), :l)"
    update = f"SET nums = list_append(nums, :l), {begun}, turned = list_append(:l, nums)"
    assert changed(update, l=[9]) == item_of(nums=[2, 3, 4, 5, 6, 7, 9], diary=[9, 9], turned=[9, 2, 3, 4, 5, 6, 7])


def test_an_update_changes_neither_the_item_before_it_nor_what_it_was_copied_from() -> None:
    before = copy_of_item(ITEM)
    copied = updated("SET copied = nest", ITEM)
    assert updated("SET copied.k = :v REMOVE copied.entries[0]", copied, v=2) == {
        **before,
        "copied": item_of(copied={"k": 2, "entries": [{"q": 2}]})["copied"],
    }
    assert copied == {**before, "copied": before["nest"]}
    assert before == ITEM


def test_operands_may_stand_in_parentheses_and_defaults_go_as_deep_as_the_text_is_long() -> None:
    assert changed("SET n = (n - :v), m = (n) + (:v)", v=2) == item_of(n=3, m=7)
    assert changed("SET n = " + "if_not_exists(z," * 239 + ":v" + ")" * 239, v=1) == item_of(n=1)


# REMOVE.


def test_removed_elements_leave_no_gap_and_all_numbers_are_those_from_before() -> None:
    assert changed("REMOVE nums[1], nums[4], nums[99] SET nums[3] = :v", v=17) == item_of(nums=[2, 4, 17, 7])
    assert changed("SET nums[3] = :v, nums[9] = :v REMOVE nums[1]", v=17) == item_of(nums=[2, 4, 17, 6, 7, 17])


def test_what_is_removed_last_leaves_an_empty_list_or_map_and_what_is_absent_is_removed_without_a_word() -> None:
    assert updated("REMOVE a[0], b.c", item_of(a=[1], b={"c": 1})) == item_of(a=[], b={})
    assert changed("REMOVE gone, nest.gone, nums[6], nest.entries[0].gone") == {}


# ADD.


def test_add_adds_to_numbers_and_to_sets_and_begins_both() -> None:
    assert changed(
        "ADD n :n, m :n, tags :s, more :s, nest.k :n, nums[0] :n, nums[77] :n", n=-3, s={"cow", "cat"}
    ) == item_of(
        n=2,
        m=-3,
        tags={"cat", "cow", "dog"},
        more={"cat", "cow"},
        nest={"k": -2, "entries": [{"q": 1}, {"q": 2}]},
        nums=[-1, 3, 4, 5, 6, 7, -3],
    )


def test_add_brings_an_item_about_and_deletions_and_removals_alone_do_not() -> None:
    assert updated("ADD n :n", n=4) == item_of(n=4)
    assert updated("ADD n :n REMOVE a DELETE s :s", n=4, s={"x"}) == item_of(n=4)
    assert updated("DELETE a :s", s={"x"}) is None
    assert updated("REMOVE b.c, d[0]") is None
    assert updated("DELETE a :s REMOVE b.c, d[0]", s={"x"}) is None


# DELETE.


def test_delete_takes_out_of_a_set_and_the_last_one_takes_the_attribute_along() -> None:
    assert changed("DELETE tags :s", s={"cat", "cow"}) == item_of(tags={"dog"})
    assert changed("DELETE tags :s", s={"cat", "dog"}) == {"tags": None}
    assert changed("DELETE gone :s", s={"cat"}) == {}


# What does not fit.


@pytest.mark.parametrize(
    ("update", "value", "why"),
    [
        ("SET gone[0] = :v", 1, "document path provided in the update expression is invalid for update"),
        ("SET txt[0] = :v", 1, "invalid for update"),
        ("SET nest[0] = :v", 1, "invalid for update"),
        ("SET nums[9].k = :v", 1, "invalid for update"),
        ("DELETE gone.k :v", {"x"}, "invalid for update"),
        ("SET a = list_append(txt, :v)", [1], "An operand in the update expression has an incorrect data type"),
        ("SET a = list_append(gone, :v)", [1], "refers to an attribute that does not exist in the item"),
        ("SET a = txt - :v", 1, "incorrect data type"),
        ("SET a = nums[77] + :v", 1, "does not exist in the item"),
        ("ADD txt :v", 1, "incorrect data type"),
        ("ADD tags :v", {1}, "incorrect data type"),
        ("ADD tags :v", 1, "incorrect data type"),
        ("DELETE n :v", {1}, "incorrect data type"),
        ("ADD n :v", 10**38, "38 significant digits"),
        ("SET a = :v REMOVE gone.k", 1, "invalid for update"),
        ("SET a = :v REMOVE txt[0]", 1, "invalid for update"),
        ("SET a = :v REMOVE nums.k", 1, "invalid for update"),
        ("SET a = :v REMOVE nest[0]", 1, "invalid for update"),
    ],
)
def test_an_update_that_does_not_fit_the_item_says_why(update: str, value: Any, why: str) -> None:
    with pytest.raises(ItemInvalid, match=why) as caught:
        updated(update, ITEM, v=value)
    assert caught.value.message == str(caught.value)


def test_an_item_may_not_become_deeper_than_32_levels() -> None:
    def set_below(levels: int) -> None:
        request = {"UpdateExpression": "SET nest.k = :v", "ExpressionAttributeValues": {":v": nested(levels)}}
        ItemUpdate(Expressions(request), ("pk",)).applied_to(ITEM, {})

    set_below(30)
    set_below(31)
    with pytest.raises(ItemInvalid, match="nested levels beyond supported limit"):
        set_below(32)


# What it touches.


def test_an_update_names_the_attributes_that_it_touches_once() -> None:
    update = "SET #s.a = n, b[0] = :v REMOVE #s.b, c ADD d :v DELETE e :s"
    found = ItemUpdate(expressions({"v": 1, "s": {"x"}}, {"s": "size"}, UpdateExpression=update), ("pk",))
    assert found.paths == ("size", "b", "c", "d", "e")


def test_without_an_expression_an_update_makes_sure_that_the_item_is_there() -> None:
    found = ItemUpdate(Expressions({}), ("pk",))
    assert found.paths == ()
    assert found.applied_to(None, item_of(pk="x")) == item_of(pk="x")
    assert found.applied_to(ITEM, {}) == ITEM
