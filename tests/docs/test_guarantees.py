"""docs/guarantees.md says what the code says, and names every example of what is not promised."""

import re

from docs.test_named_tests import functions_of
from docs.test_pages import ROOT, rows, text

from ticketlock import _time
from ticketlock._queue import EXPIRY_MARGIN_MS

PAGE = "docs/guarantees.md"


def test_the_bound_of_liveness_has_the_numbers_of_the_code() -> None:
    most = {part: at_most for part, _, at_most in (row for row in rows(PAGE, "3. Liveness") if len(row) == 3)}
    assert (most["1 s"], most["2 s"]) == (f"{EXPIRY_MARGIN_MS // 1_000} s", f"{_time._DATE_RESOLUTION_MS // 1_000} s")
    assert most["reply"] == f"{_time._SLOWEST_MS // 1_000} s"
    assert most["drift"] == f"{_time._FORGOTTEN_AFTER_MS * _time._DRIFT_PER_MS / 1_000:.1f} s"


def test_each_example_of_what_is_not_promised_is_linked_where_it_stands() -> None:
    links = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", text(PAGE))
    assert links
    assert [link for link in links if link[0] not in functions_of(ROOT / link[1])] == []


def test_each_example_has_a_row() -> None:
    examples = functions_of(ROOT / "tests/docs/test_what_is_not_promised.py")
    assert {name for name in examples if name.startswith("test_")} - set(re.findall(r"test_\w+", text(PAGE))) == set()
