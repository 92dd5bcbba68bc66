"""Moves money from one account to another: once, also if the state is retried, and only under the lock."""

import json
import os
from typing import Any

import boto3

from ticketlock import Fence
from ticketlock.units import Unit, Units, unit_name

units = Units(os.environ["UNITS_TABLE"])
accounts = units.table(os.environ["ACCOUNTS_TABLE"])
sqs: Any = boto3.client("sqs")


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Move the money, then send the receipt."""
    print(json.dumps(event))
    move(event)
    # If this fails, the state is retried: the retry moves no money again, and sends the receipt.
    receipt = {"transferId": event["transfer"]["id"], "amount": event["transfer"]["amount"]}
    sqs.send_message(QueueUrl=os.environ["RECEIPTS_URL"], MessageBody=json.dumps(receipt))
    return receipt


@units.transactional(
    name=lambda event: unit_name(event["execution"], event["state"]),
    under=lambda event: Fence(event["lock"], os.environ["LOCK_TABLE"]),
)
def move(unit: Unit, event: dict[str, Any]) -> None:
    """The unit: both accounts or none."""
    transfer = event["transfer"]
    amount = {":amount": transfer["amount"]}
    unit.update(
        accounts,
        {"id": transfer["giver"]},
        "SET balance = balance - :amount",
        amount,
        condition="balance >= :amount",
    )
    unit.update(
        accounts,
        {"id": transfer["taker"]},
        "SET balance = balance + :amount",
        amount,
        condition="attribute_exists(balance)",
    )
