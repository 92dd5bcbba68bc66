"""The code of the two functions, small enough to be inline in the template.

Each ends with a write that carries the fencing token: if the function was paused past its lease, and another owner has
got the lock since, this write is refused.
"""

RESERVE = """\
import os
import time

import boto3

stock = boto3.resource("dynamodb").Table(os.environ["TABLE_NAME"])


def handler(item, _context):
    began = time.time()
    time.sleep(min(item["seconds"], 10))
    reserved = stock.update_item(
        Key={"id": "product/" + item["sku"]},
        UpdateExpression="SET lockToken = :token ADD reserved :quantity",
        ConditionExpression="attribute_not_exists(lockToken) OR lockToken <= :token",
        ExpressionAttributeValues={":token": item["lock"]["fencingToken"], ":quantity": item["quantity"]},
        ReturnValues="UPDATED_NEW",
    )["Attributes"]["reserved"]
    return {
        "sku": item["sku"],
        "quantity": item["quantity"],
        "reservedInAll": int(reserved),
        "beganMs": int(began * 1000),
        "endedMs": int(time.time() * 1000),
    }
"""

CHARGE = """\
import os

import boto3

customers = boto3.resource("dynamodb").Table(os.environ["TABLE_NAME"])


class CreditExceeded(Exception):
    pass


def handler(order, _context):
    amount = sum(item["quantity"] for item in order["reserved"])
    try:
        customers.update_item(
            Key={"id": "customer/" + order["customer"]},
            UpdateExpression="SET lockToken = :token, lastOrder = :order ADD owed :amount",
            ConditionExpression=(
                "(attribute_not_exists(lockToken) OR lockToken <= :token)"
                " AND (attribute_not_exists(owed) OR owed <= :most)"
            ),
            ExpressionAttributeValues={
                ":token": order["lock"]["fencingToken"],
                ":order": order["orderId"],
                ":amount": amount,
                ":most": 1000 - amount,
            },
        )
    except customers.meta.client.exceptions.ConditionalCheckFailedException:
        raise CreditExceeded(order["customer"] + " owes too much") from None
    return {"amount": amount}
"""
