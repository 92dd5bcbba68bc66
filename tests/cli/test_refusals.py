"""Errors before a lock is acquired: one line on stderr, an exit code, no traceback."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cli.seen import is_refused, run_here
from kit.command import Command, Ended

from ticketlock import LockClient, __version__

pytestmark = pytest.mark.verify("a client for each refusal; the library's own tests have the refusals")

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def is_one_line(ended: Ended, exit_code: int, told: str) -> None:
    is_refused(ended, exit_code, told)
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "exit_code", "text"),
    [
        ("ls --table none", 78, "there is no table 'none' in us-east-1 (http://127.0.0.1:"),
        ("--table none ls", 78, "there is no table 'none'"),
        ("ls --profile absent", 78, "absent"),
        ("ls --endpoint-url nonsense", 78, "nonsense"),
        ("run order-42 --endpoint-url NOBODY -- true", 69, "NOBODY"),
        ("ls --endpoint-url THROTTLING", 69, "Throttling"),
        ("ls --endpoint-url DENYING", 78, "AccessDeniedException"),
    ],
)
def test_a_table_that_cannot_be_used_is_reported_in_one_line(
    environment: dict[str, str], request: pytest.FixtureRequest, words: str, exit_code: int, text: str
) -> None:
    for service in ("nobody", "throttling", "denying"):
        if service.upper() in words:
            url = request.getfixturevalue(service)
            words, text = words.replace(service.upper(), url), text.replace(service.upper(), url)
    is_one_line(run_here(environment, *words.split()), exit_code, text)


def test_missing_credentials_and_a_missing_region_are_reported_in_one_line(command: Command) -> None:
    nowhere = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    is_one_line(command.run("run", "order-42", "--", "true", **nowhere), 78, "credentials")
    without = ("env", "-u", "AWS_REGION", "-u", "AWS_DEFAULT_REGION", "ticketlock")
    is_one_line(command.start("ls", program=without).end(), 78, "region")


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        ("no-such-command", 2, ""),
        ("--no-such-option", 2, ""),
        ("ls --owner 2", 2, ""),
        ("show", 2, ""),
        ("show ", 2, ""),
        ("show order-42 --every soon", 2, ""),
        ("run", 2, ""),
        ("run  true", 2, ""),
        ("run -- true", 2, "which lock? Put ENTITY before '--'."),
        ("run --wait 5m -- true", 2, "which lock? Put ENTITY before '--'."),
        ("run order-42 --", 2, "nothing follows '--': give a COMMAND, or leave '--' out to hold the lock."),
        ("run order-42 --no-such-option true", 2, "No such option '--no-such-option'."),
        ("run order-42 no-such-program", 127, ""),
        ("run order-42 --permits 200 true", 2, "--permits is 200; allowed: a whole number from 1 to 100"),
        ("run order-42 --namespace a/b true", 2, "--namespace is \"a/b\"; allowed: text without '/'"),
        ("run order-42 --lease 8d true", 2, "Invalid value for '--lease': '8d' is not a time from 1s to 7d"),
        ("run order-42 --data  true", 2, '--data is ""; allowed: text of 1 to 1,024 bytes'),
        ("acquire order-42 --lease 0.5", 2, ""),
        ("acquire order-42 --lease 1e9", 2, ""),
        ("acquire order-42 --wait nan", 2, ""),
        ("acquire order-42 --permits 0", 2, ""),
        ("renew order-42", 2, ""),
        ("release order-42", 2, ""),
        ("release order-42 --owner a --force", 2, ""),
        ("release order-42 --owner a --fencing-token 1", 2, ""),
        ("release order-42 --owner a --why killed", 2, "--why needs --force."),
        ("limit order-42 0 --yes --by ", 2, '--by is ""; allowed: text of 1 to 256 bytes'),
        ("limit order-42", 2, ""),
        ("limit order-42 1", 1, ""),
        ("init --table new", 1, ""),
    ],
)
def test_an_error_is_one_line_that_begins_with_ticketlock_and_nothing_is_written(
    environment: dict[str, str], locks: LockClient, words: str, exit_code: int, told: str
) -> None:
    ended = run_here(environment, *words.split(" "))
    is_refused(ended, exit_code, f"ticketlock: {told}")
    assert "Error:" not in ended.err
    assert [lock for lock in locks.list() if lock.lock.entity in ("true", "order-42")] == []


def test_the_table_is_named_before_or_after_the_commands_name_or_in_the_environment(
    command: Command, table_name: str
) -> None:
    assert command.run("--table", "none", "ls", "--table", table_name).exit_code == 0
    is_refused(command.run("ls", TICKETLOCK_TABLE=""), 2, "which table? Give --table, or set TICKETLOCK_TABLE.")


def test_what_happens_is_logged_if_asked_for(command: Command, entity: str) -> None:
    assert "ticketlock DEBUG acquired" in command.run("-v", "run", entity, "--", "true").err


@pytest.mark.parametrize("module", ["click", "rich"])
def test_without_the_extra_it_says_how_to_install_it(module: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from ticketlock.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (78, "")
    extra = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["cli"]
    assert "pip install '.[cli]'" in done.stderr
    assert done.stderr.endswith(f"pip install {' '.join(map(repr, extra))}\n")


def test_the_version_is_the_packages(command: Command) -> None:
    assert command.run("--version").out == f"ticketlock {__version__}\n"


def test_a_shell_can_complete_it(command: Command) -> None:
    done = command.run(_TICKETLOCK_COMPLETE="bash_complete", COMP_WORDS="ticketlock re", COMP_CWORD="1")
    assert {line.partition(",")[2] for line in done.out.splitlines()} == {"release", "remove-waiter", "renew", "report"}
    assert "_ticketlock_completion_setup" in command.run(_TICKETLOCK_COMPLETE="bash_source").out
