"""Random schedules in slices: each range of seeds is searched once for some code, and all add up."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from property.report import Report
from property.slices import WORLDS, Slices, digest_of_code, imported_by
from property.units.proof import Found
from ticketlock_local.checkout import ROOT

pytestmark = pytest.mark.verify("tests no part of the product")


def code(digest: str) -> dict[str, str]:
    """One for both worlds."""
    return dict.fromkeys(WORLDS, digest)


class Searches:
    """Counts what is searched."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def __call__(self, seeds: Iterable[int]) -> Found:
        some = list(seeds)
        self.seeds += some
        found = Found(schedules=len(some), steps=10 * len(some), commits=len(some))
        found.struck["late"] = len(some)
        return found


def search(slices: Slices) -> tuple[list[int], Found]:
    """The seeds that were searched, and the sum."""
    searches, report = Searches(), Report()
    with ThreadPoolExecutor(1) as pool:
        parts = list(slices.parts("units", pool, searches, Found.of))
        total = report.counts("Units", Found, parts, asked=slices.schedules)
    assert report.failures == []
    return sorted(searches.seeds), total


def test_what_was_searched_of_some_code_is_not_searched_again_and_adds_up(tmp_path: Path) -> None:
    file = tmp_path / "slices.jsonl"
    assert search(Slices(1_000, 500, file, code("one")))[0] == list(range(1_000, 1_500))
    assert search(Slices(1_000, 500, file, code("one")))[0] == []
    seeds, total = search(Slices(0, 1_750, file, code("one")))
    assert seeds == [*range(1_000), *range(1_500, 1_750)]
    assert (total.schedules, total.steps, total.struck["late"], total.struck["twice"]) == (1_750, 17_500, 1_750, 0)


def test_what_was_searched_of_other_code_or_of_the_other_world_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "slices.jsonl"
    search(Slices(0, 250, file, code("one")))
    assert len(search(Slices(0, 250, file, code("two")))[0]) == 250
    with ThreadPoolExecutor(1) as pool:
        searches = Searches()
        list(Slices(0, 250, file, code("one")).parts("locks", pool, searches, Found.of))
    assert len(searches.seeds) == 250


def test_a_digest_of_code_changes_with_its_files_and_the_pinned_packages_and_not_with_others(tmp_path: Path) -> None:
    for name in ("lock.py", "requirements.txt", "README.md"):
        (tmp_path / name).touch()
    digests = [digest_of_code(tmp_path, [tmp_path / "lock.py"])]
    for name in ("README.md", "lock.py", "requirements.txt"):
        (tmp_path / name).write_text("more")
        digests.append(digest_of_code(tmp_path, [tmp_path / "lock.py"]))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("world", WORLDS)
def test_the_files_of_a_world_are_those_that_its_schedules_import(world: str) -> None:
    files = imported_by(WORLDS[world], ROOT)
    assert files == imported_by(WORLDS[world], ROOT, schedules=50)
    assert ROOT / "src/ticketlock/locks/_protocol.py" in files
    of_units = ROOT / "src/ticketlock/units/_commit/__init__.py"
    assert (of_units in files) == (world == "units")


def test_a_line_that_was_broken_off_is_searched_again(tmp_path: Path) -> None:
    file = tmp_path / "slices.jsonl"
    search(Slices(0, 500, file, code("one")))
    file.write_text(file.read_text()[:-10])
    assert len(search(Slices(0, 500, file, code("one")))[0]) == 250
    assert search(Slices(0, 500, file, code("one")))[0] == []


def test_ranges_that_follow_one_another_are_joined_and_still_count(tmp_path: Path) -> None:
    file = tmp_path / "slices.jsonl"
    for first in (0, 250, 1_000):
        search(Slices(first, 250, file, code("one")))
    search(Slices(0, 250, file, code("another")))
    for commit in ("c0ffee", "a later one, to which nothing was added"):
        Slices(0, 0, file, code("one")).join({"units": Found.of, "locks": Found.of}, commit)
    assert [json.loads(line)["commit"] for line in file.read_text().splitlines()] == ["c0ffee"] * 2
    seeds, total = search(Slices(0, 1_250, file, code("one")))
    assert seeds == list(range(500, 1_000))
    assert (total.schedules, total.steps, total.struck["late"]) == (1_250, 12_500, 1_250)


def test_a_part_of_a_range_that_was_joined_is_searched_again_and_the_range_stays(tmp_path: Path) -> None:
    file = tmp_path / "slices.jsonl"
    for schedules in (1_000, 250):
        search(Slices(0, schedules, file, code("one")))
        Slices(0, 0, file, code("one")).join({"units": Found.of}, "c0ffee")
    assert search(Slices(0, 1_000, file, code("one")))[0] == []


def test_a_failure_that_was_found_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "slices.jsonl"

    def finds(_: Iterable[int]) -> Found:
        return Found(schedules=249, broken=["cuts: replay it"])

    with ThreadPoolExecutor(1) as pool:
        list(Slices(0, 250, file, code("one")).parts("units", pool, finds, Found.of))
    with ThreadPoolExecutor(1) as pool:
        ((_, again),) = Slices(0, 250, file, code("one")).parts("units", pool, finds, Found.of)
    assert again.result().broken == ["cuts: replay it"]
