"""``ticketlock init``: creates the table."""

from typing import Any

import click

from ticketlock import create_table
from ticketlock.cli._exits import ANSWER_WAS_NO, CONFIGURATION, UNAVAILABLE, USAGE, Ended
from ticketlock.cli._explained import Explained
from ticketlock.cli._settings import settings_of, table_options

# Unlike a lock's requests, these may be slow, and the SDK may retry them.
_PATIENT: dict[str, Any] = {"read_timeout": 20, "retries": {"total_max_attempts": 4, "mode": "standard"}}


@click.command(
    cls=Explained,
    example="ticketlock init --table locks --deletion-protection",
    ends=(0, ANSWER_WAS_NO, USAGE, UNAVAILABLE, CONFIGURATION),
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--deletion-protection", is_flag=True, help="No one can delete the table until this is switched off.")
@table_options
@click.pass_context
def init(context: click.Context, /, yes: bool, deletion_protection: bool) -> None:
    """Create the lock table, billed on demand, with time to live.

    Of an existing lock table only time to live is enabled, if it is off.
    """
    settings = settings_of(context)
    name, place = settings.table_name, settings.place()
    if not yes:
        click.confirm(f"Create the table '{name}' in {place}?", abort=True, err=True)
    more: dict[str, Any] = {"DeletionProtectionEnabled": True} if deletion_protection else {}
    client = settings.client(**_PATIENT)
    try:
        made = create_table(name, client=client, **more)
    except ValueError as wrong:  # the existing table is not a lock table
        raise Ended(str(wrong), CONFIGURATION) from wrong
    click.echo(f"{'created' if made else 'there was already'} the table '{name}' in {place}")
