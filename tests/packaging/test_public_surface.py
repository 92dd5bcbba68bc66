"""What ticketlock shows, and what it brings along when it is imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ticketlock
from ticketlock import errors

PACKAGE = Path(ticketlock.__file__).parent

# Rules without I/O and without a clock: they run under boto3, under asyncio, or in a simulated world.
PROTOCOL = [
    "_acquiring",
    "_calls",
    "_clean_up",
    "_conditions",
    "_items",
    "_listing",
    "_operate",
    "_outcomes",
    "_pace",
    "_protocol",
    "_queue",
    "_requests",
    "_session",
    "_time",
    "_writes",
]
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


def test_the_public_names_are_sorted_and_there() -> None:
    assert ticketlock.__all__ == sorted(set(ticketlock.__all__))
    for name in ticketlock.__all__:
        assert hasattr(ticketlock, name)
        assert not name.startswith("_")


def test_every_public_name_has_a_docstring_of_its_own() -> None:
    for name in ticketlock.__all__:
        text = getattr(ticketlock, name).__doc__
        # A dataclass without one is given its signature.
        assert text, name
        assert not text.startswith(f"{name}("), name


def test_every_error_is_among_the_public_names() -> None:
    assert set(errors.__all__) <= set(ticketlock.__all__)


def test_a_star_import_brings_the_public_names_and_nothing_else() -> None:
    brought: dict[str, object] = {}
    exec("from ticketlock import *", brought)
    assert set(brought) - {"__builtins__"} == set(ticketlock.__all__)


def test_importing_ticketlock_loads_neither_the_cdk_nor_the_packages_of_functions_and_commands() -> None:
    loads = "import sys, ticketlock; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True, timeout=60)
    assert "ticketlock" in done.stdout.split()
    assert NOT_OF_THE_CLIENT.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("module", PROTOCOL)
def test_a_module_of_the_protocol_does_no_io_and_reads_no_clock(module: str) -> None:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    assert IO_AND_CLOCKS.isdisjoint(imported(tree))


@pytest.mark.parametrize("module", PROTOCOL)
def test_a_module_of_the_protocol_rests_on_modules_of_the_protocol_alone(module: str) -> None:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    ours = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("ticketlock")
        for name in ([alias.name for alias in node.names] if node.module == "ticketlock" else [node.module[11:]])
    }
    assert ours <= {*PROTOCOL, "_names", "errors"}


def imported(tree: ast.Module) -> set[str]:
    """The top-level names of all modules that are imported anywhere in it."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names
