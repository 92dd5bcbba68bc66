"""The checker of histories of transactions: serial ones pass, and each anomaly is found by its name."""

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kit.histories import Outcome, Transaction, anomalies, is_strictly_serialisable

pytestmark = pytest.mark.verify("tests no part of the product")

KEYS = "xyz"
OUTCOMES: list[Outcome] = ["committed", "committed", "committed", "aborted", "unknown"]


def one(id: str, begin: float = 0, end: float = 100, outcome: Outcome = "committed", **more: Any) -> Transaction:
    """A transaction that overlaps with all others unless told otherwise."""
    return Transaction(id=id, begin=begin, end=end, outcome=outcome, **more)


def kinds(*history: Transaction) -> list[str]:
    found = [anomaly.kind for anomaly in anomalies(history)]
    assert is_strictly_serialisable(history) == (not found)
    return found


# Single anomalies.


def test_no_transactions_show_nothing() -> None:
    assert kinds() == []


def test_an_element_of_an_aborted_transaction_must_not_be_seen() -> None:
    aborted = one("a", outcome="aborted", appends={"x": 1})
    assert kinds(aborted, one("b", reads={"x": [1]})) == ["dirty read"]
    assert kinds(aborted, one("b", reads={"x": [1]}, outcome="aborted")) == ["dirty read"]
    assert kinds(aborted, one("b", reads={"x": []})) == []


def test_an_aborted_transaction_may_have_read_its_own_element() -> None:
    assert kinds(one("a", outcome="aborted", appends={"x": 1}, reads={"x": [1]}, reads_own="x")) == []


def test_an_element_of_unknown_outcome_may_be_seen_or_not() -> None:
    unknown = one("u", end=10, outcome="unknown", appends={"x": 1})
    assert kinds(unknown, one("b", 20, reads={"x": [1]})) == []
    assert kinds(unknown, one("b", 20, reads={"x": None})) == []


def test_an_element_of_unknown_outcome_may_come_late_but_does_not_go_again() -> None:
    unknown = one("u", end=10, outcome="unknown", appends={"x": 1})
    none, seen = one("b", 20, 30, reads={"x": []}), one("c", 40, 50, reads={"x": [1]})
    assert kinds(unknown, none, seen) == []
    assert kinds(unknown, replace(none, id="d", begin=60, end=70), seen) == ["G-single in real time"]


def test_reads_of_an_unknown_transaction_count_once_another_one_has_read_its_element() -> None:
    unknown = one("u", outcome="unknown", reads={"y": []}, appends={"x": 1})
    wrote, sees = one("w", reads={"x": []}, appends={"y": 2}), one("s", reads={"x": [1]})
    assert kinds(unknown, wrote) == []
    assert kinds(unknown, wrote, sees) == ["G2"]


def test_what_is_seen_of_an_unknown_transaction_shows_that_what_it_saw_was_applied_as_well() -> None:
    first = one("u", outcome="unknown", reads={"z": []}, appends={"y": 1})
    then = one("v", outcome="unknown", reads={"y": [1]}, appends={"x": 2})
    wrote, sees = one("w", reads={"y": []}, appends={"z": 3}), one("s", reads={"x": [2]})
    assert kinds(first, then, wrote) == []
    assert kinds(first, then, wrote, sees) == ["G2"]


def test_two_that_append_to_the_same_lose_an_update() -> None:
    both = [one(id, reads={"x": []}, appends={"x": element}) for id, element in (("a", 1), ("b", 2))]
    assert kinds(*both) == ["lost update"]
    assert kinds(both[0], replace(both[1], reads={"x": [1]})) == []
    assert kinds(both[0], replace(both[1], reads={"x": [1, 2]}, reads_own="x")) == []


def test_lists_are_read_in_one_order() -> None:
    writers = [one("a", appends={"x": 1}), one("b", appends={"x": 2})]
    assert kinds(*writers, one("c", reads={"x": [1, 2]}), one("d", reads={"x": [2, 1]})) == ["incompatible orders"]
    assert kinds(*writers, one("c", reads={"x": [1]}), one("d", reads={"x": [2]})) == ["incompatible orders"]
    assert kinds(*writers, one("c", reads={"x": [2]}), one("d", reads={"x": [2, 1]})) == []


def test_a_transaction_reads_what_it_has_appended() -> None:
    assert kinds(one("a", reads={"x": []}, appends={"x": 1}, reads_own="x")) == ["internal inconsistency"]
    assert kinds(one("a", reads={"x": []}, appends={"x": 1})) == []


def test_a_transaction_reads_what_it_has_appended_behind_what_others_have() -> None:
    mine = one("a", reads={"x": [1, 2]}, appends={"x": 1}, reads_own="x")
    assert kinds(mine, one("b", appends={"x": 2})) == ["internal inconsistency"]


def test_an_element_is_seen_once() -> None:
    assert kinds(one("a", appends={"x": 1}), one("b", reads={"x": [1, 1]})) == ["duplicate element"]


def test_an_element_that_was_never_appended_is_an_anomaly() -> None:
    assert kinds(one("b", reads={"x": [7]})) == ["garbage read"]


def test_a_committed_element_is_read_by_every_later_transaction() -> None:
    wrote = one("a", 0, 10, appends={"x": 1})
    assert kinds(wrote, one("b", 11, 20, reads={"x": []})) == ["lost append"]
    assert kinds(wrote, one("b", 10, 20, reads={"x": []})) == []


# Circles.


def test_writes_in_opposite_orders_are_g0() -> None:
    writers = [one("a", appends={"x": 1, "y": 1}), one("b", appends={"x": 2, "y": 2})]
    readers = [one("c", reads={"x": [1, 2]}), one("d", reads={"y": [2, 1]})]
    assert kinds(*writers, *readers) == ["G0"]


def test_two_that_see_each_other_are_g1c() -> None:
    assert kinds(one("a", appends={"x": 1}, reads={"y": [1]}), one("b", appends={"y": 1}, reads={"x": [1]})) == ["G1c"]


def test_a_reader_that_sees_half_of_another_one_is_g_single() -> None:
    assert kinds(one("a", appends={"x": 1, "y": 1}), one("b", reads={"x": [1], "y": []})) == ["G-single"]


def test_write_skew_is_g2() -> None:
    assert kinds(
        one("a", appends={"x": 1}, reads={"x": [], "y": []}), one("b", appends={"y": 1}, reads={"x": [], "y": []})
    ) == ["G2"]


def test_a_reader_of_its_own_element_alone_comes_before_transactions_that_no_one_has_read() -> None:
    own = one("a", reads={"y": [1]}, appends={"x": 1, "y": 1}, reads_own="y")
    assert kinds(own, one("b", reads={"x": []}, appends={"y": 2})) == ["G2"]
    assert kinds(own, one("b", reads={"x": [1]}, appends={"y": 2})) == []


def test_readers_that_see_two_others_in_opposite_orders_are_g2() -> None:
    writers = [one("a", appends={"x": 1}), one("b", appends={"y": 1})]
    readers = [one("c", reads={"x": [1], "y": []}), one("d", reads={"x": [], "y": [1]})]
    assert kinds(*writers, *readers) == ["G2"]


def test_a_transaction_that_begins_later_does_not_read_less() -> None:
    wrote = one("a", appends={"x": 1})
    first, then = one("b", 10, 20, reads={"x": [1]}), one("c", 30, 40, reads={"x": []})
    assert kinds(wrote, first, then) == ["G-single in real time"]
    assert kinds(wrote, first, replace(then, begin=15)) == []


def test_a_transaction_that_begins_later_appends_behind() -> None:
    writers = [one("a", 0, 10, appends={"x": 1}), one("b", 20, 30, appends={"x": 2})]
    assert kinds(*writers, one("c", reads={"x": [2, 1]})) == ["G0 in real time"]


def test_no_transaction_reads_what_begins_after_its_end() -> None:
    assert kinds(one("a", 20, 30, appends={"x": 1}), one("b", 0, 10, reads={"x": [1]})) == ["G1c in real time"]


def test_a_transaction_that_overlaps_with_two_is_not_both_before_the_first_and_after_the_second() -> None:
    first = one("a", 0, 10, appends={"x": 1})
    overlaps = one("c", 0, 40, reads={"x": []}, appends={"y": 1})
    assert kinds(first, one("b", 20, 30, reads={"y": []}), overlaps) == ["G2 in real time"]
    assert kinds(first, one("b", 5, 30, reads={"y": []}), overlaps) == []
    wrote = one("b", 20, 30, appends={"y": 2})
    assert kinds(first, wrote, one("c", 0, 40, reads={"x": [], "y": [2]})) == ["G-single in real time"]


def test_circles_without_a_transaction_in_common_are_named_each() -> None:
    halves = [one(f"{key} w", appends={key: 1, key + "2": 1}) for key in KEYS]
    readers = [one(f"{key} r", reads={key: [1], key + "2": []}) for key in KEYS]
    assert kinds(*halves, *readers) == ["G-single"] * 3


def test_an_anomaly_names_the_transactions_and_what_they_read() -> None:
    (found,) = anomalies([one("a", appends={"x": 1, "y": 1}), one("b", reads={"x": [1], "y": []})])
    assert str(found) == "G-single: b did not see 1 of a in y, b saw 1 of a in x"
    assert found.transactions == ("b", "a")


# Input that is not a history.


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ([one("a"), one("a")], "one id"),
        ([one("a", 2, 1)], "a ends before it begins"),
        ([one("a", appends={"x": 1}), one("b", appends={"x": 1})], "a and b append 1 to x"),
    ],
)
def test_what_cannot_be_judged_is_refused(history: list[Transaction], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        anomalies(history)


# Beside every order.


@st.composite
def serial(draw: st.DrawFn, most: int = 7) -> list[Transaction]:
    """What transactions see and do that are applied one after the other, each at one moment of its time."""
    lists: dict[str, list[int]] = {}
    history = []
    for number in range(draw(st.integers(1, most))):
        outcome = draw(st.sampled_from(OUTCOMES))
        reads = draw(st.sets(st.sampled_from(KEYS)))
        appends = dict.fromkeys(draw(st.sets(st.sampled_from(KEYS))), number)
        own = draw(st.sets(st.sampled_from(KEYS))) & reads & appends.keys()
        saw = {key: [*lists.get(key, []), *([number] if key in own else [])] for key in reads}
        if outcome == "committed" or (outcome == "unknown" and draw(st.booleans())):
            for key in appends:
                lists.setdefault(key, []).append(number)
        at = 10 * number
        begin, end = at - draw(st.integers(0, 25)), at + draw(st.integers(0, 25))
        # The answer of an unknown one is not there when it is applied.
        end = draw(st.integers(begin, end)) if outcome == "unknown" else end
        history.append(one(f"t{number}", begin, end, outcome, reads=saw, appends=appends, reads_own=own))
    return draw(st.permutations(history))


def changed(history: list[Transaction], draw: Any) -> list[Transaction]:
    """The same but for one thing about one transaction."""
    at = draw(st.integers(0, len(history) - 1))
    each = history[at]
    what = draw(st.sampled_from(["reads", "reads", "reads", "outcome", "time", "appends"]))
    if what == "reads":
        key = draw(st.sampled_from(sorted(each.reads) or ["x"]))
        elements = st.sampled_from([number for number, other in enumerate(history) if key in other.appends] or [0])
        saw = list(each.reads.get(key) or [])
        how = draw(st.sampled_from(["shorter", "longer", "another order", "any"]))
        if how == "shorter":
            saw = saw[: draw(st.integers(0, len(saw)))]
        elif how == "longer":
            saw.append(draw(elements))
        else:
            saw = draw(st.permutations(saw) if how == "another order" else st.lists(elements, max_size=4))
        each = replace(each, reads={**each.reads, key: saw})
    elif what == "outcome":
        each = replace(each, outcome=draw(st.sampled_from(OUTCOMES)))
    elif what == "time":
        begin = draw(st.integers(-30, 80))
        each = replace(each, begin=begin, end=begin + draw(st.integers(0, 30)))
    else:
        each = replace(each, appends={key: element for key, element in each.appends.items() if draw(st.booleans())})
    return [*history[:at], each, *history[at + 1 :]]


@settings(max_examples=100, deadline=None)
@given(serial())
def test_transactions_that_were_applied_one_after_the_other_pass(history: list[Transaction]) -> None:
    assert anomalies(history) == []
    assert is_strictly_serialisable(history)


@settings(max_examples=500, deadline=None)
@given(serial(), st.data())
def test_what_is_changed_is_refused_exactly_if_no_order_fits(history: list[Transaction], data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        history = changed(history, data.draw)
    found = anomalies(history)
    event(found[0].kind if found else "as good as before")
    assert (found == []) == is_strictly_serialisable(history), [str(each) for each in found]


def test_transactions_without_isolation_show_many_anomalies_and_sometimes_none() -> None:
    seen: dict[str, int] = {}
    for seed in range(2_000):
        found = anomalies(interleaved(Random(seed)))
        kind = found[0].kind if found else "none"
        seen[kind] = seen.get(kind, 0) + 1
    assert seen["none"] > 100
    assert {"lost update", "G-single", "G2", "G-single in real time"} <= seen.keys()


def interleaved(choose: Random) -> list[Transaction]:
    """Transactions that read and then append, mostly one after the other, without any isolation; none is aborted."""
    lists: dict[str, list[int]] = {key: [] for key in KEYS}
    left = {
        id: [("read", key) for key in choose.sample(KEYS, choose.randrange(3))] + [("append", choose.choice(KEYS))]
        for id in range(6)
    }
    history = {id: one(f"t{id}", begin=inf, end=inf) for id in left}
    at, id = 0, 0
    while left:
        if id not in left or choose.random() < 0.3:
            id = choose.choice(list(left)[:3])
        at += 1
        each = replace(history[id], begin=min(history[id].begin, at), end=at)
        what, key = left[id].pop(0)
        if what == "append":
            lists[key].append(id)
            each = replace(each, appends={key: id})
            del left[id]
        else:
            each = replace(each, reads={**each.reads, key: list(lists[key])})
        history[id] = each
    return [*history.values(), one("last", at + 1, at + 2, reads=lists)]


@pytest.mark.parametrize("first", range(4))
def test_transactions_without_isolation_are_refused_exactly_if_no_order_fits(first: int) -> None:
    for seed in range(first, 4_000, 4):
        history = interleaved(Random(seed))
        assert (anomalies(history) == []) == is_strictly_serialisable(history), seed
