"""What ticketlock shows, and what it brings along when it is imported."""

import subprocess
import sys
from pathlib import Path

import pytest
from kit.architecture import Arrows, arrows

import ticketlock
from ticketlock import errors

PACKAGE = Path(ticketlock.__file__).parent

# Rules without I/O and without a clock: they run under boto3, under asyncio, or in a simulated world. Of the locks all
# but the tables themselves; of the other rooms what a protocol is made of.
PERFORMED = {"locks/__init__", "locks/_lock_table"}
PROTOCOL = sorted(
    {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in (PACKAGE / "locks").glob("*.py")} - PERFORMED
    | {f"wire/{name}" for name in ("_actions", "_item_requests", "_requests", "_step_functions")}
    | {"client/_acquire", "client/_pace", "wire/_table_time", "workflow/_clean_up", "workflow/_session"}
)
IO_AND_CLOCKS = {
    "asyncio",
    "boto3",
    "botocore",
    "datetime",
    "os",
    "random",
    "secrets",
    "socket",
    "threading",
    "time",
    "uuid",
}
# What an import loads beyond boto3: modules of others, and rooms.
OF_THREADS = {"_checks", "_decorating", "_names", "_value", "_version", "client", "errors", "locks", "wire"}
OF_UNITS = OF_THREADS | {"_expressions", "units"}
VALUES = ("boto3.dynamodb.conditions", "boto3.dynamodb.types")
LOADED: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "ticketlock": ((), OF_THREADS),
    "ticketlock.units": (VALUES, OF_UNITS),
    "ticketlock.aio": ((*VALUES, "asyncio"), OF_UNITS | {"aio"}),
}


def test_the_public_names_are_sorted_and_there_and_each_has_a_docstring_of_its_own() -> None:
    assert ticketlock.__all__ == sorted(set(ticketlock.__all__)), "sort __all__, each name once"
    for name in ticketlock.__all__:
        text = getattr(ticketlock, name).__doc__
        assert not name.startswith("_")
        # A dataclass without one is given its signature.
        assert text, f"{name} is public and has no docstring"
        assert not text.startswith(f"{name}("), name


def test_every_error_is_among_the_public_names() -> None:
    assert set(errors.__all__) <= set(ticketlock.__all__), "users catch errors by `from ticketlock import ...`"


def test_a_star_import_brings_the_public_names_and_nothing_else() -> None:
    brought: dict[str, object] = {}
    exec("from ticketlock import *", brought)
    assert set(brought) - {"__builtins__"} == set(ticketlock.__all__)


@pytest.mark.parametrize("module", LOADED)
def test_an_import_loads_what_it_uses_and_nothing_else(module: str) -> None:
    others, rooms = LOADED[module]
    before = f"import {', '.join(('boto3', *others))}, sys; before = {{*sys.modules}}"
    program = f"{before}; import {module}; print(*{{*sys.modules}} - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = [name.split(".") for name in done.stdout.split()]
    assert {package for package, *_ in loaded} == {"ticketlock"}, "it loads modules of others"
    assert {of[0] for _, *of in loaded if of} == rooms


@pytest.mark.parametrize("module", PROTOCOL)
def test_a_module_of_the_protocol_does_no_io_reads_no_clock_and_rests_on_such_modules_alone(
    library: Arrows, module: str
) -> None:
    brings = library[f"ticketlock.{module.replace('/', '.')}"]
    used = IO_AND_CLOCKS & {name.partition(".")[0] for name in brings}
    assert not used, "the protocol yields requests and is told the time: see locks/_protocol.py"
    rest = {f"ticketlock.{name.replace('/', '.')}" for name in PROTOCOL}
    allowed = rest | {"ticketlock._checks", "ticketlock._value", "ticketlock.errors"}
    ours = {name for name in brings if name.startswith("ticketlock")}
    assert ours <= allowed, "a module of the protocol imports others of PROTOCOL alone"


@pytest.fixture(scope="module")
def library() -> Arrows:
    return arrows(PACKAGE.parent, "ticketlock")
