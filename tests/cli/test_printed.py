"""What the command prints: `--help` with examples and exit codes; `ls` and `show` on 80 columns."""

import re
import shlex

import click
import pytest
from cli.seen import EXECUTION, printed

from ticketlock import Claim, LockClient, LockName
from ticketlock.cli import _commands, _units
from ticketlock.cli._exits import Explained
from ticketlock.cli._options import Duration
from ticketlock.cli._settings import CommandSettings, settings_of
from ticketlock.cli._show import list_table, state, state_tables
from ticketlock.report import Listed, short_owner, short_span
from ticketlock.testing import MemoryDynamoDB

GROUP = _commands._ticketlock
UNITS = _units.units
COMMANDS: dict[str, click.Command] = {
    **{name: command for name, command in GROUP.commands.items() if command is not UNITS},
    **{f"units {name}": command for name, command in UNITS.commands.items()},
}
NARROW = 60


def help_of(command: click.Command, width: int = 80) -> str:
    parent = click.Context(GROUP, info_name="ticketlock")
    name = command.name if command is not GROUP else None
    context = parent if name is None else click.Context(command, info_name=name, parent=parent)
    context.terminal_width = width
    return command.get_help(context)


@pytest.mark.parametrize("width", [NARROW, 80, 100])
@pytest.mark.parametrize("group", [GROUP, UNITS])
def test_the_list_of_commands_has_whole_sentences(group: click.Group, width: int) -> None:
    listed = " ".join(help_of(group, width).split())
    assert "..." not in listed.partition("Commands:")[2]
    for command in group.commands.values():
        assert command.get_short_help_str() in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example_that_its_parser_takes(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Explained)
    told = help_of(command, NARROW)
    for line in command.example.splitlines():
        assert f"  {line}\n" in told
        program, called, *words = shlex.split(line)
        assert program == "ticketlock"
        if called == UNITS.name:
            called = f"{called} {words.pop(0)}"
        COMMANDS[called].make_context(called, words, parent=click.Context(GROUP))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_lists_its_exit_codes(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Explained)
    _, _, ends = help_of(command).partition("Exit codes:\n")
    told = [line.split()[0] for line in ends.splitlines() if line.startswith("  ") and line[2] != " "]
    assert told == [str(code) for code in command.ends]
    assert {0, 2} <= set(command.ends)


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("5m", 300), ("1h30m", 5_400), ("2d", 172_800), ("1m500ms", 60.5)],
)
def test_a_time_may_be_seconds_or_numbers_with_units(typed: str, seconds: float) -> None:
    assert Duration().convert(typed, None, None) == seconds


@pytest.mark.parametrize("typed", ["", "soon", "5 m", "m", "-5", "-5m", "5mm", "nan", "inf", "forever", "0.5s", "8d"])
def test_an_invalid_time_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a time from 1s to 7d, such as 90, 1\.5s, 5m or 1h30m"):
        Duration("1s", "7d").convert(typed, None, None)


def test_a_wait_may_be_unlimited() -> None:
    assert Duration(forever=True).convert("forever", None, None) == float("inf")


LIMIT, SETTLE = "limit a N --unset", "settle ID"


@pytest.mark.parametrize(
    ("before", "behind", "told"),
    [
        ("", "", f"ticketlock {LIMIT}"),
        ("", "--table other", f"ticketlock --table other {LIMIT}"),
        ("--table other --region eu-west-1", "", f"ticketlock --table other --region eu-west-1 {LIMIT}"),
        ("--table one", "--table 'the other'", f"ticketlock --table 'the other' {LIMIT}"),
        ("--endpoint-url http://a --profile ops", "", f"ticketlock --profile ops --endpoint-url http://a {LIMIT}"),
        ("", "--no-wake", f"ticketlock {LIMIT}"),
        ("units", "", f"ticketlock units {SETTLE}"),
        (
            "units --units-table u",
            "--region eu-west-1",
            f"ticketlock units --units-table u --region eu-west-1 {SETTLE}",
        ),
        ("--table other --profile ops units", "", f"ticketlock units --profile ops {SETTLE}"),
    ],
)
def test_a_printed_command_has_the_options_for_the_tables_that_no_environment_has(
    before: str, behind: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TICKETLOCK_TABLE", "TICKETLOCK_UNITS_TABLE"):
        monkeypatch.setenv(name, "of-the-environment")
    of_all, is_of_units, of_units = before.partition("units")
    context = GROUP.make_context("ticketlock", [*shlex.split(of_all), "show"])
    if is_of_units:
        context = UNITS.make_context("units", [*shlex.split(of_units), "show"], parent=context)
    show = COMMANDS["units show" if is_of_units else "show"]
    settings = settings_of(show.make_context("show", ["a", *shlex.split(behind)], parent=context))
    assert settings.command(f"ticketlock units {SETTLE}" if is_of_units else f"ticketlock {LIMIT}") == told
    assert settings.command("dynamodb:Query") == "dynamodb:Query"


def test_a_lock_is_shown_with_commands_as_they_are_to_be_typed(locks: LockClient) -> None:
    lock = LockName("order-42")
    locks.table.set_limit(lock, 0)
    locks.table.take_ticket(Claim(lock, "waiter", 300_000), None)
    typed = CommandSettings(typed={"table": "other"}).command
    lines = printed(state_tables(lock, locks.inspect("order-42"), typed=typed))
    assert "ticketlock --table other limit order-42 1 --unset" in lines


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_asks_for_a_time_in_seconds_alone(name: str) -> None:
    assert [each for each in COMMANDS[name].params if "seconds" in (each.metavar or "").lower()] == []


@pytest.fixture
def locks() -> LockClient:
    return LockClient("locks", client=MemoryDynamoDB().client)


def test_a_list_has_a_line_for_each_lock_with_the_end_of_a_long_holder(locks: LockClient) -> None:
    with locks.acquire("order-42", owner=EXECUTION):
        listed = [Listed(each, locks.table.inspect(each.lock)) for each in locks.table.list_locks()]
        headings, _, line = printed(list_table(listed))
    assert headings.split()[:3] == ["entity", "namespace", "holder"]
    holder = line.split()[2]
    assert (holder[0], EXECUTION.endswith(holder[1:])) == ("…", True)
    assert len(holder) >= 12


def test_a_lock_is_shown_with_a_line_for_each_value_if_the_whole_holder_does_not_fit(locks: LockClient) -> None:
    with locks.acquire("order-42", owner=EXECUTION, data="deploys 1.4"):
        found = locks.inspect("order-42")
    lines = printed(state_tables(LockName("order-42"), found, wide=True))
    named = [line.split("   ")[0] for line in lines]
    values = ["holder", "", "verdict", "lease", "renewed", "held for", "fencing token", "data"]
    assert named[2:] == [*values, "No one waits."]
    assert "".join(line.removeprefix("holder").strip() for line in lines[2:4]) == EXECUTION


def test_a_lock_whose_names_are_short_or_shortened_is_shown_as_a_table(locks: LockClient) -> None:
    with locks.acquire("order-42", owner=EXECUTION, lease=60):
        headings, _, line, _ = printed(state_tables(LockName("order-42"), locks.inspect("order-42")))[2:]
    assert headings.split() == ["holder", "verdict", "lease", "renewed", "held", "for", "fencing", "token"]
    assert line.startswith("…")
    assert line.split()[1:7] == ["granted", "60", "s", "of", "60", "s"]


def test_a_lock_is_shown_with_what_operators_have_decided_who_when_and_why(locks: LockClient) -> None:
    lock, table = LockName("order-42"), locks.table
    lease = locks.acquire("order-42", owner=EXECUTION)
    table.force_release(lock, lease.fencing_token, by="ann@bastion", why="gone")
    table.set_limit(lock, 0, by="ann@bastion", why="\x1b[2Jmigration")
    table.unset_limit(lock, by="bob@bastion")
    facts = [line for line in printed(state_tables(lock, table.inspect(lock), wide=True), 400) if " ago by " in line]
    assert [re.sub(r"\d+\.\d s", "0.0 s", line) for line in facts] == [
        "limit set to 0, 0.0 s ago by ann@bastion: \\x1b[2Jmigration",
        "limit unset, 0.0 s ago by bob@bastion, no reason given",
        f"taken by force from {EXECUTION}, fencing token {lease.fencing_token}, 0.0 s ago by ann@bastion: gone",
    ]
    told = state(lock, table.inspect(lock))
    by = [told[name]["by"] for name in ("limitSet", "limitUnset", "lastForced")]
    assert by == ["ann@bastion", "bob@bastion", "ann@bastion"]


@pytest.mark.parametrize(
    ("owner", "short"),
    [
        (f"{EXECUTION}/charge", "LockStateMachine0BC1E4B2-fN3q8Zr5xT1k:6f9d3d40-6a1c-4c1f-9a6e-6d2f5f0d9c11/charge"),
        ("arn:aws-cn:states:cn-north-1:1:express:Orders:a-name:a-run", "Orders:a-name:a-run"),
        ("arn:aws:iam::123456789012:role/Orders", "arn:aws:iam::123456789012:role/Orders"),
        (f"web-3:4711/{'0f' * 16}", "web-3:4711"),
        ("build-4711/deploy", "build-4711/deploy"),
    ],
)
def test_an_owner_is_shortened_to_what_tells_people_whose_it_is(owner: str, short: str) -> None:
    assert short_owner(owner) == short


@pytest.mark.parametrize(("seconds", "told"), [(-1, "0s"), (14.4, "14s"), (119, "119s"), (130, "2m"), (7_000, "117m")])
def test_a_short_duration_has_no_fraction(seconds: float, told: str) -> None:
    assert short_span(round(seconds * 1_000)) == told


@pytest.mark.parametrize("entity", ["-x", "--", "---", "--help", "--wait"])
def test_an_entity_may_begin_with_a_dash_after_two_dashes(entity: str) -> None:
    for name, command in COMMANDS.items():
        if name == "run" or all(each.name != "entity" for each in command.params):
            continue
        more = {"remove-waiter": ["7"], "renew": [], "release": []}.get(name, [])
        options = ["--owner", "build-7"] if name in ("renew", "release") else []
        made = command.make_context(name, [*options, "--", entity, *more], parent=click.Context(GROUP))
        assert made.params["entity"] == entity


@pytest.mark.parametrize("entity", ["-x", "--", "---", "--help", "--wait"])
@pytest.mark.parametrize(
    ("before", "behind", "program", "options"),
    [
        ([], [], [], {}),
        ([], [], ["--", "make", "--", "-x"], {}),
        ([], [], ["make", "--wait", "3"], {}),
        (["--wait", "3"], ["--data", "--"], ["--", "make"], {"wait": 3.0, "data": "--"}),
        (["--data", "--"], ["--wait", "3"], ["make", "-x"], {"wait": 3.0, "data": "--"}),
        (["--data", "--"], ["--namespace", "--"], [], {"namespace": "--", "data": "--"}),
    ],
)
def test_a_program_runs_under_the_lock_on_an_entity_that_begins_with_a_dash(
    entity: str, before: list[str], behind: list[str], program: list[str], options: dict[str, object]
) -> None:
    words = [*before, "--", entity, *behind, *program]
    made = COMMANDS["run"].make_context("run", words, parent=click.Context(GROUP))
    assert made.params["entity"] == entity
    assert list(made.params["command"]) == program[program[:1] == ["--"] :]
    assert {name: made.params[name] for name in options} == options


@pytest.mark.parametrize("name", ["show", "run", "acquire", "limit"])
def test_an_unknown_option_that_may_be_an_entity_says_how_to_type_that(name: str) -> None:
    with pytest.raises(click.UsageError, match="An ENTITY that begins with '-' stands after '--'") as wrong:
        COMMANDS[name].make_context(name, ["-x"], parent=click.Context(GROUP))
    assert wrong.value.ctx is not None
