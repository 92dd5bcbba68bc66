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
    | {"client/_acquire", "wire/_table_time", "workflow/_clean_up", "workflow/_session"}
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
NOT_OF_THE_CLIENT = {
    "aiobotocore",
    "aws_cdk",
    "aws_lambda_powertools",
    "click",
    "constructs",
    "rich",
    "ticketlock_cdk",
    "typer",
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


def test_importing_ticketlock_loads_neither_the_cdk_nor_the_packages_of_functions_and_commands() -> None:
    loads = "import sys, ticketlock; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True, timeout=60)
    assert "ticketlock" in done.stdout.split()
    assert NOT_OF_THE_CLIENT.isdisjoint(done.stdout.split()), "the library needs boto3 only"


@pytest.mark.parametrize("module", PROTOCOL)
def test_a_module_of_the_protocol_does_no_io_reads_no_clock_and_rests_on_such_modules_alone(
    library: Arrows, module: str
) -> None:
    brings = library[f"ticketlock.{module.replace('/', '.')}"]
    used = IO_AND_CLOCKS & {name.partition(".")[0] for name in brings}
    assert not used, "the protocol yields requests and is told the time: see locks/_protocol.py"
    rest = {f"ticketlock.{name.replace('/', '.')}" for name in PROTOCOL}
    allowed = rest | {"ticketlock._checks", "ticketlock.errors"}
    ours = {name for name in brings if name.startswith("ticketlock")}
    assert ours <= allowed, "a module of the protocol imports others of PROTOCOL alone"


@pytest.fixture(scope="module")
def library() -> Arrows:
    return arrows(PACKAGE.parent, "ticketlock")
