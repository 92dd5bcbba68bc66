"""docs/guarantees.md says what the code says, and names every example of what is not promised."""

import math
import re
from pathlib import Path

import pytest
from kit.pages import ROOT, defaults, functions_of, is_in_make_test, rows, text

from ticketlock import LockClient
from ticketlock.locks._queue import EXPIRY_MARGIN_MS
from ticketlock.wire import _table_time as _time

PAGE = "docs/guarantees.md"
FILES = re.compile(r"tests/[\w/]+/test_\w+\.py")
DRIFT_MS = _time._FORGOTTEN_AFTER_MS * _time._DRIFT_PER_MS


def parts_of_the_bound() -> dict[str, str]:
    return {part: at_most for part, _, at_most in (row for row in rows(PAGE, "3. Liveness") if len(row) == 3)}


def test_the_bound_of_liveness_has_the_numbers_of_the_code() -> None:
    most = parts_of_the_bound()
    assert (most["1 s"], most["2 s"]) == (f"{EXPIRY_MARGIN_MS // 1_000} s", f"{_time._DATE_RESOLUTION_MS // 1_000} s")
    assert most["reply"] == f"{_time._SLOWEST_MS // 1_000} s"
    assert most["drift"] == f"{DRIFT_MS / 1_000:.1f} s"


def told(sentence: str) -> list[float]:
    """The numbers of a sentence of the page, which may be broken anywhere."""
    found = re.search(sentence.replace(" ", r"\s+"), text(PAGE))
    assert found is not None, sentence
    return [float(number) for number in found.groups()]


def rounded_up(ms: float) -> float:
    return math.ceil(ms / 100) / 10


def test_what_the_page_reckons_by_the_bound_of_liveness_is_so() -> None:
    _, longest_sleep_s = defaults(LockClient)["check_every"]
    assert told(r"the longest of `check_every`, ([\d.]+) s unless set") == [longest_sleep_s]
    lease_s, reply_ms, crash_s = told(
        r"With a lease of (\d+) s and replies of (\d+) ms, the first in line has the lock ([\d.]+) s after"
    )
    uncertain_ms = _time._DATE_RESOLUTION_MS + reply_ms + DRIFT_MS
    judged_ms = EXPIRY_MARGIN_MS + uncertain_ms + longest_sleep_s * 1_000
    assert crash_s == rounded_up(lease_s * 1_000 + uncertain_ms + judged_ms)
    more_s, of_replies_ms = told(r"for ([\d.]+) s more at the latest, where replies take (\d+) ms")
    assert of_replies_ms == reply_ms
    assert more_s == rounded_up(judged_ms)


def test_each_example_of_what_is_not_promised_is_linked_where_it_stands() -> None:
    links = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", text(PAGE))
    assert links
    assert [link for link in links if link[0] not in functions_of(ROOT / link[1])] == [], (
        "the linked file has no such test"
    )


@pytest.mark.parametrize("file", ["test_what_is_not_promised.py", "test_what_units_do_not_promise.py"])
def test_each_example_has_a_row(file: str) -> None:
    examples = functions_of(ROOT / "tests/docs" / file)
    assert {name for name in examples if name.startswith("test_")} - set(re.findall(r"test_\w+", text(PAGE))) == set()


@pytest.mark.parametrize("heading", re.findall(r"^## (\d\. .*|Units of work)$", text(PAGE), re.MULTILINE))
def test_make_test_asks_every_guarantee_and_every_row_of_it(heading: str) -> None:
    section = text(PAGE).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert asked_first(section)
    of_rows = [row for row in re.findall(r"^\|.*\|$", section, re.MULTILINE) if FILES.search(row)]
    assert [row for row in of_rows if not asked_first(row)] == [], (
        "a row names no test of `make test`: always(...) adds one"
    )


def asked_first(told: str) -> list[str]:
    """The files of tests that are named there and of which `make test` runs something."""
    return [path for path in FILES.findall(told) if is_in_make_test(ROOT / path)]


def test_a_file_that_make_test_does_not_run_is_distinguished_from_others(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    left = 'pytestmark = pytest.mark.verify("slow")\n'
    asked = '@pytest.mark.always("needed")\ndef test_it(): ...\n'
    found = {}
    for name, source in {"left": left, "asked": left + asked, "unmarked": "def test_it(): ...\n"}.items():
        file.write_text(source)
        found[name] = is_in_make_test(file)
    assert found == {"left": False, "asked": True, "unmarked": True}
