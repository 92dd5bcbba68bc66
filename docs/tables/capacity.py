"""What each step of a lock costs in capacity units, counted by the published rules (tests/kit/capacity.py)."""

import os
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

from kit.capacity import Billed
from kit.capacity_units import DATA, OTHERS, MeteredWorld, Step, figure, life_of_a_lock
from kit.engines import Engine, create_table

from ticketlock.testing import MemoryDynamoDB

_NO_ACCOUNT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


def of_each_step() -> str:
    """The units of each step of a client's lock with one permit; then what a grant costs among many holders.

    Steps of executions are left out: what they cost is told with their transitions, in docs/workflows.md.
    """
    alone, many = lived(0), lived(OTHERS)
    of_clients = [step for step in alone if not step.name.startswith(("an execution", "..."))]
    steps = [("", "writes", "reads"), *((step.name, _writes(step), _figure(step.reads)) for step in of_clients)]
    width = max(len(name) for name, *_ in steps) + 2
    lines = ["```", *(f"{name:<{width}}{writes:<8}{reads}" for name, writes, reads in steps), "```"]
    (granted,) = (_writes(step) for step in many if step.name == "acquire at once")
    (polled,) = (_figure(step.reads) for step in many if step.name == "a poll")
    lines += [
        "",
        f"A write bills the whole lock item: beside {OTHERS} holders with {len(DATA)} bytes of data each, a grant",
        f"takes {granted} write units, and a poll {polled} read units.",
    ]
    return "\n".join(lines)


def lived(others: int) -> list[Step]:
    """Every operation of a lock with so many other holders."""
    memory = Engine("memory", None, "", MemoryDynamoDB(lock_table=None))
    with patch.dict(os.environ, _NO_ACCOUNT):
        engine = replace(memory, table_name=create_table(memory.client()))
        return list(life_of_a_lock(MeteredWorld(engine), others))


def _writes(step: Step) -> str:
    """The units of the applied writes, and of the refused ones."""
    applied, refused = _figure(step.writes), _figure(step.refused)
    return f"{applied}+{refused}" if step.refused else applied


def _figure(requests: Sequence[Billed]) -> str:
    return figure(each.by_rule for each in requests) or "0"
