"""``ticketlock doctor``: checks everything that locks need.

It tries each permission of the caller with a request that writes nothing and reads no lock: a write has a condition
that never holds, so it is refused for the condition, or for a missing permission.
"""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

import ticketlock
from ticketlock.cli._exits import CONFIGURATION, OUTPUT_LOST, UNAVAILABLE, USAGE, Ended, Explained
from ticketlock.cli._options import table_options
from ticketlock.cli._settings import CommandSettings, is_of_aws, settings_of
from ticketlock.locks import LOCK_TABLE, TIME_CHECK, reads
from ticketlock.wire import TIME_TO_LIVE, Read, TryAgain, date_ms, meaning

Verdict = Literal["good", "bad", "unsure"]

# The Date header has whole seconds, and is set when the service starts its work or when it ends it.
_DATE_RESOLUTION_MS = 2_000
# Beyond some minutes AWS refuses requests:
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
_REFUSED_FROM_MS = 300_000
_SUSPECT_FROM_MS = 30_000

_KEY = {"pk": {"S": "ticketlock doctor"}, "sk": {"S": "ticketlock doctor/"}}
_NEVER = "attribute_exists(pk) AND attribute_not_exists(pk)"
_PERMITTED = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException"})
_TO_USE = "to take and free locks"
_TO_LIST = "for `ticketlock ls`"

KEYS = "keys"
"""What the finding about the table's keys is called."""
_KEPT = "expired items would never be deleted"
_DENIED = frozenset({"AccessDeniedException", "AccessDenied"})

_STYLES = {"good": ("ok", "green"), "bad": ("BAD", "red"), "unsure": ("?", "yellow")}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        verdict: good, bad, or unsure if this caller lacks the permission to check.
        what: what was checked.
        text: what was found, and what to do about it.
    """

    verdict: Verdict
    what: str
    text: str


def clock_finding(client: Any, table_name: str) -> Finding:
    """Compare the two. Locks do not depend on this clock, but AWS refuses requests if it is far off."""
    sent_ms = time.time_ns() // 1_000_000
    try:
        response = client.get_item(**TIME_CHECK.parameters(table_name))
    except ClientError as error:
        response = error.response
    received_ms = time.time_ns() // 1_000_000
    table_ms = date_ms(response)
    if table_ms is None:
        return Finding("bad", "clock", "the replies have no Date header, and leases need it: does a proxy remove it?")
    ahead_ms = max(0, sent_ms - (table_ms + _DATE_RESOLUTION_MS))
    behind_ms = max(0, table_ms - received_ms)
    off_ms = max(ahead_ms, behind_ms)
    if off_ms == 0:
        return Finding("good", "clock", "agrees with the Date of the table's replies")
    text = f"{off_ms / 1_000:.1f} s {'ahead of' if ahead_ms else 'behind'} the table's"
    if off_ms < _SUSPECT_FROM_MS:
        return Finding("good", "clock", f"{text}: no lock depends on it")
    reason = "AWS refuses requests" if off_ms >= _REFUSED_FROM_MS else "AWS refuses requests when it is 5 minutes off"
    return Finding("bad", "clock", f"{text}: {reason}; set the clock, or run NTP")


def trial_findings(client: Any, table_name: str) -> Iterator[Finding]:
    """Try every action on the table."""
    table = {"TableName": table_name}
    write: Mapping[str, Any] = {**table, "ConditionExpression": _NEVER}
    key: Mapping[str, Any] = {"Key": _KEY}
    check = {"ConditionCheck": {**write, **key}}
    other = {"Delete": {**write, "Key": {**_KEY, "sk": {"S": "ticketlock doctor/0"}}}}
    read = Read({"pk": {"S": "ticketlock doctor"}}, {"sk": {"S": "-"}}, limit=1)
    scan = {**reads.list_page().parameters(table_name), "Limit": 1}
    trials: list[tuple[str, str, Callable[[], Any]]] = [
        ("GetItem", _TO_USE, lambda: client.get_item(**TIME_CHECK.parameters(table_name))),
        ("Query", _TO_USE, lambda: client.query(**read.parameters(table_name))),
        ("PutItem", _TO_USE, lambda: client.put_item(**write, Item=_KEY)),
        ("UpdateItem", _TO_USE, lambda: client.update_item(**write, **key)),
        ("DeleteItem", _TO_USE, lambda: client.delete_item(**write, **key)),
        ("ConditionCheckItem", _TO_USE, lambda: client.transact_write_items(TransactItems=[check, other])),
        ("Scan", _TO_LIST, lambda: client.scan(**scan)),
    ]
    for action, purpose, trial in trials:
        yield _tried(f"dynamodb:{action}", purpose, trial)


def _tried(action: str, purpose: str, trial: Callable[[], Any]) -> Finding:
    try:
        trial()
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        if code not in _PERMITTED:
            return Finding("bad", action, f"needed {purpose}; {code}: {message}")
    return Finding("good", action, "permitted")


def table_findings(client: Any, table_name: str) -> Iterator[Finding]:
    """Check the table's description and time to live, if this caller may read them."""
    try:
        described = client.describe_table(TableName=table_name)["Table"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code not in _DENIED:
            raise
        yield Finding("unsure", "table", f"{code}: not needed to use locks")
        return
    status = described.get("TableStatus", "ACTIVE")
    yield Finding("good" if status in ("ACTIVE", "UPDATING") else "bad", "table", f"{table_name} is {status}")
    yield _keys(described, LOCK_TABLE.definition(table_name))
    if described.get("Replicas"):
        yield Finding("bad", "replicas", "each Region judges conditions by itself: use the locks in one Region only")
    yield _time_to_live(client, table_name)


def _keys(described: Any, wanted: Any) -> Finding:
    def shape(table: Any) -> dict[str, tuple[str, str]]:
        types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
        return {each["AttributeName"]: (each["KeyType"], types[each["AttributeName"]]) for each in table["KeySchema"]}

    found, needed = shape(described), shape(wanted)
    shown = ", ".join(f"{name} ({role}, {kind})" for name, (role, kind) in found.items())
    if found == needed:
        return Finding("good", KEYS, shown)
    return Finding(
        "bad", KEYS, f"{shown}; a lock table has pk (HASH, S), sk (RANGE, S): is the name that of your lock table?"
    )


def _time_to_live(client: Any, table_name: str) -> Finding:
    try:
        found = client.describe_time_to_live(TableName=table_name)["TimeToLiveDescription"]
    except ClientError as error:
        return Finding("unsure", "time to live", error.response["Error"]["Code"])
    status, attribute = found.get("TimeToLiveStatus", "DISABLED"), found.get("AttributeName")
    if status in ("ENABLED", "ENABLING") and attribute == TIME_TO_LIVE:
        return Finding("good", "time to live", f"on {attribute}")
    if status in ("ENABLED", "ENABLING"):
        return Finding("bad", "time to live", f"on {attribute}, not on {TIME_TO_LIVE}: {_KEPT}")
    if not is_of_aws(client.meta.endpoint_url):
        return Finding("unsure", "time to live", f"off: an emulator may ignore the template's setting; on AWS {_KEPT}")
    return Finding("bad", "time to live", f"off: {_KEPT}; `ticketlock init` enables it")


@click.command(
    cls=Explained,
    example="ticketlock doctor --table locks --region eu-central-1",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
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


def _findings(settings: CommandSettings) -> Iterator[Finding]:
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


def _credentials(settings: CommandSettings) -> Finding:
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
        if code.isdigit() or isinstance(meaning(error), TryAgain):
            return Finding("bad", "endpoint", f"{_place(client)}: no DynamoDB answers there now: {error}")
    except BotoCoreError as error:
        return Finding("bad", "endpoint", f"{_place(client)}: no answer: {error}")
    return Finding("good", "endpoint", _place(client))


def _place(client: Any) -> str:
    return f"{client.meta.endpoint_url}, Region {client.meta.region_name}"
