"""dynoxide: a DynamoDB engine in Rust, only for the tests. cargo, if installed, builds it from crates.io."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.engines.emulator import free_port
from ticketlock_local.engines.processes import end_owned, lives, start_owned, wait_until
from ticketlock_local.errors import CargoMissing, EmulatorError

# Without features that this project does not use: import of exports, encryption, an MCP server.
_CRATE = ("dynoxide-rs@3.1.0", "--locked", "--no-default-features", "--features", "http-server,native-sqlite,cli")
_FOLDER = BUILD / "dynoxide"
_STAMP = "built-from.txt"
_LAUNCHER = Path(__file__).with_name("while_owned.py")
_START_TIMEOUT_S = 30.0
# Everything is in memory, so nothing must be saved.
_STOP_GRACE_S = 1.0
_PORT_ATTEMPTS = 5


def dynoxide_program(folder: Path = _FOLDER) -> Path:
    """Return the program; it is built once, and again when the pin changes, which takes minutes.

    Args:
        folder: the folder of the build. A complete build replaces it, or it stays unchanged.

    Raises:
        CargoMissing: it is not built, and there is no cargo.
        EmulatorError: cargo could not build it.
    """
    program, stamp, pin = folder / "bin" / "dynoxide", folder / _STAMP, " ".join(_CRATE)
    with exclusive("dynoxide"):
        if not (program.exists() and stamp.exists() and stamp.read_text() == pin):
            cargo = shutil.which("cargo")
            if cargo is None:
                raise CargoMissing("dynoxide is not built, and there is no cargo to build it with: https://rustup.rs")
            print(f"Building {_CRATE[0]} into {folder}: some minutes ...", file=sys.stderr)
            fresh = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(fresh, ignore_errors=True)
            _build(cargo, fresh)
            (fresh / _STAMP).write_text(pin)
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    return program


def _build(cargo: str, folder: Path) -> None:
    command = [cargo, "install", *_CRATE, "--root", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise EmulatorError(f"{' '.join(command)} failed:\n{done.stdout}")


@contextmanager
def dynoxide(folder: Path = _FOLDER) -> Iterator[str]:
    """Run a separate engine in memory, on the loopback interface; it ends with this process.

    Args:
        folder: the folder of the build.

    Yields:
        Its URL.

    Raises:
        CargoMissing: it is not built, and there is no cargo.
        EmulatorError: it could not be built, or does not start.
    """
    program = dynoxide_program(folder)
    with tempfile.TemporaryDirectory(prefix="ticketlock-dynoxide-") as work_folder:
        log = Path(work_folder) / "log.txt"
        for _ in range(_PORT_ATTEMPTS):
            port = free_port()
            with _running([str(program), "--host", "127.0.0.1", "--port", str(port)], log) as listens:
                if listens:
                    yield f"http://127.0.0.1:{port}"
                    return
            said = log.read_text(errors="replace")
            if "in use" not in said:
                raise EmulatorError(f"dynoxide does not start; it says:\n{said}")
    raise EmulatorError(f"lost the race for a free port {_PORT_ATTEMPTS} times")


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[bool]:
    """Start it, wait until it listens or has ended, yield whether it listens, and end it."""

    def listens() -> bool:
        # From this process's own output, so another server on the port is not taken for ours.
        return "listening on" in log.read_text(errors="replace")

    process = start_owned([sys.executable, "-I", str(_LAUNCHER), *command], env={"PATH": os.defpath}, log=log)
    try:
        wait_until(lambda: listens() or not lives(process), timeout_s=_START_TIMEOUT_S)
        yield listens()
    finally:
        end_owned(process, grace_s=_STOP_GRACE_S)
