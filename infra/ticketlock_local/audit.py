"""Known vulnerabilities of everything that is pinned here; what nobody answered for is "not audited", never clean.

Python packages are asked about by pip-audit at OSV, Node's by ``npm audit`` at the registry. A mirror may answer
"nothing known" about whatever it is asked, so each source is first asked about a package whose flaws are famous.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ticketlock_local.checkout import ROOT

_TIMEOUT_S = 300.0
_FAMOUS_PYTHON = ("jinja2", "2.4.1")
_FAMOUS_NODE = ("lodash", "4.17.0")
# Each with all that it needs, so that nothing is left to resolve.
_PINNED = (
    "functions/requirements.txt",
    "infra/ticketlock_local/ministack-requirements.txt",
    "benchmarks/clients-peer-requirements.txt",
    "benchmarks/peer-requirements.txt",
)


class _Unanswered(Exception):
    """Nobody said whether there are advisories; the text says why."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Who is asked.

    Attributes:
        osv_url: the query of an OSV API: https://google.github.io/osv.dev/post-v1-query/
        npm_registry: None for the registry that npm is configured for.
    """

    osv_url: str = "https://api.osv.dev/v1/query"
    npm_registry: str | None = None


def audit(sources: Sources | None = None) -> int:
    """Return 0 only when every pinned package was asked about, and none has an advisory."""
    asked = _Audit(sources if sources is not None else Sources())
    verdicts = [
        _tell("the packages of requirements.txt, as installed", asked.installed),
        *(_tell(file, partial(asked.pinned, ROOT / file)) for file in _PINNED),
        _tell("package-lock.json", partial(asked.locked, ROOT)),
    ]
    return int(not all(verdicts))


def _tell(what: str, ask: Callable[[], Sequence[str]]) -> bool:
    """Print what is known of one list of packages; whether it is clean."""
    try:
        found = ask()
    except _Unanswered as unanswered:
        print(f"not audited: {what}, because {unanswered}")
        return False
    for advisory in found:
        print(f"vulnerable: {advisory} ({what})")
    if not found:
        print(f"no known vulnerability: {what}")
    return not found


class _Audit:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def installed(self) -> list[str]:
        """Advisories about what this interpreter has installed, but for ticketlock itself."""
        self._prove(self._osv)
        return self._pip_audit("--skip-editable")

    def pinned(self, file: Path) -> list[str]:
        """Advisories about the packages of a requirements file."""
        self._prove(self._osv)
        return self._requirements(file)

    def locked(self, folder: Path) -> list[str]:
        """Advisories about the packages of a folder's package-lock.json."""
        self._prove(self._npm)
        return self._npm_audit(folder)

    @staticmethod
    def _prove(why_unproven: str) -> None:
        if why_unproven:
            raise _Unanswered(why_unproven)

    @cached_property
    def _osv(self) -> str:
        """Why OSV's answers count for nothing; empty where they count."""
        return _unproven("OSV", _FAMOUS_PYTHON, self._famous_python)

    @cached_property
    def _npm(self) -> str:
        """The same of the npm registry."""
        return _unproven("the npm registry", _FAMOUS_NODE, self._famous_node)

    def _famous_python(self, folder: Path) -> list[str]:
        file = folder / "requirements.txt"
        file.write_text("{}=={}\n".format(*_FAMOUS_PYTHON))
        return self._requirements(file)

    def _famous_node(self, folder: Path) -> list[str]:
        name, version = _FAMOUS_NODE
        root = {"name": "famous", "version": "0.0.0", "dependencies": {name: version}}
        packages = {"": root, f"node_modules/{name}": {"version": version}}
        lock = {"name": "famous", "lockfileVersion": 3, "requires": True, "packages": packages}
        (folder / "package.json").write_text(json.dumps(root))
        (folder / "package-lock.json").write_text(json.dumps(lock))
        return self._npm_audit(folder)

    def _requirements(self, file: Path) -> list[str]:
        return self._pip_audit("--no-deps", "--disable-pip", "--requirement", str(file))

    def _pip_audit(self, *what: str) -> list[str]:
        source = ("--vulnerability-service", "osv", "--osv-url", self._sources.osv_url)
        form = ("--format", "json", "--desc", "off", "--progress-spinner", "off")
        answer = _json([sys.executable, "-m", "pip_audit", *source, *form, *what])
        found: list[str] = []
        for package in answer["dependencies"]:
            if "skip_reason" in package and package["name"] != "ticketlock":
                raise _Unanswered(package["skip_reason"])
            found += [
                f"{package['name']} {package['version']}: {advisory['id']}" for advisory in package.get("vulns", [])
            ]
        return found

    def _npm_audit(self, folder: Path) -> list[str]:
        registry = self._sources.npm_registry
        more = [] if registry is None else ["--registry", registry]
        command = ["npm", "audit", "--package-lock-only", "--json", "--no-update-notifier", *more]
        answer = _json(command, folder)
        if "vulnerabilities" not in answer:
            raise _Unanswered(str(answer.get("message") or answer.get("error") or answer))
        return [f"{name}: {each['severity']}, {each['range']}" for name, each in answer["vulnerabilities"].items()]


def _unproven(source: str, famous: tuple[str, str], ask: Callable[[Path], list[str]]) -> str:
    try:
        with tempfile.TemporaryDirectory(prefix="ticketlock-audit-") as folder:
            known = ask(Path(folder))
    except _Unanswered as unanswered:
        return str(unanswered)
    return "" if known else "{} knows no advisory about {} {}, which has several".format(source, *famous)


def _json(command: Sequence[str], folder: Path = ROOT) -> dict[str, Any]:
    """What a tool printed. Its exit code says no more: failures and findings have the same one."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unanswered(str(error)) from error
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip() or f"it ended with status {done.returncode}"
        raise _Unanswered(said.splitlines()[-1]) from None
    return answer
