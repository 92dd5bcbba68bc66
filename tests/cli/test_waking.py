"""The command wakes waiting workflows like any other client that frees a lock."""

from kit.command import Command

from ticketlock import Claim, LockClient, Position
from ticketlock.locks._hand_over import await_wake_up
from ticketlock.locks._items import Session


def park(locks: LockClient, entity: str) -> None:
    """Join the queue like a workflow that waits to be woken."""
    session = Session(f"arn:aws:states:us-east-1:000000000000:execution:orders:{entity}", "Serialize")
    claim = Claim(locks.lock(entity), owner=session.execution, lease_ms=60_000, session=session)
    found = locks.table.take_ticket(claim, None)
    assert isinstance(found, Position)
    parked = locks.table.contend(
        claim, lambda me: await_wake_up(me, found.place, session, "the task token", 1, lambda _: True)
    )
    assert parked is not None


def test_a_parked_workflow_is_woken_when_the_command_has_ended(
    command: Command, locks: LockClient, entity: str
) -> None:
    run = command.start("-vv", "run", entity, "--", "sh", "-c", "echo inside; read go")
    assert run.line() == "inside"
    park(locks, entity)
    ended = run.end("on\n")
    assert ended.exit_code == 0
    # The token is unknown there: a wake-up that fails is no error.
    assert "OperationModel(name=SendTaskSuccess)" in ended.err


def test_a_command_wakes_no_one_if_told_so(command: Command, locks: LockClient, entity: str) -> None:
    run = command.start("-vv", "run", entity, "--no-wake", "--", "sh", "-c", "echo inside; read go")
    assert run.line() == "inside"
    park(locks, entity)
    ended = run.end("on\n")
    assert ended.exit_code == 0
    assert "SendTaskSuccess" not in ended.err
