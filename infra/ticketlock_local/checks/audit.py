"""Checks all pinned packages for known vulnerabilities; without an answer a package is "not audited", never clean.

For Python packages pip-audit asks OSV; for Node's ``npm audit`` asks the registry. A mirror may answer "nothing known"
to every question, so each source is first asked about a package with well-known vulnerabilities.
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
_ANSWER_TOLD = 200
_FAMOUS_PYTHON = ("jinja2", "2.4.1")
_FAMOUS_NODE = ("lodash", "4.17.0")
# Each list includes all dependencies, so that nothing is left to resolve.
_PINNED = (
    "functions/requirements.txt",
    "infra/ticketlock_local/engines/ministack-requirements.txt",
    "infra/ticketlock_local/cloud/aws-cli-requirements.txt",
    "benchmarks/clients-peer-requirements.txt",
    "benchmarks/peer-requirements.txt",
    "benchmarks/units-peer-requirements.txt",
)


class _Unanswered(Exception):
    """There was no answer about advisories; the text says why."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one list of packages.

    Attributes:
        advisories: about its packages.
        unanswered: why there was no answer, about packages or about the whole list.
    """

    advisories: Sequence[str]
    unanswered: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources that are asked.

    Attributes:
        osv_url: the query of an OSV API: https://google.github.io/osv.dev/post-v1-query/
        npm_registry: None for the registry that npm is configured for.
    """

    osv_url: str = "https://api.osv.dev/v1/query"
    npm_registry: str | None = None


def audit(sources: Sources | None = None) -> int:
    """Return 0 only if there was an answer about every pinned package, and none has an advisory.

    Returns:
        1 if one has an advisory, else 2 if there was no answer about one.
    """
    asked = _Audit(sources if sources is not None else Sources())
    known = [
        _reported("the packages of requirements.txt, as installed", asked.installed),
        *(_reported(file, partial(asked.pinned, ROOT / file)) for file in _PINNED),
        _reported("package-lock.json", partial(asked.locked, ROOT)),
    ]
    if any(each.advisories for each in known):
        return 1
    return 2 if any(each.unanswered for each in known) else 0


def _reported(what: str, ask: Callable[[], _Known]) -> _Known:
    """Find and print the advisories about one list of packages."""
    try:
        known = ask()
    except _Unanswered as unanswered:
        known = _Known((), [str(unanswered)])
    for advisory in known.advisories:
        print(f"vulnerable: {advisory} ({what})")
    for why in known.unanswered:
        print(f"not audited: {what}, because {why}")
    if not known.advisories and not known.unanswered:
        print(f"no known vulnerability: {what}")
    return known


class _Audit:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def installed(self) -> _Known:
        """Advisories about all packages that this interpreter has installed, except ticketlock."""
        self._prove(self._osv)
        return self._pip_audit("--skip-editable")

    def pinned(self, file: Path) -> _Known:
        """Advisories about the packages of a requirements file."""
        self._prove(self._osv)
        return self._requirements(file)

    def locked(self, folder: Path) -> _Known:
        """Advisories about the packages of a folder's package-lock.json."""
        self._prove(self._npm)
        return self._npm_audit(folder)

    @staticmethod
    def _prove(why_unproven: str) -> None:
        if why_unproven:
            raise _Unanswered(why_unproven)

    @cached_property
    def _osv(self) -> str:
        """Why OSV's answers prove nothing; empty if they can be trusted."""
        return _unproven("OSV", _FAMOUS_PYTHON, self._famous_python)

    @cached_property
    def _npm(self) -> str:
        """The same for the npm registry."""
        return _unproven("the npm registry", _FAMOUS_NODE, self._famous_node)

    def _famous_python(self, folder: Path) -> _Known:
        file = folder / "requirements.txt"
        file.write_text("{}=={}\n".format(*_FAMOUS_PYTHON))
        return self._requirements(file)

    def _famous_node(self, folder: Path) -> _Known:
        name, version = _FAMOUS_NODE
        root = {"name": "famous", "version": "0.0.0", "dependencies": {name: version}}
        packages = {"": root, f"node_modules/{name}": {"version": version}}
        lock = {"name": "famous", "lockfileVersion": 3, "requires": True, "packages": packages}
        (folder / "package.json").write_text(json.dumps(root))
        (folder / "package-lock.json").write_text(json.dumps(lock))
        return self._npm_audit(folder)

    def _requirements(self, file: Path) -> _Known:
        return self._pip_audit("--no-deps", "--disable-pip", "--requirement", str(file))

    def _pip_audit(self, *what: str) -> _Known:
        source = ("--vulnerability-service", "osv", "--osv-url", self._sources.osv_url)
        form = ("--format", "json", "--desc", "off", "--progress-spinner", "off")
        return _asked([sys.executable, "-m", "pip_audit", *source, *form, *what], ROOT, _by_pip_audit)

    def _npm_audit(self, folder: Path) -> _Known:
        registry = self._sources.npm_registry
        more = [] if registry is None else ["--registry", registry]
        command = ["npm", "audit", "--package-lock-only", "--json", "--no-update-notifier", *more]
        return _asked(command, folder, _by_npm)


def _by_pip_audit(answer: Any) -> _Known:
    packages = [package for package in answer["dependencies"] if package["name"] != "ticketlock"]
    return _Known(
        [
            f"{package['name']} {package['version']}: {advisory['id']}"
            for package in packages
            for advisory in package.get("vulns", [])
        ],
        [f"{package['name']}: {package['skip_reason']}" for package in packages if "skip_reason" in package],
    )


def _by_npm(answer: Any) -> _Known:
    if "vulnerabilities" not in answer:
        raise _Unanswered(str(answer.get("message") or answer.get("error") or answer))
    return _Known([f"{name}: {each['severity']}, {each['range']}" for name, each in answer["vulnerabilities"].items()])


def _unproven(source: str, famous: tuple[str, str], ask: Callable[[Path], _Known]) -> str:
    try:
        with tempfile.TemporaryDirectory(prefix="ticketlock-audit-") as folder:
            known = ask(Path(folder))
    except _Unanswered as unanswered:
        return str(unanswered)
    if known.advisories:
        return ""
    return next(iter(known.unanswered), "{} knows no advisory about {} {}, which has several".format(source, *famous))


def _asked(command: Sequence[str], folder: Path, read: Callable[[Any], _Known]) -> _Known:
    """The answer of a tool. Its exit code does not help: failures and findings have the same one."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unanswered(str(error)) from error
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip() or f"it ended with status {done.returncode}"
        raise _Unanswered(said.splitlines()[-1]) from None
    try:
        return read(answer)
    except (AttributeError, KeyError, TypeError):
        raise _Unanswered(f"cannot read this answer: {done.stdout.strip()[:_ANSWER_TOLD]}") from None
