"""What the options about the tables say, and how to reach them."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

from ticketlock import LockClient, LockTable, client_config
from ticketlock.cli._exits import CONFIGURATION, Ended
from ticketlock.report import with_options
from ticketlock.wire import READ_TIMEOUT_S

# A request that hangs must leave time for a retry within the lease.
_READ_TIMEOUTS_A_LEASE = 4
_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


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

    def ask_for_credentials(self) -> None:
        """Let a profile with a device for MFA ask for its code now, while signals still end the program."""
        # Whoever needs them tells the error.
        with suppress(BotoCoreError, ClientError):
            if (found := self.session.get_credentials()) is not None:
                found.get_frozen_credentials()

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
            **self._wakes(),
            lease=lease_s,
            **more,
        )

    def lock_table(self) -> LockTable:
        """The lock table, for operators."""
        return LockTable(self.table_name, client=self.client(), **self._wakes())

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
        given: dict[str, str | None] = {}
        if anywhere:
            given = {"table": self.table, "units_table": self.units_table, "region": self.session.region_name}
        return with_options(text, given | self.typed)

    def _wakes(self) -> dict[str, Any]:
        """The clients by which a release wakes those who wait."""
        services = {"step_functions": "stepfunctions", "lambda_client": "lambda"}
        return {name: self.client(service) for name, service in services.items()} if self.wake else {}


def is_of_aws(endpoint: str) -> bool:
    """Whether an endpoint is AWS's own, and no emulator's."""
    return endpoint.endswith(_OF_AWS)


def settings_of(context: click.Context) -> CommandSettings:
    """The settings of the running command."""
    settings: CommandSettings = context.ensure_object(CommandSettings)
    return settings
