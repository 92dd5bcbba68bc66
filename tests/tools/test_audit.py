"""`make audit` says "not audited" if no advisory source answers, and reports the advisories that one knows."""

import gzip
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ticketlock_local.checkout import ROOT
from ticketlock_local.checks import audit as audits
from ticketlock_local.checks.audit import Sources, audit

pytestmark = pytest.mark.verify("runs pip-audit, and tests no part of the product")

FAMOUS = {"jinja2": "2.4.1", "lodash": "4.17.0"}
"""Each source is asked about one of them first."""


@contextmanager
def advisories(known: dict[str, str]) -> Iterator[Sources]:
    """Both sources, which know of one advisory about each of these packages, in this version."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked = json.loads(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self._answer(_osv(asked, known) if self.path == "/v1/query" else _npm(asked, known))

        def do_GET(self) -> None:
            # What npm wants to know of a package that it has to warn about.
            name = self.path.strip("/")
            version = known[name]
            self._answer(
                {
                    "name": name,
                    "dist-tags": {"latest": version},
                    "versions": {version: {"name": name, "version": version}},
                }
            )

        def _answer(self, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            here = f"http://127.0.0.1:{server.server_port}"
            yield Sources(osv_url=f"{here}/v1/query", npm_registry=here)
        finally:
            server.shutdown()
            thread.join()


def _osv(asked: Any, known: dict[str, str]) -> Any:
    if known.get(asked["package"]["name"]) != asked["version"]:
        return {}
    return {"vulns": [{"id": "PYSEC-2026-1", "summary": "a flaw", "affected": []}]}


def _npm(asked: Any, known: dict[str, str]) -> Any:
    return {
        name: [
            {
                "id": 1,
                "url": "https://127.0.0.1/1",
                "title": "a flaw",
                "severity": "high",
                "vulnerable_versions": known[name],
            }
        ]
        for name, versions in asked.items()
        if known.get(name) in versions
    }


@pytest.fixture(scope="module")
def unreachable() -> Sources:
    # Nothing listens on the discard port of this machine.
    return Sources(osv_url="http://127.0.0.1:9/v1/query", npm_registry="http://127.0.0.1:9")


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_sources_that_cannot_be_reached_leave_everything_not_audited(
    unreachable: Sources, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(unreachable) == 2
    told = lines(capsys)
    assert len(told) == len(audits._PINNED) + 2
    assert [
        line for line in told if not re.match(r"not audited: .+, because .*(127\.0\.0\.1|ECONNREFUSED)", line)
    ] == []


def test_sources_that_know_nothing_about_anything_leave_everything_not_audited(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a mirror does that has packages and no advisories."""
    with advisories({}) as sources:
        assert audit(sources) == 2
    told = lines(capsys)
    assert told
    assert [line for line in told if "not audited" not in line or "knows no advisory about" not in line] == []


def test_packages_without_an_advisory_at_sources_that_have_some_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    with advisories(FAMOUS) as sources:
        assert audit(sources) == 0
    told = lines(capsys)
    assert len(told) == len(audits._PINNED) + 2
    assert [line for line in told if not line.startswith("no known vulnerability: ")] == []


ONE_OF_EACH = {
    "requirements.txt": "boto3",
    "functions/requirements.txt": "aws-lambda-powertools",
    "infra/ticketlock_local/engines/ministack-requirements.txt": "h11",
    "infra/ticketlock_local/cloud/aws-cli-requirements.txt": "awscli",
    "benchmarks/clients-peer-requirements.txt": "python-dynamodb-lock",
    "benchmarks/peer-requirements.txt": "state-machine-semaphore",
    "benchmarks/units-peer-requirements.txt": "flask-cors",
    "package-lock.json": "aws-cdk",
}


def test_an_advisory_about_a_pinned_package_is_reported_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with advisories(FAMOUS | {name: version_in(file, name) for file, name in ONE_OF_EACH.items()}) as sources:
        assert audit(sources) == 1
    told = [line for line in lines(capsys) if line.startswith("vulnerable: ")]
    untold = {file for file, name in ONE_OF_EACH.items() if not any(name in line and file in line for line in told)}
    assert untold == set()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose ``npm`` and ``pip_audit`` are run in the place of the real ones; they answer nothing yet."""
    answer(tmp_path / "npm", None)
    answer(tmp_path / "pip_audit.py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def answer(tool: Path, value: Any) -> None:
    tool.write_text(f"#!{sys.executable} -I\nprint({json.dumps(value)!r})\n")
    tool.chmod(0o755)


def test_findings_are_reported_beside_packages_without_an_answer(
    tools: Path, unreachable: Sources, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = [{"name": name, "skip_reason": "it is on no index"} for name in ("mine", "yours")]
    flawed = {"name": "theirs", "version": "1.0", "vulns": [{"id": "PYSEC-2026-1"}]}
    answer(tools / "pip_audit.py", {"dependencies": [skipped[0], flawed, skipped[1]]})
    assert audit(unreachable) == 1
    for_one_list = [line for line in lines(capsys) if "functions/requirements.txt" in line]
    assert for_one_list == [
        "vulnerable: theirs 1.0: PYSEC-2026-1 (functions/requirements.txt)",
        "not audited: functions/requirements.txt, because mine: it is on no index",
        "not audited: functions/requirements.txt, because yours: it is on no index",
    ]


@pytest.mark.parametrize("value", [None, [], {"dependencies": [{}]}, {"vulnerabilities": ["lodash"]}, "busy"])
def test_an_answer_that_is_not_understood_leaves_everything_not_audited(
    value: Any, tools: Path, unreachable: Sources, capsys: pytest.CaptureFixture[str]
) -> None:
    for tool in ("npm", "pip_audit.py"):
        answer(tools / tool, value)
    assert audit(unreachable) == 2
    assert [line for line in lines(capsys) if not line.startswith("not audited: ")] == []


def version_in(file: str, name: str) -> str:
    text = (ROOT / file).read_text()
    if file.endswith(".json"):
        return str(json.loads(text)["packages"][f"node_modules/{name}"]["version"])
    (version,) = re.findall(rf"^{name}==(\S+)", text, re.MULTILINE)
    return str(version)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked archive: git tracks nothing")
def test_every_list_of_pinned_packages_is_audited() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    lists = {file for file in tracked if file.endswith(("requirements.txt", "package-lock.json"))}
    pinned = {file for file in lists if file.endswith(".json") or "==" in (ROOT / file).read_text()}
    assert pinned == {*audits._PINNED, "requirements.txt", "package-lock.json"}
