"""Checks the keys, the status and the time to live of the table."""

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError

from ticketlock.cli._finding import Finding
from ticketlock.cli._settings import is_of_aws
from ticketlock.locks._lock_table import LOCK_TABLE
from ticketlock.wire._actions import TIME_TO_LIVE

KEYS = "keys"
"""What the finding about the table's keys is called."""
_KEPT = "expired items would never be deleted"
_DENIED = frozenset({"AccessDeniedException", "AccessDenied"})


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
