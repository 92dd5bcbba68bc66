"""What CreateTable and UpdateTable refuse of the definition of a table.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateTable.html
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from ticketlock.testing._indexes import Described
from ticketlock.testing._refusals import Refused, invalid

_WRONG = "One or more parameter values were invalid"
MOST_GLOBAL_INDEXES = 20
_TOO_MANY_INDEXES = {
    "LocalSecondaryIndexes": (5, "Number of LocalSecondaryIndexes exceeds per-table limit of 5"),
    "GlobalSecondaryIndexes": (
        MOST_GLOBAL_INDEXES,
        f"GlobalSecondaryIndex count exceeds the per-table limit of {MOST_GLOBAL_INDEXES}",
    ),
}
_MOST_PROJECTED = 100
_MOST_OF_A_ROLE = 4
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.DesignPattern.MultiAttributeKeys.html"""
_MOST_CAPACITY = 10**12
_MOST_TAGS = 50
_TAG = re.compile(r"[\w\s+\-=.:/]*")


def wrong(why: str) -> Refused:
    """The definition is invalid."""
    return invalid(f"{_WRONG}: {why}")


def check_definition(parameters: Described) -> None:
    """Refuse the definition of a table that cannot be created.

    Args:
        parameters: those of CreateTable.
    """
    check_settings(parameters)
    defined = [each["AttributeName"] for each in parameters.get("AttributeDefinitions", ())]
    _check_once(defined, "Duplicate AttributeName in AttributeDefinitions")
    table_keys = parameters["KeySchema"]
    check_are_defined(table_keys, defined)
    check_key_schema(table_keys, most_of_a_role=1)
    keys = list(table_keys)
    names: list[str] = []
    for kind, (most, too_many) in _TOO_MANY_INDEXES.items():
        indexes = parameters.get(kind)
        if indexes is None:
            continue
        if not indexes:
            raise wrong(f"List of {kind} is empty")
        if kind.startswith("Local") and len(table_keys) != 2:
            raise wrong(
                "Table KeySchema does not have a range key, which is required when specifying a LocalSecondaryIndex"
            )
        if len(indexes) > most:
            raise wrong(too_many)
        for index in indexes:
            check_are_defined(index["KeySchema"], defined)
            if kind.startswith("Local"):
                _check_local(index, table_keys)
            else:
                check_global(index, parameters.get("BillingMode", "PROVISIONED"))
            names.append(index["IndexName"])
            keys += index["KeySchema"]
    for vector in parameters.get("VectorIndexes", ()):
        check_projection(vector["Projection"])
        names.append(vector["IndexName"])
        keys += [each for each in vector.get("SearchSchema", ()) if each["AttributeName"] in defined]
    check_distinct(names)
    check_projected(parameters.get("LocalSecondaryIndexes", ()), parameters.get("GlobalSecondaryIndexes", ()))
    used = {each["AttributeName"] for each in keys}
    if used != set(defined):
        raise wrong(
            "Some AttributeDefinitions are not used. "
            f"AttributeDefinitions: [{', '.join(defined)}], keys used: [{', '.join(sorted(used))}]"
        )
    check_tags(parameters.get("Tags", ()))


def check_are_defined(schema: Sequence[Described], defined: Iterable[str]) -> None:
    """Refuse a key whose attributes are not in the AttributeDefinitions."""
    keys = [each["AttributeName"] for each in schema]
    if not set(keys) <= set(defined):
        raise wrong(
            "Some index key attributes are not defined in AttributeDefinitions. "
            f"Keys: [{', '.join(keys)}], AttributeDefinitions: [{', '.join(defined)}]"
        )


def check_key_schema(schema: Sequence[Described], *, most_of_a_role: int) -> None:
    """Refuse a key with wrong roles: the attributes of the partition key come first."""
    roles = [each["KeyType"] for each in schema]
    names = [each["AttributeName"] for each in schema]
    if len(roles) > 2 * most_of_a_role or max(map(roles.count, roles)) > most_of_a_role > 1:
        raise invalid(
            f"1 validation error detected: Value '{names}' at 'keySchema' failed to satisfy constraint: "
            f"Member must have length less than or equal to {2 * most_of_a_role}"
        )
    if len(set(names)) < len(names):
        raise invalid("Both the Hash Key and the Range Key element in the KeySchema have the same name")
    if roles[0] != "HASH":
        raise invalid("Invalid KeySchema: The first KeySchemaElement is not a HASH key type")
    if roles != sorted(roles) or (most_of_a_role == 1 and roles[1:] not in ([], ["RANGE"])):
        raise invalid("Invalid KeySchema: The second KeySchemaElement is not a RANGE key type")


def _check_local(index: Described, table_keys: Sequence[Described]) -> None:
    schema, name = index["KeySchema"], index["IndexName"]
    check_key_schema(schema, most_of_a_role=1)
    if len(schema) != 2:
        raise wrong(f"Index KeySchema does not have a range key for index: {name}")
    hashed, of_table = schema[0]["AttributeName"], table_keys[0]["AttributeName"]
    if hashed != of_table:
        raise wrong(
            f"Index KeySchema does not have the same leading hash key as table KeySchema for index: {name}. "
            f"index hash key: {hashed}, table hash key: {of_table}"
        )
    check_projection(index["Projection"])


def check_global(index: Described, billing: str) -> None:
    """Refuse the definition of a global index, whose attributes are defined."""
    check_key_schema(index["KeySchema"], most_of_a_role=_MOST_OF_A_ROLE)
    check_projection(index["Projection"])
    _check_throughput(index, billing, f" for index: {index['IndexName']}")


def check_projection(projection: Described) -> None:
    """Refuse a projection without a type, or with the attributes of another type."""
    kind, others = projection.get("ProjectionType"), projection.get("NonKeyAttributes")
    if kind is None:
        raise wrong("Unknown ProjectionType: null")
    if kind == "INCLUDE" and others is None:
        raise wrong("ProjectionType is INCLUDE, but NonKeyAttributes is not specified")
    if kind != "INCLUDE" and others is not None:
        raise wrong(f"ProjectionType is {kind}, but NonKeyAttributes is specified")
    _check_once(others or (), "Duplicate element in NonKeyAttributes")


def check_projected(*indexes: Iterable[Described]) -> None:
    """Refuse more projected attributes than all indexes of a table may have together."""
    count = sum(len(each["Projection"].get("NonKeyAttributes", ())) for kind in indexes for each in kind)
    if count > _MOST_PROJECTED:
        raise wrong(f"Number of NonKeyAttributes of all indexes exceeds limit of {_MOST_PROJECTED}: {count}")


def check_distinct(names: Sequence[str]) -> None:
    """Refuse two indexes with one name."""
    _check_once(names, "Duplicate index name")


def _check_once(names: Sequence[str], why: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise wrong(f"{why}: {name}")


def check_settings(settings: Described) -> None:
    """Refuse settings that contradict one another.

    Args:
        settings: all those that the table will have.
    """
    billing = settings.get("BillingMode", "PROVISIONED")
    _check_throughput(settings, billing, "")
    if billing == "PROVISIONED" and "OnDemandThroughput" in settings:
        raise wrong("OnDemandThroughput can only be specified when BillingMode is PAY_PER_REQUEST")
    stream = settings.get("StreamSpecification", {"StreamEnabled": False})
    if stream["StreamEnabled"] != ("StreamViewType" in stream):
        raise wrong("StreamViewType is specified exactly if StreamEnabled is true")
    encryption = settings.get("SSESpecification", {})
    if encryption.get("SSEType") == "AES256":
        raise wrong("SSEType AES256 is not supported")
    if "KMSMasterKeyId" in encryption and not encryption.get("Enabled"):
        raise wrong("KMSMasterKeyId can only be specified when SSESpecification is enabled")


def _check_throughput(settings: Described, billing: str, of_what: str) -> None:
    asked = settings.get("ProvisionedThroughput")
    if billing == "PAY_PER_REQUEST" and asked is not None:
        if of_what:
            raise wrong(f"ProvisionedThroughput should not be specified{of_what} when BillingMode is PAY_PER_REQUEST")
        raise wrong(
            "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST"
        )
    if billing == "PROVISIONED" and asked is None:
        raise wrong(
            f"ReadCapacityUnits and WriteCapacityUnits must both be specified{of_what} when BillingMode is PROVISIONED"
        )
    for name, units in (asked or {}).items():
        if units > _MOST_CAPACITY:
            raise invalid(f"Given value {units} for {name} is out of bounds")
    for name, units in settings.get("OnDemandThroughput", {}).items():
        if units < 1 and units != -1:
            raise wrong(f"{name} is at least 1, or -1 for no limit, and is {units}")


def check_tags(tags: Sequence[Described], before: Mapping[str, str] | None = None) -> None:
    """Refuse tags that a table cannot have together with those before.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Tagging.html
    """
    keys = [tag["Key"] for tag in tags]
    for tag in tags:
        if keys.count(tag["Key"]) > 1:
            raise invalid(f"Duplicate Tag Keys provided as input: Duplicate Tag Key found {tag['Key']}")
        if tag["Key"].startswith("aws:"):
            raise invalid(f"Tag Key cannot be prefixed with aws:, Key: {tag['Key']}")
        for part, text in tag.items():
            if not _TAG.fullmatch(text):
                raise invalid(f"The Tag {part} provided is invalid, {part}: {text}")
    if len({*keys, *(before or ())}) > _MOST_TAGS:
        raise invalid("Number of Tags exceed the current limit for the provided ResourceArn")
