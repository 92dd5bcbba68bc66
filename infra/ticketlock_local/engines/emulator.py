"""One emulated cloud: a separate ministack on the loopback interface."""

import atexit
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ticketlock_local.checkout import pinned_python
from ticketlock_local.engines.ministack_process import DETACH
from ticketlock_local.engines.processes import end_owned, lives, start_owned, wait_until
from ticketlock_local.errors import EmulatorError

# It has nothing to save; only a function that still runs needs this long.
STOP_GRACE_S = 2.0

_REQUIREMENTS = Path(__file__).with_name("ministack-requirements.txt")
_LAUNCHER = Path(__file__).with_name("ministack_process.py")
_HEALTH_TIMEOUT_S = 30.0
_PORT_ATTEMPTS = 5
_LOG_TAIL_LINES = 30

# The user's proxy settings must not catch requests to the loopback interface.
_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Emulator:
    """A ministack with a private folder; it ends with this process, unless it is detached."""

    def __init__(self, *, env: Mapping[str, str] | None = None) -> None:
        """Prepare an emulator; nothing runs before `start`.

        Args:
            env: more environment for ministack, such as AUTH.
        """
        self._extra_env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._port = 0

    @property
    def endpoint(self) -> str:
        """The URL of all its services."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of ministack, which is also the id of its process group."""
        return self._running().pid

    @property
    def work_folder(self) -> Path:
        """The folder that holds everything it writes; gone after `stop`."""
        if self._folder is None:
            raise EmulatorError("the emulator is not running")
        return self._folder

    @property
    def log_path(self) -> Path:
        """The file that holds what ministack and the functions print."""
        return self.work_folder / "ministack.log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start it and wait until it is healthy.

        Raises:
            EmulatorError: it did not become healthy; the message ends with the tail of its log.
        """
        if self._folder is not None:
            raise EmulatorError("the emulator is running already")
        # Functions run on its interpreter: in the project's environment they would import packages that their asset
        # lacks, and pass here what fails on AWS.
        python = pinned_python("ministack-venv", _REQUIREMENTS)
        atexit.register(self.stop)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="ticketlock-cloud-"))
            for _ in range(_PORT_ATTEMPTS):
                if self._started_on(python, free_port()):
                    return self
            raise EmulatorError(f"lost the race for a free port {_PORT_ATTEMPTS} times")
        except BaseException:
            self.stop()
            raise

    def reset(self) -> None:
        """Forget every resource of every service."""
        request = urllib.request.Request(f"{self.endpoint}/_ministack/reset", data=b"", method="POST")
        with _http.open(request, timeout=_HEALTH_TIMEOUT_S):
            pass

    def stop(self) -> None:
        """End every process of it and remove its folder; does nothing when it is not running."""
        try:
            self._end_process()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
            atexit.unregister(self.stop)

    def detach(self) -> None:
        """Let it outlive this process; the caller must save `pid` and `work_folder` to end it."""
        pipe = self._running().stdin
        assert pipe is not None
        pipe.write(DETACH)
        pipe.close()
        self._process = self._folder = None
        atexit.unregister(self.stop)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise EmulatorError("the emulator is not running")
        return self._process

    def _started_on(self, python: Path, port: int) -> bool:
        """Start on this port; False if another process took the port first."""
        # Health answers with this token, so another emulator that won the port is not taken for ours.
        token = secrets.token_hex(8)
        self._port = port
        command = [str(python), "-I", str(_LAUNCHER), str(self.work_folder)]
        process = self._process = start_owned(command, env=self._environment(python, token), log=self.log_path)

        def healthy() -> bool:
            return health(self.endpoint).get("edition") == token

        wait_until(lambda: not lives(process) or healthy(), timeout_s=_HEALTH_TIMEOUT_S)
        if lives(process) and healthy():
            return True
        log_text = self.log_path.read_text(errors="replace")
        self._end_process()
        if "already in use" in log_text.lower():
            return False
        tail = "\n".join(log_text.splitlines()[-_LOG_TAIL_LINES:])
        raise EmulatorError(f"ministack did not become healthy; the end of its log:\n{tail}")

    def _environment(self, python: Path, token: str) -> dict[str, str]:
        """Build a clean environment: nothing of the user's reaches ministack or the functions it runs."""
        folders = {"HOME": "home", "TMPDIR": "tmp", "S3_DATA_DIR": "s3", "STATE_DIR": "state"}
        for name in folders.values():
            (self.work_folder / name).mkdir(exist_ok=True)
        return {
            "PATH": os.pathsep.join([str(python.parent), os.defpath]),
            "LC_ALL": "C.UTF-8",
            **{variable: str(self.work_folder / name) for variable, name in folders.items()},
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self._port),
            # Its MQTT listener would take a port of its own.
            "IOT_MTLS_ENABLED": "0",
            "MINISTACK_EDITION": token,
            **self._extra_env,
        }

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_owned(process, grace_s=STOP_GRACE_S)


def health(endpoint: str) -> Mapping[str, object]:
    """Return an emulator's health; empty if none answers."""
    try:
        with _http.open(f"{endpoint}/_ministack/health", timeout=2) as reply:
            answer = json.load(reply)
    except (OSError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def free_port() -> int:
    """Return a port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
