"""Options for the table and how to reach it; every command takes them before or after its name."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import boto3
import click
from click.core import ParameterSource

from ticketlock import LockClient, LockTable, client_config
from ticketlock.cli._exits import CONFIGURATION, Ended
from ticketlock.cli._wording import typed
from ticketlock.wire import READ_TIMEOUT_S

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")

F = TypeVar("F", bound=Callable[..., Any])

# A request that hangs must leave time for a retry within the lease.
_READ_TIMEOUTS_A_LEASE = 4
_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")

namespace_option = click.option(
    "--namespace", default="default", show_default=True, help="Which of several independent locks on the entity."
)


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


@dataclass
class CommandSettings:
    """The options about the table.

    Attributes:
        table: its name.
        region, profile, endpoint_url: as for AWS tools; None for the environment and AWS configuration files.
        wake: whether the next workflow in line is woken when a lock becomes free.
        units_table: the name of the units table.
        typed: those of the command line, which no environment has; by name.
    """

    table: str | None = None
    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    wake: bool = True
    units_table: str | None = None
    typed: dict[str, str] = field(default_factory=dict)

    @property
    def table_name(self) -> str:
        """The name of the table."""
        if not self.table:
            raise click.UsageError("which table? Give --table, or set TICKETLOCK_TABLE.")
        return self.table

    @property
    def units_table_name(self) -> str:
        """The name of the units table."""
        if not self.units_table:
            raise click.UsageError("which units table? Give --units-table, or set TICKETLOCK_UNITS_TABLE.")
        return self.units_table

    @cached_property
    def session(self) -> boto3.Session:
        """The session with credentials and Region, by AWS's conventions."""
        return boto3.Session(profile_name=self.profile, region_name=self.region)

    def client(self, service: str = "dynamodb", *, lease_s: float | None = None, **config: Any) -> Any:
        """An SDK client with short time-outs and without retries by the SDK.

        Args:
            service: the AWS service.
            lease_s: the lease that must be renewed with this client.
            config: more settings.
        """
        if lease_s is not None:
            config["read_timeout"] = min(READ_TIMEOUT_S, lease_s / _READ_TIMEOUTS_A_LEASE)
        make: Any = self.session.client
        try:
            return make(service, endpoint_url=self.endpoint_url, config=client_config(**config))
        except ValueError as error:
            raise Ended(str(error), CONFIGURATION) from error

    def locks(self, *, lease_s: float, **more: Any) -> LockClient:
        """A client for the locks of the table, with this lease."""
        return LockClient(
            self.table_name,
            client=self.client(lease_s=lease_s),
            step_functions=self._step_functions(),
            lease=lease_s,
            **more,
        )

    def lock_table(self) -> LockTable:
        """The lock table, for operators."""
        return LockTable(self.table_name, client=self.client(), step_functions=self._step_functions())

    def place(self) -> str:
        """The table's Region, and its endpoint if it is not that of AWS."""
        try:
            region = self.session.region_name or "no Region"
            endpoint = self.client().meta.endpoint_url
        except Exception:  # the error is being reported already
            return "this account and Region"
        return region if is_of_aws(endpoint) else f"{region} ({endpoint})"

    def lock_place(self) -> str:
        """The lock table and its place, for questions."""
        return f"the table '{self.table_name}' in {self.place()}"

    def units_place(self) -> str:
        """The units table and its place, for questions."""
        return f"the units table '{self.units_table_name}' in {self.place()}"

    def command(self, text: str, *, anywhere: bool = False) -> str:
        """A command for the same tables, to be typed where this one was; another text as it is.

        Args:
            text: the command without these options.
            anywhere: whether it is to be typed in other environments, too.
        """
        if not text.startswith("ticketlock "):
            return text
        is_of_units = text.startswith("ticketlock units ")
        program, table = ("ticketlock units", "units_table") if is_of_units else ("ticketlock", "table")
        given = {table: getattr(self, table), "region": self.session.region_name} if anywhere else {}
        given |= self.typed
        names = [name for name in (table, "region", "profile", "endpoint_url") if given.get(name)]
        options = [f" --{name.replace('_', '-')} {typed(given[name])}" for name in names]
        return f"{program}{''.join(options)}{text.removeprefix(program)}"

    def _step_functions(self) -> Any:
        return self.client("stepfunctions") if self.wake else None


def is_of_aws(endpoint: str) -> bool:
    """Whether an endpoint is AWS's own, and no emulator's."""
    return endpoint.endswith(_OF_AWS)


def settings_of(context: click.Context) -> CommandSettings:
    """The settings of the running command."""
    settings: CommandSettings = context.ensure_object(CommandSettings)
    return settings


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        settings = context.ensure_object(CommandSettings)
        setattr(settings, parameter.name, value)
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            settings.typed[parameter.name] = value


_MORE: dict[str, Any] = {"expose_value": False, "callback": _keep, "default": None}


def _from(variable: str, *, environment: bool) -> dict[str, Any]:
    return {"envvar": variable, "show_envvar": True} if environment else {}


def _of_connection() -> list[Callable[[F], F]]:
    return [
        click.option("--region", metavar="NAME", help="The table's Region.", **_MORE),
        click.option("--profile", metavar="NAME", help="The profile of the AWS configuration.", **_MORE),
        click.option("--endpoint-url", metavar="URL", help="An endpoint other than AWS's.", **_MORE),
    ]


def _of_locks(*, environment: bool) -> list[Callable[[F], F]]:
    variable = _from("TICKETLOCK_TABLE", environment=environment)
    return [
        click.option("--table", metavar="NAME", help="The lock table.", **_MORE, **variable),
        *_of_connection(),
        click.option(
            "--wake/--no-wake",
            help="Wake the next workflow in line when a lock becomes free.  [default: wake it, if permitted]",
            **_MORE,
        ),
    ]


def _of_units(*, environment: bool) -> list[Callable[[F], F]]:
    variable = _from("TICKETLOCK_UNITS_TABLE", environment=environment)
    return [
        click.option("--units-table", metavar="NAME", help="The table of units.", **_MORE, **variable),
        *_of_connection(),
    ]


def _with(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def table_options(command: F) -> F:
    """Add the options to a command, to be given after its name."""
    return _with(_of_locks(environment=False))(command)


def group_options(command: F) -> F:
    """Add the options to the group, to be given before a command's name or in the environment."""
    return _with(_of_locks(environment=True))(command)


def units_options(command: F) -> F:
    """Add the options to a command of units, to be given after its name."""
    return _with(_of_units(environment=False))(command)


def units_group_options(command: F) -> F:
    """Add the options to the group of units, to be given before a command's name or in the environment."""
    return _with(_of_units(environment=True))(command)


units_table_option = click.option(
    "--units-table",
    metavar="NAME",
    help="Show the open units of this table, too.",
    **_MORE,
    **_from("TICKETLOCK_UNITS_TABLE", environment=True),
)


lease_option = click.option(
    "--lease",
    type=Duration("1s", "7d"),
    default=60.0,
    metavar="TIME",
    help="How long the lock stays held without a renewal: 90, 5m, 1h30m.  [default: 60s]",
)
