"""``ticketlock doctor``: is everything there that locks need?"""

import platform
from collections.abc import Iterator
from typing import Any

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

import ticketlock
from ticketlock.cli._clock_check import clock_finding
from ticketlock.cli._exits import CONFIGURATION, UNAVAILABLE, Ended
from ticketlock.cli._finding import Finding
from ticketlock.cli._permission_check import trial_findings
from ticketlock.cli._settings import Settings, settings_of, table_options
from ticketlock.cli._table_check import table_findings
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire import _sdk

_STYLES = {"good": ("ok", "green"), "bad": ("BAD", "red"), "unsure": ("?", "yellow")}


@click.command()
@table_options
@click.pass_context
def doctor(context: click.Context, /) -> None:
    """Check the table, the permissions, the clock and the configuration. Writes nothing."""
    settings = settings_of(context)
    settings.table_name  # noqa: B018  # nothing can be checked without
    bad = 0
    for finding in _findings(settings):
        word, colour = _STYLES[finding.verdict]
        click.echo(f"{click.style(f'{word:>3}', fg=colour)}  {finding.what}: {finding.text}")
        bad += finding.verdict == "bad"
    if bad:
        raise Ended(f"{bad} {'check has' if bad == 1 else 'checks have'} failed", CONFIGURATION)


def _findings(settings: Settings) -> Iterator[Finding]:
    versions = f"ticketlock {ticketlock.__version__}, boto3 {boto3.__version__}, Python {platform.python_version()}"
    yield Finding("good", "versions", versions)
    client = settings.client()
    yield Finding("good", "endpoint", f"{client.meta.endpoint_url}, Region {client.meta.region_name}")
    yield _credentials(settings)
    _reach(client, settings)
    yield from table_findings(client, settings.table_name)
    yield from trial_findings(client, settings.table_name)
    yield clock_finding(client, settings.table_name)


def _credentials(settings: Settings) -> Finding:
    credentials: Any = settings.session.get_credentials()
    if credentials is None:
        return Finding("bad", "credentials", "there are none: set a profile, or AWS_ACCESS_KEY_ID and its secret")
    return Finding("good", "credentials", f"key {credentials.access_key[:4]}..., from {credentials.method}")


def _reach(client: Any, settings: Settings) -> None:
    """See that somebody answers, whatever the answer: else all that follows would fail in the same way.

    Raises:
        Ended: nobody does.
    """
    try:
        client.get_item(**TIME_CHECK.parameters(settings.table_name))
    except ClientError:
        return
    except BotoCoreError as error:
        if isinstance(_sdk.meaning(error), Exception):
            raise
        raise Ended(f"nobody answers: {error}", UNAVAILABLE) from error
