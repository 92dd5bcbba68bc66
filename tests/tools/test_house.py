"""`make check` fails if a figure of `size.json` has grown, and `make sizes` writes those that fell."""

import json
from pathlib import Path

import pytest
from tools import house


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Figures of a project that has two."""
    found = [house.Row("lines", ("", ""), None, 7), house.Row("words", ("", ""), None, 5)]
    monkeypatch.setattr(house, "rows", lambda: found)
    return tmp_path / "size.json"


@pytest.mark.parametrize(
    ("said", "code", "told"),
    [
        ({"lines": 7, "words": 6}, 0, ""),
        ({"lines": 6, "words": 5}, 1, "lines: 7, and size.json says 6"),
        ({"words": 5}, 1, "lines: 7, not in size.json"),
    ],
)
def test_a_figure_that_grew_is_named_and_one_that_fell_is_written(
    kept: Path, capsys: pytest.CaptureFixture[str], said: dict[str, int], code: int, told: str
) -> None:
    kept.write_text(json.dumps({"figures": said, "raised": {"lines": "a reason"}}))
    assert house.main(["--check"], kept) == code
    assert told in capsys.readouterr().err
    assert json.loads(kept.read_text())["figures"] == said
    assert house.main([], kept) == code
    assert json.loads(kept.read_text()) == {
        "figures": {"lines": said.get("lines", 7), "words": 5},
        "raised": {"lines": "a reason"},
    }


def test_what_the_tests_run_less_of_is_named_and_the_sizes_stay(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, branches = (f"{what} of src that `make test` does not run" for what in ("lines", "branches"))
    kept.write_text(json.dumps({"figures": {"lines": 9}, "uncovered": {lines: 3, branches: 5}, "raised": {}}))
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"totals": {"missing_lines": 2, "missing_branches": 6}}))
    assert house.main(["--uncovered", str(report)], kept) == 1
    assert f"{branches}: 6, and size.json says 5" in capsys.readouterr().err
    assert json.loads(kept.read_text()) == {
        "figures": {"lines": 9},
        "uncovered": {lines: 2, branches: 5},
        "raised": {},
    }


def test_what_a_call_runs_is_counted_without_the_table_in_memory() -> None:
    acquire = house.walks()["`acquire` and release"]
    assert {"client/_client.py", "locks/_grants.py", "wire/_driver.py"} < acquire.files
    assert not [file for file in acquire.files if file.startswith("testing/")]
    assert len(acquire.functions) > len(acquire.files)
    assert acquire.hops > len(acquire.files)


def test_a_name_that_another_room_imports_is_found() -> None:
    assert "LockClient" in house.names_at_the_door("client", house.ROOT / "src")
