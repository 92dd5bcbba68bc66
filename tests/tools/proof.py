"""``make proof``: what the guarantees rest on, searched and tested for one commit.

Once all parts have passed, docs/tables/proof.json has their figures and the commit, and ``make pages`` writes them into
docs/proof.md. If one fails, the file stays as it was.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from kit.engines import engine_names
from rich.console import Console
from ticketlock_local.checkout import ROOT
from ticketlock_local.errors import ReleaseError
from ticketlock_local.release.commit import checked_out
from tools.every_engine import ended

_FIGURES = ROOT / "docs/tables/proof.json"
_CONSOLE = Console(soft_wrap=True, markup=False, highlight=False)
_FAULT_SEEDS = "10"
_OF_THE_WIRE = ("tests/wire/test_client_suite.py", "tests/wire/test_processes.py")


def commit_of(checkout: Path) -> str:
    """The commit of a checkout; if it has changes that are not committed, the program ends."""
    try:
        return checked_out(checkout).sha
    except ReleaseError as error:
        sys.exit(f"NO FIGURES: {error}")


def run_all(checkout: Path, parts: Sequence[Sequence[str]]) -> str:
    """Run programs of Python, and return the commit of the checkout, in which nothing may change meanwhile.

    If one fails, or if the checkout has changed, the program ends.
    """
    commit = commit_of(checkout)
    for part in parts:
        _CONSOLE.print(f"python {' '.join(part)}")
        if code := ended(subprocess.Popen([sys.executable, *part], cwd=checkout)):
            sys.exit(code)
    if (now := commit_of(checkout)) != commit:
        sys.exit(f"NO FIGURES: the checkout was {commit} at the beginning, and is {now}")
    return commit


def passed(report: Path) -> dict[str, str]:
    """How many tests passed, together and on each engine that their names have in brackets, from pytest's report."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    names = [re.split(r"[\[\]-]", case.attrib["name"]) for case in cases if case.find("skipped") is None]
    on_each = {f"on {engine}": sum(engine in name for name in names) for engine in (*engine_names(), "dynoxide")}
    counts = {"tests passed": len(names), "skipped": len(cases) - len(names), **on_each}
    return {name: f"{count:,}" for name, count in counts.items() if count}


def main() -> None:
    """Run all parts, and write their figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--schedules", default="100000", help="random ones, of locks and of units each")
    options.add_argument("--slices", help="a file with random ones of this code that were searched before")
    options.add_argument("--workers", type=int, default=2)
    asked = options.parse_args()
    os.environ["TICKETLOCK_TEST_FAULT_SEEDS"] = _FAULT_SEEDS
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        search, history, wire, engines = (Path(folder, each) for each in ("search", "history", "wire", "engines"))
        # The search takes at least one process.
        searches: tuple[str, ...] = ("--schedules", asked.schedules, "--workers", f"{max(1, asked.workers)}")
        searches += ("--slices", asked.slices) if asked.slices else ()
        tests = ("--numprocesses", f"{asked.workers}")
        commit = run_all(
            ROOT,
            (
                ("-m", "property.proof", *searches, "--figures", f"{search}"),
                ("-m", "tools.long_history", "--processes", "8", "--seconds", "60", "--figures", f"{history}"),
                ("-m", "pytest", "--quiet", *_OF_THE_WIRE, *tests, f"--junit-xml={wire}"),
                ("-m", "tools.every_engine", *tests, f"--junit-xml={engines}"),
            ),
        )
        figures: Mapping[str, Mapping[str, str]] = {
            **json.loads(search.read_text()),
            **json.loads(history.read_text()),
            "The network: the clients' own tests, with faults": {"seeds of faults": _FAULT_SEEDS, **passed(wire)},
            "The contract, on every engine": passed(engines),
        }
    told = {
        "commit": commit,
        "seconds": round(time.monotonic() - began),
        "workers": asked.workers,
        "figures": figures,
    }
    _FIGURES.write_text(f"{json.dumps(told, indent=2)}\n")
    _CONSOLE.print("The figures are in docs/tables/proof.json; make pages writes them into docs/proof.md.")


if __name__ == "__main__":
    main()
