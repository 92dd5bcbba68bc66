"""``ticketlock doctor``: checks everything that locks need."""

import platform
from collections.abc import Iterator
from typing import Any

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

import ticketlock
from ticketlock.cli._clock_check import clock_finding
from ticketlock.cli._exits import CONFIGURATION, UNAVAILABLE, USAGE, Ended
from ticketlock.cli._explained import Explained
from ticketlock.cli._finding import Finding
from ticketlock.cli._permission_check import trial_findings
from ticketlock.cli._settings import Settings, settings_of, table_options
from ticketlock.cli._table_check import KEYS, table_findings
from ticketlock.locks._reads import TIME_CHECK
from ticketlock.wire import _sdk

_STYLES = {"good": ("ok", "green"), "bad": ("BAD", "red"), "unsure": ("?", "yellow")}


@click.command(
    cls=Explained,
    example="ticketlock doctor --table locks --region eu-central-1",
    ends=(0, USAGE, UNAVAILABLE, CONFIGURATION),
)
@table_options
@click.pass_context
def doctor(context: click.Context, /) -> None:
    """Check the table, the permissions, the clock and the configuration. Writes nothing."""
    settings = settings_of(context)
    settings.table_name  # noqa: B018  # without a table name nothing can be checked
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
    has_credentials = settings.session.get_credentials() is not None
    endpoint = _endpoint(client, settings.table_name) if has_credentials else _not_asked(client)
    yield endpoint
    yield _credentials(settings)
    if endpoint.verdict != "good":
        # All other checks would fail in the same way.
        if endpoint.verdict == "bad":
            raise Ended("the endpoint does not answer: the other checks were skipped", UNAVAILABLE)
        return
    has_wrong_keys = False
    for finding in table_findings(client, settings.table_name):
        has_wrong_keys |= finding.what == KEYS and finding.verdict == "bad"
        yield finding
    if has_wrong_keys:
        # Every trial would fail for its key.
        yield Finding("unsure", "permissions", "not checked, because the keys are wrong")
    else:
        yield from trial_findings(client, settings.table_name)
    yield clock_finding(client, settings.table_name)


def _credentials(settings: Settings) -> Finding:
    credentials: Any = settings.session.get_credentials()
    if credentials is None:
        return Finding("bad", "credentials", "there are none: set a profile, or AWS_ACCESS_KEY_ID and its secret")
    return Finding("good", "credentials", f"key {credentials.access_key[:4]}..., from {credentials.method}")


def _not_asked(client: Any) -> Finding:
    return Finding("unsure", "endpoint", f"{_place(client)}: not checked, because there are no credentials")


def _endpoint(client: Any, table_name: str) -> Finding:
    """Check that a DynamoDB answers; any answer will do."""
    try:
        client.get_item(**TIME_CHECK.parameters(table_name))
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code.isdigit() or isinstance(_sdk.meaning(error), _sdk.TryAgain):
            return Finding("bad", "endpoint", f"{_place(client)}: no DynamoDB answers there now: {error}")
    except BotoCoreError as error:
        return Finding("bad", "endpoint", f"{_place(client)}: no answer: {error}")
    return Finding("good", "endpoint", _place(client))


def _place(client: Any) -> str:
    return f"{client.meta.endpoint_url}, Region {client.meta.region_name}"
