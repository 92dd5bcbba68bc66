"""The operations on tables. All are done at once: no table or index is ever being created or deleted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ticketlock.testing._definitions import (
    MOST_GLOBAL_INDEXES,
    check_are_defined,
    check_definition,
    check_distinct,
    check_global,
    check_projected,
    check_projection,
    check_settings,
    check_tags,
    wrong,
)
from ticketlock.testing._parameters import SETTINGS, check_members, check_name
from ticketlock.testing._refusals import Refused, invalid
from ticketlock.testing._tables import MemoryTables, Parameters, Reply, Table

_MOST_NAMES = 100
_DAYS = 35
_NOT_TOLD_OF_DELETED = (
    "AttributeDefinitions",
    "CreationDateTime",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
    "VectorIndexes",
)


def perform(tables: MemoryTables, operation: str, parameters: Parameters) -> Reply:
    """One of the ``OPERATIONS``."""
    if "TableName" in parameters:
        check_name("tableName", parameters["TableName"], may_be_foreign=operation != "CreateTable")
    check_members(operation, parameters)
    # Definitions are kept and told: neither the sender nor the receiver shares them.
    return deepcopy(OPERATIONS[operation](tables, deepcopy(parameters)))


def _create_table(tables: MemoryTables, parameters: Parameters) -> Reply:
    check_definition(parameters)
    return {"TableDescription": tables.create(parameters).description()}


def _describe_table(tables: MemoryTables, parameters: Parameters) -> Reply:
    return {"Table": _table(tables, parameters).description()}


def _table(tables: MemoryTables, parameters: Parameters) -> Table:
    name = parameters["TableName"]
    try:
        return tables[name]
    except Refused as refused:
        raise Refused(refused.code, f"Requested resource not found: Table: {name} not found") from None


def _list_tables(tables: MemoryTables, parameters: Parameters) -> Reply:
    after, most = parameters.get("ExclusiveStartTableName", ""), parameters.get("Limit", _MOST_NAMES)
    # UTF-8 has the order of code points, which is Python's.
    names = sorted(table.name for table in tables.all() if table.name > after)
    page = names[:most]
    return {"TableNames": page, **({"LastEvaluatedTableName": page[-1]} if len(names) > most else {})}


def _update_table(tables: MemoryTables, parameters: Parameters) -> Reply:
    table = _table(tables, parameters)
    changes = {name: parameters[name] for name in SETTINGS if name in parameters}
    updates = parameters.get("GlobalSecondaryIndexUpdates", ())
    vector_updates = parameters.get("VectorIndexUpdates", ())
    if not changes and not updates and not vector_updates:
        raise invalid(
            "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates or "
            "SSESpecification or ReplicaUpdates is required"
        )
    settings = _settled(table, changes)
    kinds = {each["AttributeName"]: each["AttributeType"] for each in parameters.get("AttributeDefinitions", ())}
    actions = [_only_action(update, ("Create", "Delete", "Update")) for update in updates]
    _check_same_kinds(table, kinds, [index["KeySchema"] for action, index in actions if action == "Create"])
    _check_index_updates(table, actions, settings["BillingMode"], kinds)
    vector_actions = [_only_action(update, ("Create", "Delete")) for update in vector_updates]
    for action, index in vector_actions:
        if action == "Create":
            check_projection(index["Projection"])
            table.add_vector_index(index, kinds)
        else:
            table.remove_vector_index(index["IndexName"])
    if settings["BillingMode"] == "PAY_PER_REQUEST" != table.settings["BillingMode"]:
        table.on_demand_ms = tables.wall_ms()
    table.settings = settings
    for action, index in actions:
        if action == "Create":
            table.add_index(index, {**kinds, **table.kinds})
        elif action == "Delete":
            table.remove_index(index["IndexName"])
        else:
            table.global_index(index["IndexName"]).described |= index
    return {"TableDescription": table.description()}


def _settled(table: Table, changes: Parameters) -> dict[str, Any]:
    """All settings of a table after a change."""
    before, settings = table.settings, {**table.settings, **changes}
    if settings["BillingMode"] != before["BillingMode"]:
        gone = "ProvisionedThroughput" if settings["BillingMode"] == "PAY_PER_REQUEST" else "OnDemandThroughput"
        if gone not in changes:
            settings.pop(gone, None)
    elif "ProvisionedThroughput" in changes and before.get("ProvisionedThroughput") == changes["ProvisionedThroughput"]:
        raise invalid(
            "The provisioned throughput for the table will not change. The requested value equals the current value."
        )
    check_settings(settings)
    had, has = (each.get("StreamSpecification", {}).get("StreamEnabled", False) for each in (before, settings))
    if "StreamSpecification" in changes and had == has:
        raise invalid(f"Table already has {'an enabled' if had else 'a disabled'} stream: TableName: {table.name}")
    return settings


def _check_same_kinds(table: Table, kinds: Mapping[str, str], created: Sequence[Any]) -> None:
    """Refuse another type for an attribute that is a key already."""
    before = [table.key_schema, *(index.described["KeySchema"] for index in table.indexes.values())]
    for name, kind in kinds.items():
        had = table.kinds.get(name, kind)
        if had != kind:
            raise wrong(
                "Attributes cannot be redefined. Please check that your attribute has the same type as previously "
                f"defined. Existing schema: {_element(name, had, before)} New schema: {_element(name, kind, created)}"
            )


def _element(name: str, kind: str, schemas: Iterable[Any]) -> str:
    roles = (each["KeyType"] for schema in schemas for each in schema if each["AttributeName"] == name)
    return f"Schema:[SchemaElement: key{{{name}:{kind}:{next(roles, 'HASH')}}}]"


def _only_action(update: Mapping[str, Any], allowed: tuple[str, ...]) -> tuple[str, Any]:
    if len(update) != 1:
        raise wrong(f"One of {', '.join(allowed)} must not be null")
    (action,) = update.items()
    return action


def _check_index_updates(table: Table, actions: list[tuple[str, Any]], billing: str, kinds: Mapping[str, str]) -> None:
    check_distinct([index["IndexName"] for _, index in actions])
    if sum(action != "Update" for action, _ in actions) > 1:
        raise Refused(
            "LimitExceededException",
            "Subscriber limit exceeded: Only 1 online index can be created or deleted simultaneously per table",
        )
    throughput = {index["IndexName"]: index for action, index in actions if action == "Update"}
    for each in table.global_indexes:
        if billing == "PROVISIONED" and "ProvisionedThroughput" not in {
            **each.described,
            **throughput.get(each.name, {}),
        }:
            raise wrong(f"ProvisionedThroughput must be specified for index: {each.name}")
    for action, index in actions:
        if action == "Create":
            check_are_defined(index["KeySchema"], kinds)
            check_global(index, billing)
            if index["IndexName"] in table.indexes:
                raise invalid(f"Attempting to create an index which already exists: {index['IndexName']}")
            if len(table.global_indexes) >= MOST_GLOBAL_INDEXES:
                raise Refused(
                    "LimitExceededException",
                    "Subscriber limit exceeded: Number of global secondary indexes exceeds per-table limit of "
                    f"{MOST_GLOBAL_INDEXES}",
                )
            check_projected([each.described for each in table.indexes.values()], [index])
        else:
            table.global_index(index["IndexName"])
            if billing == "PAY_PER_REQUEST" and "ProvisionedThroughput" in index:
                raise wrong(
                    f"ProvisionedThroughput should not be specified for index: {index['IndexName']} when BillingMode "
                    "is PAY_PER_REQUEST"
                )


def _delete_table(tables: MemoryTables, parameters: Parameters) -> Reply:
    table = _table(tables, parameters)
    if table.settings.get("DeletionProtectionEnabled"):
        raise invalid(
            f"Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection "
            f"first: Table: {table.name}"
        )
    tables.remove(table)
    left = {name: value for name, value in table.description().items() if name not in _NOT_TOLD_OF_DELETED}
    return {"TableDescription": {**left, "TableStatus": "DELETING"}}


def _describe_time_to_live(tables: MemoryTables, parameters: Parameters) -> Reply:
    attribute = _table(tables, parameters).ttl_attribute
    if attribute is None:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}


def _update_time_to_live(tables: MemoryTables, parameters: Parameters) -> Reply:
    table, wanted = _table(tables, parameters), parameters["TimeToLiveSpecification"]
    enabled, before = wanted["Enabled"], table.ttl_attribute
    if enabled == (before is not None):
        raise invalid(f"TimeToLive is already {'enabled' if enabled else 'disabled'}")
    if not enabled and wanted["AttributeName"] != before:
        raise invalid(f"TimeToLive is active on a different AttributeName: current AttributeName is {before}")
    table.ttl_attribute = wanted["AttributeName"] if enabled else None
    return {"TimeToLiveSpecification": dict(wanted)}


def _tagged(tables: MemoryTables, parameters: Parameters) -> Table:
    arn = parameters["ResourceArn"]
    if not arn.startswith("arn:"):
        raise wrong(f"ARNs must start with 'arn:': {arn}")
    if "/index/" in arn:
        raise wrong(f"Invalid resource arn provided, only table or stream is accepted. Provided resource arn: {arn}")
    try:
        return tables[arn]
    except Refused as refused:
        raise Refused(refused.code, f"Requested resource not found: ResourcArn: {arn} not found") from None


def _tag_resource(tables: MemoryTables, parameters: Parameters) -> Reply:
    table, tags = _tagged(tables, parameters), parameters["Tags"]
    if not tags:
        raise invalid("Atleast one Tag needs to be provided as Input.")
    check_tags(tags, table.tags)
    table.tags |= {tag["Key"]: tag["Value"] for tag in tags}
    return {}


def _untag_resource(tables: MemoryTables, parameters: Parameters) -> Reply:
    table, keys = _tagged(tables, parameters), parameters["TagKeys"]
    if not keys:
        raise invalid("Atleast one Tag Key needs to be provided as Input.")
    table.tags = {key: value for key, value in table.tags.items() if key not in keys}
    return {}


def _list_tags_of_resource(tables: MemoryTables, parameters: Parameters) -> Reply:
    """All tags at once: a table has too few for pages (https://github.com/aws/aws-sdk/issues/583)."""
    table = _tagged(tables, parameters)
    if "NextToken" in parameters:
        raise invalid(f"Invalid NextToken: {parameters['NextToken']}")
    return {"Tags": [{"Key": key, "Value": value} for key, value in sorted(table.tags.items())]}


def _recovered(tables: MemoryTables, parameters: Parameters) -> Table:
    """The table whose recovery is asked for."""
    try:
        return tables[parameters["TableName"]]
    except Refused:
        raise Refused("TableNotFoundException", f"Table not found: {parameters['TableName']}") from None


def _describe_continuous_backups(tables: MemoryTables, parameters: Parameters) -> Reply:
    days = _recovered(tables, parameters).recovery_days
    recovery: Reply = {"PointInTimeRecoveryStatus": "DISABLED"}
    if days is not None:
        recovery = {"PointInTimeRecoveryStatus": "ENABLED", "RecoveryPeriodInDays": days}
    described = {"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": recovery}
    return {"ContinuousBackupsDescription": described}


def _update_continuous_backups(tables: MemoryTables, parameters: Parameters) -> Reply:
    wanted = parameters["PointInTimeRecoverySpecification"]
    days = wanted.get("RecoveryPeriodInDays", _DAYS) if wanted["PointInTimeRecoveryEnabled"] else None
    _recovered(tables, parameters).recovery_days = days
    return _describe_continuous_backups(tables, parameters)


OPERATIONS: Mapping[str, Callable[[MemoryTables, Parameters], Reply]] = {
    "CreateTable": _create_table,
    "DeleteTable": _delete_table,
    "DescribeContinuousBackups": _describe_continuous_backups,
    "DescribeTable": _describe_table,
    "DescribeTimeToLive": _describe_time_to_live,
    "ListTables": _list_tables,
    "ListTagsOfResource": _list_tags_of_resource,
    "TagResource": _tag_resource,
    "UntagResource": _untag_resource,
    "UpdateContinuousBackups": _update_continuous_backups,
    "UpdateTable": _update_table,
    "UpdateTimeToLive": _update_time_to_live,
}
