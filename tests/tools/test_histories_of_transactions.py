"""The checker of histories of transactions: serial ones pass, and each anomaly is found by its name."""

from dataclasses import replace
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


ABORTED = one("a", outcome="aborted", appends={"x": 1})
UNKNOWN = one("u", end=10, outcome="unknown", appends={"x": 1})
NONE, SEEN = one("b", 20, 30, reads={"x": []}), one("c", 40, 50, reads={"x": [1]})
X, Y, XY = one("a", appends={"x": 1}), one("b", appends={"y": 1}), one("a", appends={"x": 1, "y": 1})
X2 = one("b", appends={"x": 2})
# Its reads count once another one has read its element, and then what it saw was applied as well.
READ_Y = one("u", outcome="unknown", reads={"y": []}, appends={"x": 1})
READ_Z, THEN = (
    one("u", outcome="unknown", reads={"z": []}, appends={"y": 1}),
    one("v", outcome="unknown", reads={"y": [1]}, appends={"x": 2}),
)
WROTE_Z = one("w", reads={"y": []}, appends={"z": 3})
FIRST, OVERLAPS = one("a", 0, 10, appends={"x": 1}), one("c", 0, 40, reads={"x": []}, appends={"y": 1})
OWN = one("a", reads={"y": [1]}, appends={"x": 1, "y": 1}, reads_own="y")


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([], ""),
        # An element of an aborted transaction is seen by itself alone.
        ([ABORTED, one("b", reads={"x": [1]})], "dirty read"),
        ([ABORTED, one("b", reads={"x": [1]}, outcome="aborted")], "dirty read"),
        ([ABORTED, one("b", reads={"x": []})], ""),
        ([replace(ABORTED, reads={"x": [1]}, reads_own="x")], ""),
        # An element of unknown outcome may be seen or not, and late; but it does not go again.
        ([UNKNOWN, one("b", 20, reads={"x": [1]})], ""),
        ([UNKNOWN, one("b", 20, reads={"x": None})], ""),
        ([UNKNOWN, NONE, SEEN], ""),
        ([UNKNOWN, replace(NONE, begin=60, end=70), SEEN], "G-single in real time"),
        ([READ_Y, one("w", reads={"x": []}, appends={"y": 2})], ""),
        ([READ_Y, one("w", reads={"x": []}, appends={"y": 2}), one("s", reads={"x": [1]})], "G2"),
        ([READ_Z, THEN, WROTE_Z], ""),
        ([READ_Z, THEN, WROTE_Z, one("s", reads={"x": [2]})], "G2"),
        # Two that append to one list: the second has read what the first has appended.
        ([replace(X, reads={"x": []}), replace(X2, reads={"x": []})], "lost update"),
        ([replace(X, reads={"x": []}), replace(X2, reads={"x": [1]})], ""),
        ([replace(X, reads={"x": []}), replace(X2, reads={"x": [1, 2]}, reads_own="x")], ""),
        # A list is read in one order, with what its reader has appended itself, behind what others have, and once.
        ([X, X2, one("c", reads={"x": [1, 2]}), one("d", reads={"x": [2, 1]})], "incompatible orders"),
        ([X, X2, one("c", reads={"x": [1]}), one("d", reads={"x": [2]})], "incompatible orders"),
        ([X, X2, one("c", reads={"x": [2]}), one("d", reads={"x": [2, 1]})], ""),
        ([replace(X, reads={"x": []}, reads_own="x")], "internal inconsistency"),
        ([replace(X, reads={"x": []})], ""),
        ([replace(X, reads={"x": [1, 2]}, reads_own="x"), X2], "internal inconsistency"),
        ([X, one("b", reads={"x": [1, 1]})], "duplicate element"),
        ([one("b", reads={"x": [7]})], "garbage read"),
        # Every later transaction reads a committed element.
        ([FIRST, one("b", 11, 20, reads={"x": []})], "lost append"),
        ([FIRST, one("b", 10, 20, reads={"x": []})], ""),
        # Circles: writes in opposite orders; two that see each other; one that sees half of another; write skew.
        (
            [
                XY,
                one("b", appends={"x": 2, "y": 2}),
                one("c", reads={"x": [1, 2]}),
                one("d", reads={"y": [2, 1]}),
            ],
            "G0",
        ),
        ([replace(X, reads={"y": [1]}), replace(Y, reads={"x": [1]})], "G1c"),
        ([XY, one("b", reads={"x": [1], "y": []})], "G-single"),
        ([replace(X, reads={"x": [], "y": []}), replace(Y, reads={"x": [], "y": []})], "G2"),
        # A reader of its own element alone comes before transactions that no one has read.
        ([OWN, one("b", reads={"x": []}, appends={"y": 2})], "G2"),
        ([OWN, one("b", reads={"x": [1]}, appends={"y": 2})], ""),
        # Readers that see two others in opposite orders.
        ([X, Y, one("c", reads={"x": [1], "y": []}), one("d", reads={"x": [], "y": [1]})], "G2"),
        # One that begins later reads no less, and appends behind; none reads what begins after its end.
        ([X, one("b", 10, 20, reads={"x": [1]}), one("c", 30, 40, reads={"x": []})], "G-single in real time"),
        ([X, one("b", 10, 20, reads={"x": [1]}), one("c", 15, 40, reads={"x": []})], ""),
        ([FIRST, one("b", 20, 30, appends={"x": 2}), one("c", reads={"x": [2, 1]})], "G0 in real time"),
        ([one("a", 20, 30, appends={"x": 1}), one("b", 0, 10, reads={"x": [1]})], "G1c in real time"),
        # One that overlaps with two is not both before the first and after the second.
        ([FIRST, one("b", 20, 30, reads={"y": []}), OVERLAPS], "G2 in real time"),
        ([FIRST, one("b", 5, 30, reads={"y": []}), OVERLAPS], ""),
        (
            [FIRST, one("b", 20, 30, appends={"y": 2}), one("c", 0, 40, reads={"x": [], "y": [2]})],
            "G-single in real time",
        ),
    ],
)
def test_an_anomaly_is_found_by_its_name_exactly_if_no_order_fits(history: list[Transaction], found: str) -> None:
    assert [anomaly.kind for anomaly in anomalies(history)] == ([found] if found else [])
    assert is_strictly_serialisable(history) == (not found)


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


@settings(max_examples=100)
@given(serial())
def test_transactions_that_were_applied_one_after_the_other_pass(history: list[Transaction]) -> None:
    assert anomalies(history) == []
    assert is_strictly_serialisable(history)


@settings(max_examples=500)
@given(serial(), st.data())
def test_what_is_changed_is_refused_exactly_if_no_order_fits(history: list[Transaction], data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        history = changed(history, data.draw)
    found = anomalies(history)
    event(found[0].kind if found else "as good as before")
    assert (found == []) == is_strictly_serialisable(history), [str(each) for each in found]
