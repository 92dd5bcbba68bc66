"""The numbers of docs/units.md and of what it refers to are those of the code."""

import re

from kit.pages import defaults, text

from ticketlock import aio
from ticketlock.units import Units, _meeting, _record, _rows, _sweeping, _work
from ticketlock.units._marks import Marks
from ticketlock.wire import _item_requests

DAY_S = 24 * 3_600


def says(page: str, sentence: str) -> bool:
    """Whether it stands on the page, which may break it anywhere."""
    return re.search(re.escape(sentence).replace(r"\ ", r"\s+"), text(page)) is not None


def test_how_much_a_request_takes() -> None:
    assert (_work.MOST_ACTIONS, _work.MOST_BYTES, _item_requests.MOST_TOGETHER) == (100, 4 * 1_024**2, 100)
    assert says("docs/units.md", "**Up to 100 items and 4 MB**")
    assert says("docs/units.md", "reads up to 100 items of one instant in one request")


def test_what_units_add_to_items() -> None:
    ours, local = (
        f"Items up to 400 KB less {_work.VERSION_BYTES} bytes",
        f"less {_work.VERSION_BYTES} more for each local",
    )
    assert says("docs/units.md", f"{ours}, and {local} secondary index; less {_work.OURS_BYTES} bytes where")


def test_for_how_long_units_wait_for_each_other() -> None:
    assert defaults(Units)["timeout"] == defaults(aio.Units)["timeout"] == 10
    assert says("docs/units.md", f"rolls that back after {_meeting.GRACE_MS / 1_000} s; it waits for an older one")
    assert says("docs/units.md", "up to its `timeout` (10 s)")
    assert _record.LEASE_MS == 60_000
    for page, told in (
        ("docs/units.md", "until its lease is over, a minute after its last sign of life"),
        ("docs/guarantees.md", "60 s after its last sign of life"),
        ("docs/units-table.md", "a minute, renewed"),
        ("docs/features.md", "its lease of 60 s"),
        ("docs/decisions/0036-units-of-work.md", "60 s, renewed at its half"),
    ):
        assert says(page, told), page


def test_for_how_long_it_is_kept() -> None:
    assert _rows.RECEIPT_IS_KEPT_S == 30 * DAY_S
    assert says("docs/units.md", "which is kept for 30 days")
    assert _record.CLOSED_IS_KEPT_S == DAY_S
    assert says("docs/units-table.md", "a day after it was closed, for a saved unit 30 days")
    assert _record.SAVED_IS_KEPT_S == _rows.RECEIPT_IS_KEPT_S
    assert says("docs/units-in-workflows.md", "kept for 30 days after it was closed, as a name's receipt is")


def test_when_a_sweep_checks_a_unit_again() -> None:
    assert _sweeping.COPIES_COME_WITHIN_MS == 10 * 60_000
    assert says("docs/units.md", "It checks a unit again ten minutes after the unit has ended")


def test_the_attributes_that_units_add() -> None:
    marks = Marks(defaults(Units)["prefix"])
    assert says("docs/units.md", f"`{marks.version}`, the unit that wrote it last")
    assert says("docs/units.md", f"`{marks.mark}`")
