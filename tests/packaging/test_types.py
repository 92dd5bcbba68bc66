"""What type checkers tell users: nothing about the programs of the pages; about each wrong call, what is wrong."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kit.pages import ROOT, python_blocks

pytestmark = pytest.mark.verify("two type checkers read boto3's types")

OF_UNITS = ("docs/units.md", "docs/save-and-resume.md", "docs/units-table.md")
PAGES = ("README.md", "docs/coming-from.md", "docs/python.md", *OF_UNITS)
PYRIGHT = ROOT / "node_modules" / ".bin" / "pyright"
WRONG = Path(__file__).with_name("wrong_calls.py")
# What a page leaves to its readers.
OF_READERS = {"README.md": ("charge", "order"), "docs/save-and-resume.md": ("take", "charge")}
OF_THE_CDK = "from ticketlock_cdk import"

Said = Mapping[int, list[tuple[str, str]]]
"""By line, each error: its code, and the whole of it."""
Check = Callable[[Path], dict[str, Said]]
"""A type checker, which tells by file what it says about those of a folder."""


def write_programs(folder: Path) -> None:
    """The programs of the pages, one after the other as a reader would type them; a block may be a file of its own."""
    for page in PAGES:
        blocks = [block for _, block in python_blocks(page) if OF_THE_CDK not in block]
        files = {found[1]: block for block in blocks if (found := re.match(r"# (\S+\.py)\n", block))}
        names = "".join(f"{name} = cast(Any, None)\n" for name in OF_READERS.get(page, ()))
        # Celery ships no types.
        around = f"# mypy: allow-untyped-decorators\nfrom typing import Any, cast\n{names}"
        program = [around, *(block for block in blocks if block not in files.values())]
        files[f"page_{Path(page).stem.replace('-', '_')}.py"] = "\n".join(program)
        for name, block in files.items():
            (folder / name).write_text(block)


def of_mypy(folder: Path) -> dict[str, Said]:
    """What mypy says about the files of a folder, with the settings of this project, which are strict."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said: dict[str, dict[int, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for path, line, told, code in re.findall(r"^(\S+?):(\d+): error: (.*)  \[([\w-]+)\]$", done.stdout, re.MULTILINE):
        said[Path(path).name][int(line)].append((code, told))
    return {name: dict(lines) for name, lines in said.items()}


def of_pyright(folder: Path) -> dict[str, Said]:
    settings = {"include": [str(folder)], "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [str(PYRIGHT), "--project", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    said: dict[str, dict[int, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    for each in found["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            said[Path(each["file"]).name][line].append((each.get("rule", ""), each["message"]))
    return {name: dict(lines) for name, lines in said.items()}


CHECKERS = pytest.mark.parametrize("check", [of_mypy, of_pyright], ids=["mypy", "pyright"])


@CHECKERS
def test_the_programs_of_the_pages_are_typed(check: Check, tmp_path: Path) -> None:
    write_programs(tmp_path)
    assert len(list(tmp_path.glob("*.py"))) > len(PAGES)
    assert check(tmp_path) == {}


@CHECKERS
def test_each_wrong_call_is_refused_for_what_is_wrong_and_nothing_else_is(check: Check, tmp_path: Path) -> None:
    (tmp_path / WRONG.name).write_text(WRONG.read_text())
    expected = {}
    for number, line in enumerate(WRONG.read_text().splitlines(), 1):
        if found := re.search(r"  # ([\w -]+): (.+) \| ([\w ]+)$", line):
            codes, part = (found[1], found[2]) if check is of_mypy else (found[3], "")
            expected[number] = (set(codes.split()), part)
    said = check(tmp_path).get(WRONG.name, {})
    assert {number: {code for code, _ in errors} for number, errors in said.items()} == {
        number: codes for number, (codes, _) in expected.items()
    }
    unclear = {n: said[n] for n, (_, part) in expected.items() if not any(part in told for _, told in said[n])}
    assert unclear == {}
    assert not any("Never" in told for errors in said.values() for _, told in errors)
