"""What a unit writes down is read back unchanged: every kind of value and statement, in any number of rows."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ticketlock._expressions._values import canonical_item
from ticketlock.units._packing import Entry, packed, unpacked
from ticketlock.units._rows import row_key

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(10**38) + 1, 10**38 - 1).map(str) | st.decimals(-1_000, 1_000, allow_nan=False, places=3).map(
    str
)
OCTETS = st.binary(max_size=40)


def sets(kind: str, members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(members, min_size=1, max_size=4, unique=True).map(lambda each: {kind: each})


def inside(values: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(values, max_size=3).map(lambda each: {"L": each}) | st.dictionaries(TEXTS, values, max_size=3).map(
        lambda each: {"M": each}
    )


PLAIN: st.SearchStrategy[dict[str, Any]] = st.one_of(
    TEXTS.map(lambda each: {"S": each}),
    NUMBERS.map(lambda each: {"N": each}),
    OCTETS.map(lambda each: {"B": each}),
    st.booleans().map(lambda each: {"BOOL": each}),
    st.just({"NULL": True}),
    sets("SS", TEXTS),
    sets("NS", st.integers(-1_000, 1_000).map(str)),
    sets("BS", OCTETS),
)
ITEMS = st.dictionaries(TEXTS, st.recursive(PLAIN, inside, max_leaves=12), max_size=5).map(canonical_item)
ENTRIES = st.builds(
    Entry,
    table=TEXTS,
    key=st.dictionaries(TEXTS, PLAIN, min_size=1, max_size=2).map(canonical_item),
    key_name=TEXTS,
    kind=st.sampled_from(["put", "change", "delete", "unmark"]),
    assigned=ITEMS,
    removed=st.lists(TEXTS, max_size=3).map(tuple),
)


@given(st.lists(ENTRIES, max_size=4))
def test_what_was_written_down_is_read_as_it_was(entries: list[Entry]) -> None:
    assert unpacked(packed(entries).pieces, row_key("0", "head")) == entries
