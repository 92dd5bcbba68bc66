"""The options and exit codes of the command, from its click commands."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from ticketlock.cli._commands import _ticketlock

_LOCKS, _UNITS = "locks", "units"
_ALL, _BEFORE = "all", "before the command"


def options_for_locks() -> str:
    """A list of the options of the commands for locks."""
    return _options(_ticketlock)


def options_for_units() -> str:
    """A list of the options of the commands for units of work, but for those of every command."""
    return _options(_units())


def exit_codes() -> str:
    """A table of the exit codes: a row for each code and meaning."""
    parts = {_LOCKS: _commands(_ticketlock), _UNITS: _commands(_units())}
    users: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for part, commands in parts.items():
        for name, command in commands.items():
            for code in command.ends:
                users.setdefault((str(code), command.meanings[code]), []).append((part, name))
    rows = []
    for (code, meaning), found in users.items():
        of = [
            told
            for part, commands in parts.items()
            for told in _which([name for of, name in found if of == part], list(commands), part)
        ]
        rows.append((code, meaning, ", ".join(of)))
    return _table(("code", "means", "of"), sorted(rows, key=lambda row: int(row[0].partition("+")[0])))


def _units() -> click.Group:
    units = _ticketlock.commands[_UNITS]
    assert isinstance(units, click.Group)
    return units


def _commands(group: click.Group) -> dict[str, Any]:
    return {name: command for name, command in sorted(group.commands.items()) if name != _UNITS}


def _which(names: Sequence[str], everything: Sequence[str], part: str) -> list[str]:
    """The names in backticks; "all for locks", or "for units", if at most one is missing."""
    missing = [name for name in everything if name not in names]
    if names and len(missing) < 2:
        return [f"all for {part}" + "".join(f" but `{name}`" for name in missing)]
    return [f"`{name}`" if part == _LOCKS else f"`{part} {name}`" for name in names]


def _options(group: click.Group) -> str:
    commands = _commands(group)
    users: dict[tuple[str, str], list[str]] = {}
    of_group = {each.name for each in group.params}
    for name, command in commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and option.name not in of_group:
                users.setdefault((_spelling(option), _told(option)), []).append(f"`{name}`")
    # Those of every command are listed once, with the locks.
    before = {each.name for each in _ticketlock.params} if group is not _ticketlock else set()
    behind = {option.name for command in commands.values() for option in command.params}
    for option in group.params:
        if isinstance(option, click.Option) and option.name not in before:
            users[_spelling(option), _told(option)] = [_ALL if option.name in behind else _BEFORE]
    rows = [(f"`{spelling}`", ", ".join(names), told) for (spelling, told), names in users.items()]
    rows.sort(key=lambda row: (row[1] != _BEFORE, row[1] != _ALL, row[0]))
    return "\n".join(_item(f"- {spelling} ({names}): {told}") for spelling, names, told in rows)


def _item(line: str) -> str:
    return textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _spelling(option: click.Option) -> str:
    names = ", ".join([*sorted(option.opts, key=len, reverse=True), *option.secondary_opts])
    if option.is_flag or option.count:
        return names
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    return f"{names} {option.metavar or '|'.join(map(str, choices)) or option.type.name.split()[0].upper()}"


def _told(option: click.Option) -> str:
    told = re.sub(r"\s*\[default: (.*)\]$", r" Default: \1.", option.help or "")
    told += f" Default: {option.default}." if option.show_default else ""
    return f"{told} Environment: {option.envvar}." if option.show_envvar else told


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *others = (f"| {' | '.join(cells).strip()} |" for cells in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others])
