"""Tables and their time to live."""

from collections.abc import Mapping
from typing import Any

from ticketlock.testing._faults import invalid
from ticketlock.testing._tables import Parameters, Reply, Table, Tables



def create_table(tables: Tables, parameters: Parameters) -> Reply:
    """CreateTable: the table is there at once."""
    return {"TableDescription": tables.add(Table.created(parameters)).description()}


def describe_table(tables: Tables, parameters: Parameters) -> Reply:
    """DescribeTable."""
    return {"Table": tables[parameters["TableName"]].description()}


def update_table(tables: Tables, parameters: Parameters) -> Reply:
    """UpdateTable: vector indexes are created and deleted at once."""
    table = tables[parameters["TableName"]]
    kinds = {each["AttributeName"]: each["AttributeType"] for each in parameters.get("AttributeDefinitions", ())}
    for update in parameters["VectorIndexUpdates"]:
        if "Create" in update:
            table.add_vector_index(update["Create"], kinds)
        else:
            table.remove_vector_index(update["Delete"]["IndexName"])
    return {"TableDescription": table.description()}


def delete_table(tables: Tables, parameters: Parameters) -> Reply:
    """DeleteTable: the table is gone at once."""
    return {"TableDescription": {**tables.remove(parameters["TableName"]).description(), "TableStatus": "DELETING"}}


def describe_time_to_live(tables: Tables, parameters: Parameters) -> Reply:
    """DescribeTimeToLive."""
    attribute = tables[parameters["TableName"]].ttl_attribute
    if attribute is None:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
    return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}


def update_time_to_live(tables: Tables, parameters: Parameters) -> Reply:
    """UpdateTimeToLive."""
    table, wanted = tables[parameters["TableName"]], parameters["TimeToLiveSpecification"]
    enabled = wanted["Enabled"]
    if enabled == (table.ttl_attribute is not None):
        raise invalid(f"TimeToLive is already {'enabled' if enabled else 'disabled'}")
    table.ttl_attribute = wanted["AttributeName"] if enabled else None
    return {"TimeToLiveSpecification": dict(wanted)}
