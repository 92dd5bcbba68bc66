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
OF_THE_SDK = tuple(f"aws_durable_execution_sdk_python.{name}" for name in ("retries", "serdes", "types"))
LOADED: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "ticketlock": ((), OF_THREADS),
    "ticketlock.units": (VALUES, OF_UNITS),
    "ticketlock.aio": ((*VALUES, "asyncio"), OF_UNITS | {"aio"}),
    "ticketlock.durable": ((*VALUES, *OF_THE_SDK), OF_UNITS | {"durable"}),
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


@pytest.mark.parametrize("sdk", [None, "1.5.0", "2.1.0"], ids=["none", "1", "2"])
def test_without_the_sdk_that_durable_functions_need_the_import_says_what_to_install(
    tmp_path: Path, sdk: str | None
) -> None:
    if sdk is not None:
        (tmp_path / "aws_durable_execution_sdk_python").mkdir()
        (tmp_path / "aws_durable_execution_sdk_python" / "__init__.py").write_text(f"__version__ = {sdk!r}\n")
    blocked = "" if sdk is not None else "sys.modules['aws_durable_execution_sdk_python'] = None; "
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {blocked}import ticketlock.durable"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert "ImportError: ticketlock.durable needs 3.0.0 or newer" in done.stderr.splitlines()[-1]


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
