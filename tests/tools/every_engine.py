"""``make engines``: the contract on every engine, with dynoxide if cargo can build it.

It passes its arguments to pytest, and exits with pytest's exit code. At the end it prints on which engines the
contract ran; the last line says if dynoxide was not among them.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from kit.engines import DYNOXIDE, engine_names
from rich.console import Console
from ticketlock_local.checkout import ROOT
from ticketlock_local.engines.dynoxide import dynoxide_program
from ticketlock_local.errors import LocalCloudError

# On moto's interpreter there is one engine only. What needs many processes is asked of the client.
_CONTRACT = (
    "tests/locks",
    "tests/units",
    "--ignore=tests/units/test_processes.py",
    "tests/workflow",
    "--ignore=tests/workflow/interpreted",
    "tests/client/test_processes.py",
    "tests/expressions/test_beside_engines.py",
    "tests/expressions/test_where_engines_differ.py",
)


def verdict_of(code: int, engines: Sequence[str]) -> str:
    """The verdict on the contract on these engines, from pytest's exit code."""
    names = {each.value: each.name.lower().replace("_", " ") for each in pytest.ExitCode}
    if code == pytest.ExitCode.OK:
        verdict = "The contract held on"
    elif code == pytest.ExitCode.TESTS_FAILED:
        verdict = "The contract BROKE on one of"
    else:
        verdict = f"Nothing is known of the contract ({names.get(code, f'status {code}')}) on"
    line = f"{verdict}: {', '.join(engines)}."
    if "dynoxide" not in engines:
        line += " It did NOT run on dynoxide, so on two engines of others instead of three."
    return line


def main() -> int:
    """Run the contract, and print on which engines it ran."""
    missing: LocalCloudError | None = None
    os.environ[DYNOXIDE] = "1"
    try:
        dynoxide_program()
    except LocalCloudError as error:
        missing = error
        del os.environ[DYNOXIDE]
    code = ended(subprocess.Popen([sys.executable, "-m", "pytest", *_CONTRACT, *sys.argv[1:]], cwd=ROOT))
    # cargo's output may have brackets.
    console = Console(stderr=True, soft_wrap=True, markup=False)
    if missing is not None:
        console.print(str(missing), style="bold red")
    console.print(verdict_of(code, engine_names()), style="bold red" if code or missing is not None else "green")
    return code


def ended(program: subprocess.Popen[bytes]) -> int:
    """Wait for a program, and return its exit code."""
    while True:
        try:
            return program.wait()
        except KeyboardInterrupt:
            # It reaches the program too, which ends what it has started, and then itself.
            continue


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
