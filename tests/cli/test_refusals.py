"""What goes wrong before a lock is reached: one line on stderr, an exit code, no traceback."""

import socket
import subprocess
import sys

import pytest
from kit.command import Command, Ended

pytestmark = pytest.mark.verify("each refusal is a process; the library's own tests ask the refusals")

NOWHERE = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


def is_one_line(ended: Ended, exit_code: int, text: str) -> None:
    assert (ended.exit_code, ended.out) == (exit_code, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("ticketlock: ")
    assert text in line


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_no_table_of_that_name(command: Command) -> None:
    is_one_line(command.run("ls", "--table", "none"), 78, "there is no table 'none' in us-east-1 (http://127.0.0.1:")


def test_no_table_named_at_all(command: Command) -> None:
    ended = command.run("ls", TICKETLOCK_TABLE="")
    assert ended.exit_code == 2
    assert ended.err.endswith("Error: which table? Give --table, or set TICKETLOCK_TABLE.\n")


def test_no_credentials(command: Command) -> None:
    is_one_line(command.run("run", "order-42", "--", "true", **NOWHERE), 78, "credentials")


def test_no_region(command: Command) -> None:
    without = ("env", "-u", "AWS_REGION", "-u", "AWS_DEFAULT_REGION", "ticketlock")
    is_one_line(command.start("ls", program=without).end(), 78, "region")


def test_no_such_profile(command: Command) -> None:
    is_one_line(command.run("ls", "--profile", "nobody"), 78, "nobody")


def test_an_endpoint_that_is_no_url(command: Command) -> None:
    is_one_line(command.run("ls", "--endpoint-url", "nonsense"), 78, "nonsense")


def test_nobody_answers(command: Command, closed_port: int) -> None:
    endpoint = f"http://127.0.0.1:{closed_port}"
    is_one_line(command.run("run", "order-42", "--endpoint-url", endpoint, "--", "true"), 69, endpoint)


def test_throttling_that_does_not_end(command: Command, throttling: str) -> None:
    is_one_line(command.run("ls", "--endpoint-url", throttling), 69, "Throttling")


def test_a_permission_that_is_missing(command: Command, denying: str) -> None:
    is_one_line(command.run("ls", "--endpoint-url", denying), 78, "AccessDeniedException")


def test_options_stand_before_the_commands_name_too(command: Command, table_name: str) -> None:
    assert command.run("--table", "none", "ls").exit_code == 78
    assert command.run("--table", "none", "ls", "--table", table_name).exit_code == 0


def test_what_happens_is_told_if_asked_for(command: Command, entity: str) -> None:
    ended = command.run("-v", "run", entity, "--", "true")
    assert "ticketlock DEBUG acquired" in ended.err


@pytest.mark.parametrize("module", ["click", "rich"])
def test_without_the_extra_it_says_how_to_install_it(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from ticketlock.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == "ticketlock: the command needs click and rich: pip install 'ticketlock[cli]'\n"


def test_the_version_is_the_packages(command: Command) -> None:
    import ticketlock

    assert command.run("--version").out == f"ticketlock {ticketlock.__version__}\n"


def test_a_shell_can_complete_it(command: Command) -> None:
    done = command.run(_TICKETLOCK_COMPLETE="bash_complete", COMP_WORDS="ticketlock re", COMP_CWORD="1")
    assert {line.partition(",")[2] for line in done.out.splitlines()} == {"release", "renew"}
    assert "_ticketlock_completion_setup" in command.run(_TICKETLOCK_COMPLETE="bash_source").out
