"""The serialised workflow, and users' machines with fragments in them, opened for one test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kit.interpreter.harness import Work
from kit.interpreter.stage import Stage, stage
from ticketlock_cdk.lock.settings import HandOver
from ticketlock_local.engines.emulator import Emulator
from workflow.interpreted.user_machine import USER_LEASE_S, UserStage, definition, user_stage

Open = Callable[..., Stage]
OpenUser = Callable[..., UserStage]


@pytest.fixture
def open_stage(emulator: Emulator) -> Iterator[Open]:
    """Opens the workflow; closed at the end of the test."""
    with ExitStack() as stack:

        def opened(work: Any = None, **more: Any) -> Stage:
            functions = work if isinstance(work, dict) else {"work": work if work is not None else Work()}
            return stack.enter_context(stage(emulator.endpoint, functions, **more))

        yield opened


@pytest.fixture
def open_user(open_stage: Open, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> OpenUser:
    """Opens the workflow with one of the machines of user_machine.py beside it."""
    folder = tmp_path_factory.getbasetemp()
    # Of all workers of a run.
    shared = folder.parent if folder.name.startswith("popen-") else folder

    def opened(name: str, work: Any = None, *, hand_over: HandOver = HandOver.CALLBACK, **settings: Any) -> UserStage:
        text = definition(name, shared)
        opened = open_stage(work, hand_over=hand_over, lease_s=USER_LEASE_S, **settings)
        monkeypatch.setenv("STATE_MACHINE_ARN", opened.machine.arn)
        monkeypatch.setenv("LEASE_SECONDS", str(USER_LEASE_S))
        return user_stage(opened, name, text)

    return opened
