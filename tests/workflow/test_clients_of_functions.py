"""The clients of a function: made before its first event, in Lambda and only there; and with another time-out."""

import subprocess
import sys
import textwrap
from typing import Any

import pytest
from botocore.config import Config
from kit.events import execution_arn, turn_of
from kit.world import Process, World

from ticketlock import InvalidLockRequest, LockTable
from ticketlock.testing import Fault, ManualClock, MemoryDynamoDB
from ticketlock.workflow import Workflow


def test_an_initialisation_costs_one_request_and_saves_the_first_step_the_request_for_the_time(world: World) -> None:
    cold = world.process(cold=True)
    workflow = Workflow(cold.table)
    assert cold.operations(workflow.prepare) == ["GetItem"]
    assert cold.operations(lambda: cold.granted(cold.claim(world.lock()))) == ["UpdateItem"]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_an_unreachable_table_neither_fails_nor_delays_an_initialisation(world: World, alice: Process) -> None:
    memory = world.engine.memory
    assert memory is not None
    cold = world.process(cold=True)
    began_ms = world.now_ms
    with memory.outage(Fault.REQUEST_LOST):
        Workflow(cold.table).prepare()
    assert world.now_ms == began_ms
    assert alice.table.now() is not None


def test_a_handler_that_is_imported_outside_of_lambda_makes_no_client() -> None:
    assert imported("") == "False"


def test_a_handler_that_is_imported_in_lambda_makes_its_clients_and_survives_an_unreachable_table() -> None:
    in_lambda = 'os.environ |= {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}'
    assert imported(in_lambda) == "True"


def test_with_snap_start_a_handler_registers_what_disconnects_before_a_snapshot_and_what_connects_after_it() -> None:
    in_lambda = """
    os.environ |= {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    os.environ["AWS_LAMBDA_INITIALIZATION_TYPE"] = "snap-start"
    import types
    hooks = types.ModuleType("snapshot_restore_py")
    hooks.register_before_snapshot = lambda hook: called.append(hook.__name__)
    hooks.register_after_restore = lambda hook: called.append(hook.__name__)
    sys.modules["snapshot_restore_py"] = hooks
    """
    assert imported(in_lambda, "called") == "['disconnect', '_after_restoration']"


def imported(before: str, told: str = "_observed.workflow.cache_info().currsize == 1") -> str:
    """The output of a process after it has imported a handler."""
    program = "\n".join(
        [
            "import os, sys",
            "called = []",
            'os.environ |= {"TABLE_NAME": "locks", "AWS_DEFAULT_REGION": "us-east-1"}',
            'os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}',
            textwrap.dedent(before),
            'sys.path.insert(0, "functions")',
            "import take_ticket, _observed",
            f"print({told})",
        ]
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def taken(workflow: Workflow, entity: str) -> dict[str, Any]:
    """The turn of a fragment with a lease of 10 s."""
    asked = {"entity": entity}
    return turn_of(workflow, execution_arn(), asked, place="charge", leaseSeconds=10, workMachine="")


def workflow_over(memory: MemoryDynamoDB, clock: ManualClock) -> Workflow:
    never_called: Any = object()
    return Workflow(LockTable("locks", client=memory.client, step_functions=never_called, clocks=clock))


def test_a_lock_is_freed_though_one_hung_request_could_outlast_its_lease(
    memory: MemoryDynamoDB, clock: ManualClock
) -> None:
    turn = taken(workflow_over(memory, clock), "order-42")
    memory.meta.config = memory.meta.config.merge(Config(read_timeout=5))
    patient = workflow_over(memory, clock)
    with pytest.raises(InvalidLockRequest, match="read time-outs"):
        taken(patient, "order-43")
    patient.release({"turn": turn})
    assert not [item for item in memory.items() if any(name.startswith("holder:") for name in item)]
