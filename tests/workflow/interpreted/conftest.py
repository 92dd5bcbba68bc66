"""The serialised workflow, and users' machines with fragments in them, opened for one test."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from kit.interpreter.harness import Machine, Outcome, Work
from kit.interpreter.lambda_server import ServiceError
from kit.interpreter.stage import CHILD_ARN, LEASE_S, Stage, put
from kit.interpreter.stage import stage as opened_stage
from ticketlock_cdk.lock.settings import HandOver
from ticketlock_local.engines.emulator import Emulator
from workflow.interpreted.user_machine import USER_LEASE_S, UserStage, definition, user_stage

Open = Callable[..., Stage]
OpenUser = Callable[..., UserStage]
ENTITY = "order-42"
FIXED = {"heartbeat": False, "work_timeout_s": LEASE_S - 5}
"""Without a heartbeat."""


class StockMissing(Exception):
    """An error of the work."""


def both(name: str) -> list[str]:
    """The machine of user_machine.py in either query language."""
    return [name, f"{name}_in_jsonata"]


def unreachable(_event: object) -> None:
    """What Lambda answers for a function that it cannot reach."""
    raise ServiceError("ServiceException", 500)


@dataclass
class Way:
    """One way to run work under the lock on the entity: the serialised workflow, or a fragment in a user's machine."""

    stage: Stage
    machine: Machine
    start: Callable[[], str]
    lease_s: int

    def run(self, timeout: float = 60.0) -> Outcome:
        return self.machine.wait(self.start(), timeout)

    def is_free(self) -> bool:
        return self.stage.is_free(ENTITY)


OpenWay = Callable[..., Way]
SERIALISED: dict[str, dict[str, Any]] = {
    "polling": {},
    "woken": {"hand_over": HandOver.CALLBACK},
    "without heartbeat": FIXED,
    # The work is a nested execution.
    "child": {},
}
"""The ways of the serialised workflow; any other way is a machine of user_machine.py."""


@pytest.fixture
def open_stage(emulator: Emulator) -> Iterator[Open]:
    """Opens the workflow; closed at the end of the test."""
    with ExitStack() as stack:

        def opened(work: Any = None, **more: Any) -> Stage:
            functions = work if isinstance(work, dict) else {"work": work if work is not None else Work()}
            return stack.enter_context(opened_stage(emulator.endpoint, functions, **more))

        yield opened


@pytest.fixture
def open_user(open_stage: Open, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> OpenUser:
    """Opens the workflow with one of the machines of user_machine.py beside it, of which some fields may be changed."""
    folder = tmp_path_factory.getbasetemp()
    # Of all workers of a run.
    shared = folder.parent if folder.name.startswith("popen-") else folder

    def opened(
        name: str,
        work: Any = None,
        *,
        hand_over: HandOver = HandOver.CALLBACK,
        change: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> UserStage:
        changed = json.loads(definition(name, shared))
        for path, value in (change or {}).items():
            put(changed, path, value)
        beside = open_stage(work, hand_over=hand_over, lease_s=USER_LEASE_S, **settings)
        monkeypatch.setenv("STATE_MACHINE_ARN", beside.machine.arn)
        return user_stage(beside, name, json.dumps(changed))

    return opened


@pytest.fixture
def open_way(open_stage: Open, open_user: OpenUser) -> OpenWay:
    def opened(name: str, work: Any = None, payload: Any = None, **settings: Any) -> Way:
        if name not in SERIALISED:
            user = open_user(name, work, **((FIXED if name.startswith("fixed_") else {}) | settings))
            return Way(user.stage, user.machine, lambda: user.start(payload or {}), USER_LEASE_S)
        serialised = open_stage(work, **SERIALISED[name], **settings)
        machine = serialised.machine
        if name != "child":
            return Way(serialised, machine, lambda: serialised.start(ENTITY), LEASE_S)
        asked = {"entity": ENTITY, "task": {"stateMachineArn": CHILD_ARN, "input": payload or {}}}
        return Way(serialised, machine, lambda: machine.start(f"e-{uuid.uuid4().hex}", asked), LEASE_S)

    return opened


def held_and_waited_for(
    open_stage: Open,
    work: Work,
    after: Work | None = None,
    *,
    waiters: int = 1,
    hand_over: HandOver = HandOver.POLL,
    **settings: Any,
) -> tuple[Stage, str, list[str]]:
    """A stage, its holder, which runs the work, and waiters: parked, or asleep until they poll; in ticket order."""
    stage = open_stage({"work": work, "next": after or Work()}, hand_over=hand_over, **settings)
    holder = stage.hold(ENTITY)
    waiting = []
    for _ in range(waiters):
        waiting.append(stage.start(ENTITY, function="next"))
        if hand_over is HandOver.CALLBACK:
            stage.wait_until_parked(waiting[-1])
        else:
            stage.machine.wait_until_entered(waiting[-1], "WaitForTurn")
    return stage, holder, waiting


@pytest.fixture
def work() -> Iterator[Work]:
    """Runs until the test releases it."""
    running = Work(seconds=60)
    yield running
    running.finish.set()


@pytest.fixture
def after() -> Iterator[Work]:
    """The next execution's; it runs as long too, so that its grant can be inspected."""
    running = Work(seconds=60)
    yield running
    running.finish.set()
