"""Errors before a lock is acquired: one line on stderr, an exit code, no traceback."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kit.command import Command, Ended

pytestmark = pytest.mark.verify("each refusal is a process; the library's own tests have the refusals")

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
NOWHERE = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


def is_one_line(ended: Ended, exit_code: int, text: str) -> None:
    assert (ended.exit_code, ended.out) == (exit_code, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("ticketlock: ")
    assert text in line


def test_no_table_of_that_name(command: Command) -> None:
    is_one_line(command.run("ls", "--table", "none"), 78, "there is no table 'none' in us-east-1 (http://127.0.0.1:")


def test_no_table_named_at_all(command: Command) -> None:
    ended = command.run("ls", TICKETLOCK_TABLE="")
    assert ended.exit_code == 2
    assert ended.err.endswith("\nticketlock: which table? Give --table, or set TICKETLOCK_TABLE.\n")


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (("no-such-command",), 2),
        (("--no-such-option",), 2),
        (("show",), 2),
        (("show", "order-42", "--every", "soon"), 2),
        (("run", "", "true"), 2),
        (("release", "order-42"), 2),
        (("limit", "order-42"), 2),
        (("limit", "order-42", "1"), 1),
        (("init", "--table", "new"), 1),
        (("run", "order-42", "no-such-program"), 127),
    ],
)
def test_an_error_is_one_line_that_begins_with_ticketlock(
    command: Command, words: tuple[str, ...], exit_code: int
) -> None:
    ended = command.run(*words, text="")
    assert (ended.exit_code, ended.out) == (exit_code, "")
    *_, last = ended.err.splitlines()
    # An unanswered question has no line break after it.
    assert last.partition("[y/N]: ")[2 * ("[y/N]" in last)].startswith("ticketlock: ")
    assert "Error:" not in ended.err
    assert ("Usage: ticketlock" in ended.err) == (exit_code == 2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--permits", "200"), "--permits is 200; allowed: a whole number from 1 to 100"),
        (("--namespace", "a/b"), "--namespace is \"a/b\"; allowed: text without '/'"),
        (("--lease", "8d"), "Invalid value for '--lease': '8d' is not a time from 1s to 7d"),
        (("--data", ""), '--data is ""; allowed: text of 1 to 256 bytes'),
    ],
)
def test_an_error_names_the_option_as_it_was_typed(command: Command, words: tuple[str, ...], told: str) -> None:
    ended = command.run("run", "order-42", *words, "true")
    assert ended.exit_code == 2
    assert ended.err.splitlines()[0].startswith("Usage: ticketlock run ")
    assert ended.err.splitlines()[-1].startswith(f"ticketlock: {told}")


def test_no_credentials(command: Command) -> None:
    is_one_line(command.run("run", "order-42", "--", "true", **NOWHERE), 78, "credentials")


def test_no_region(command: Command) -> None:
    without = ("env", "-u", "AWS_REGION", "-u", "AWS_DEFAULT_REGION", "ticketlock")
    is_one_line(command.start("ls", program=without).end(), 78, "region")


def test_no_such_profile(command: Command) -> None:
    is_one_line(command.run("ls", "--profile", "absent"), 78, "absent")


def test_an_endpoint_that_is_no_url(command: Command) -> None:
    is_one_line(command.run("ls", "--endpoint-url", "nonsense"), 78, "nonsense")


def test_no_answer(command: Command, closed_port: int) -> None:
    endpoint = f"http://127.0.0.1:{closed_port}"
    is_one_line(command.run("run", "order-42", "--endpoint-url", endpoint, "--", "true"), 69, endpoint)


def test_throttling_that_does_not_end(command: Command, throttling: str) -> None:
    is_one_line(command.run("ls", "--endpoint-url", throttling), 69, "Throttling")


def test_a_permission_that_is_missing(command: Command, denying: str) -> None:
    is_one_line(command.run("ls", "--endpoint-url", denying), 78, "AccessDeniedException")


def test_options_stand_before_the_commands_name_too(command: Command, table_name: str) -> None:
    assert command.run("--table", "none", "ls").exit_code == 78
    assert command.run("--table", "none", "ls", "--table", table_name).exit_code == 0


def test_what_happens_is_logged_if_asked_for(command: Command, entity: str) -> None:
    ended = command.run("-v", "run", entity, "--", "true")
    assert "ticketlock DEBUG acquired" in ended.err


@pytest.mark.parametrize("module", ["click", "rich"])
def test_without_the_extra_it_says_how_to_install_it(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from ticketlock.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (78, "")
    extra = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["cli"]
    assert "pip install '.[cli]'" in done.stderr
    assert done.stderr.endswith(f"pip install {' '.join(map(repr, extra))}\n")


def test_the_version_is_the_packages(command: Command) -> None:
    import ticketlock

    assert command.run("--version").out == f"ticketlock {ticketlock.__version__}\n"


def test_a_shell_can_complete_it(command: Command) -> None:
    done = command.run(_TICKETLOCK_COMPLETE="bash_complete", COMP_WORDS="ticketlock re", COMP_CWORD="1")
    assert {line.partition(",")[2] for line in done.out.splitlines()} == {"release", "remove-waiter", "renew"}
    assert "_ticketlock_completion_setup" in command.run(_TICKETLOCK_COMPLETE="bash_source").out
