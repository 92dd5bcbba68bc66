"""The options that several commands take; those of one command are in its file."""

import math
import re
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from ticketlock.cli._exits import WAIT_IS_OVER
from ticketlock.cli._settings import CommandSettings

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """A duration in seconds; ``forever`` too, where that is allowed.

    Args:
        least, most: the shortest and the longest that is allowed, as users type them.
        forever: whether ``forever`` is allowed.
    """

    name = "time"

    def __init__(self, least: str = "0s", most: str | None = None, *, forever: bool = False) -> None:
        self._least = least
        self._most = most
        self._forever = forever

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if self._forever and value == "forever":
            return math.inf
        seconds = _seconds(str(value))
        most_s = math.inf if self._most is None else _seconds(self._most)
        if math.isfinite(seconds) and _seconds(self._least) <= seconds <= most_s:
            return seconds
        bounds = f"from {self._least} on" if self._most is None else f"from {self._least} to {self._most}"
        allowed = f"a time {bounds}, such as 90, 1.5s, 5m or 1h30m" + (", or 'forever'" if self._forever else "")
        raise click.BadParameter(f"{value!r} is not {allowed}.", ctx, param)


def _seconds(text: str) -> float:
    """The seconds that a text stands for; a number without a unit is seconds. NaN if the text is not a duration."""
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return math.fsum(float(number) * _UNITS_S[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        return math.nan


namespace_option = click.option(
    "--namespace", default="default", show_default=True, help="Which of several independent locks on the entity."
)
only_namespace_option = click.option("--namespace", help="Only the locks of this namespace.")
prefix_option = click.option("--prefix", default="", help="Only locks whose entity begins with this text.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
wide_option = click.option("--wide", is_flag=True, help="Show whole names, such as ARNs; in a pipe they always are.")
watch_option = click.option("--watch", "watched", is_flag=True, help="Read again and again, until a signal arrives.")
lease_option = click.option(
    "--lease",
    type=Duration("1s", "7d"),
    default=60.0,
    metavar="TIME",
    help="How long the lock stays held without a renewal: 90, 5m, 1h30m.  [default: 60s]",
)


def every_option(default_s: float) -> Option:
    """The option for the pause between two readings.

    Args:
        default_s: if it is not given.
    """
    help_text = f"How long to pause between two readings.  [default: {default_s:g}s]"
    return click.option("--every", type=Duration("100ms"), default=default_s, metavar="TIME", help=help_text)


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        settings = context.ensure_object(CommandSettings)
        setattr(settings, parameter.name, value)
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            settings.typed[parameter.name] = value


_MORE: dict[str, Any] = {"expose_value": False, "callback": _keep, "default": None}
_TABLE: dict[str, Any] = {"envvar": "TICKETLOCK_TABLE", "show_envvar": True}
_UNITS_TABLE: dict[str, Any] = {"envvar": "TICKETLOCK_UNITS_TABLE", "show_envvar": True}

_CONNECTION = (
    click.option("--region", metavar="NAME", help="The table's Region.", **_MORE),
    click.option("--profile", metavar="NAME", help="The profile of the AWS configuration.", **_MORE),
    click.option("--endpoint-url", metavar="URL", help="An endpoint other than AWS's.", **_MORE),
)


def _all(*options: Option) -> Option:
    """Several options, in the order in which they are told."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _of_locks(**environment: Any) -> Option:
    return _all(
        click.option("--table", metavar="NAME", help="The lock table.", **_MORE, **environment),
        *_CONNECTION,
        click.option(
            "--wake/--no-wake",
            help="Wake the next workflow in line when a lock becomes free.  [default: wake it, if permitted]",
            **_MORE,
        ),
    )


def _of_units(**environment: Any) -> Option:
    return _all(
        click.option("--units-table", metavar="NAME", help="The table of units.", **_MORE, **environment), *_CONNECTION
    )


# Of a command, to be given after its name; of its group, to be given before that, or in the environment.
table_options, group_options = _of_locks(), _of_locks(**_TABLE)
units_options, units_group_options = _of_units(), _of_units(**_UNITS_TABLE)

# Who decides, and why.
decision_options = _all(
    click.option("--by", metavar="TEXT", help="Who decides.  [default: the user, and the host]"),
    click.option("--why", metavar="TEXT", help="For what reason. `show` prints it with who decided, and when."),
)

# How to wait in the queue: the fields of WaitOptions.
waiting_options = _all(
    namespace_option,
    click.option(
        "--wait",
        type=Duration(forever=True),
        default=60.0,
        metavar="TIME|forever",
        help="How long to wait in line: 90, 5m, 1h30m.  [default: 60s]",
    ),
    click.option("--no-wait", is_flag=True, help="Fail at once if the lock is held or has waiters."),
    click.option("--wait-if-closed", is_flag=True, help="Wait for a lock that an operator has closed, too; else fail."),
    lease_option,
    click.option("--shared", is_flag=True, help="Hold it together with others that share it."),
    click.option("--permits", type=int, default=1, show_default=True, help="How many may hold it at once."),
    click.option("--data", metavar="TEXT", help="Up to 1,024 bytes that `show` prints beside the holder."),
    click.option("--quiet", "-q", is_flag=True, help="Show no status line while waiting; no message if it times out."),
    click.option(
        "--conflict-exit-code",
        "-E",
        type=click.IntRange(0, 255),
        default=WAIT_IS_OVER,
        metavar="N",
        help=f"The exit code when the wait has timed out.  [default: {WAIT_IS_OVER}]",
    ),
)

# What `top` and `report` read.
reading_options = _all(
    only_namespace_option,
    prefix_option,
    click.option("--stuck", is_flag=True, help="Only the locks and units that need you, or a lease to end."),
    click.option(
        "--units-table", metavar="NAME", help="Show the open units of this table, too.", **_MORE, **_UNITS_TABLE
    ),
)
