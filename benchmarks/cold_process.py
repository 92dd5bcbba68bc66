"""A process that cold_start.py measures: it prints its own processor seconds, as JSON.

python cold_process.py import MODULE: of boto3's import with its first client, and of the module's import after it.
python cold_process.py handle NUMBER: of a function's initialisation, of its first event, and the median of so many
hand-overs.
"""

import importlib
import json
import sys
import time
import uuid
from statistics import median
from typing import Any

ARN = "arn:aws:states:us-east-1:123456789012"


def take(entity: str) -> Any:
    """Where an execution stands after it has asked for a lock."""
    take_ticket = importlib.import_module("take_ticket")
    event = {
        "request": {"entity": entity, "task": {"functionArn": "arn:aws:lambda:us-east-1:123456789012:function:work"}},
        "execution": f"{ARN}:execution:serialize:{uuid.uuid4()}",
        "targets": None,
        "defaultRecordWaitSeconds": "Infinity",
        "defaultPermits": 1,
        "leaseSeconds": 60,
        "pollSeconds": 5,
        "handOver": "callback",
        "continueMachine": f"{ARN}:stateMachine:go-on",
        "pollsAnExecution": 450,
        "beatsAnExecution": 2000,
    }
    return take_ticket.handler(event, None)["lock"]["turn"]


def hand_over(entity: str) -> float:
    """Hand a lock over from one execution to another: what the release and the poll take."""
    check_position, release, wait = map(importlib.import_module, ("check_position", "release", "wait_for_wake_up"))
    holder, waiter = take(entity), take(entity)
    step = {"turn": waiter, "leaseSeconds": 60, "execution": waiter["session"]["execution"]}
    wait.handler({**step, "taskToken": "token", "entered": "2026-11-21T12:00:00.000Z", "retry": 0}, None)
    began = time.process_time()
    release.handler({"turn": holder}, None)
    granted = check_position.handler(step, None)
    spent = time.process_time() - began
    assert granted["status"] == "granted", granted
    release.handler({"turn": granted}, None)
    return spent


def imported(module: str) -> list[float]:
    """Import a module after boto3."""
    began = time.process_time()
    boto3 = importlib.import_module("boto3")
    boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    then = time.process_time()
    importlib.import_module(module)
    return [then - began, time.process_time() - then]


def handled(hand_overs: int) -> list[float]:
    """Initialise, and handle events."""
    importlib.import_module("take_ticket")
    initialised = time.process_time()
    take("first")
    called = time.process_time()
    return [initialised, called - initialised, median(hand_over(f"order-{number}") for number in range(hand_overs))]


if __name__ == "__main__":
    print(json.dumps(imported(sys.argv[2]) if sys.argv[1] == "import" else handled(int(sys.argv[2]))))
