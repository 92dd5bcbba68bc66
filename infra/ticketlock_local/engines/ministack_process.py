"""The emulator's process: ministack, for as long as its owner runs.

Runs as a script on the interpreter of the emulator's own environment, so it imports nothing of this project.
Its one argument is the work folder, which also tells its command line from any other.

Standard input is a pipe whose other end only the owner holds. The kernel closes that end however the owner
ends, SIGKILL included; then this process ends itself and its functions' processes, and deletes its work folder. To
let it run on, an owner writes DETACH before it closes the pipe.
"""

import importlib
import os
import runpy
import shutil
import signal
import sys
import threading
from typing import Any

DETACH = b"detach"
_GRACE_S = 2.0


def main(work_folder: str) -> None:
    """Run ministack until a signal arrives or the owner ends."""
    orphaned = threading.Event()
    threading.Thread(target=_watch_owner, args=(orphaned, work_folder), daemon=True).start()
    sys.argv = ["ministack"]
    machines: Any = importlib.import_module("ministack.services.stepfunctions")
    _count_redrives(machines)
    _name_states_of_branches(machines)
    _keep_alarms_on_expressions(importlib.import_module("ministack.services.cloudformation.provisioners"))
    try:
        runpy.run_module("ministack", run_name="__main__")
    finally:
        if orphaned.is_set():
            _vanish(work_folder)


def _count_redrives(machines: Any) -> None:
    """Give every execution `$$.Execution.RedriveCount`, as AWS does. ministack redrives none, and leaves it out."""
    resolve, evaluate = machines._resolve_ctx_path, machines._evaluate_jsonata

    def with_count(context: dict[str, Any] | None) -> dict[str, Any] | None:
        if context:
            context["Execution"].setdefault("RedriveCount", 0)
        return context

    def resolve_with_count(path: str, context: dict[str, Any]) -> Any:
        return resolve(path, with_count(context))

    def evaluate_with_count(expression: str, raw_input: Any, ctx: dict[str, Any] | None = None, *more: Any) -> Any:
        return evaluate(expression, raw_input, with_count(ctx), *more)

    machines._resolve_ctx_path, machines._evaluate_jsonata = resolve_with_count, evaluate_with_count


def _name_states_of_branches(machines: Any) -> None:
    """Give each branch a context of its own, as AWS does.

    In ministack they share one: a state that is retried in one branch finds the name of another's as `$$.State.Name`.
    """
    run = machines._run_sub_machine

    def run_with_own_context(states: Any, start_at: str, input_data: Any, execution: Any, ctx: dict[str, Any]) -> Any:
        return run(states, start_at, input_data, execution, dict(ctx))

    machines._run_sub_machine = run_with_own_context


def _keep_alarms_on_expressions(provisioners: Any) -> None:
    """Make alarms on expressions of metrics, which AWS has; ministack refuses the whole deployment.

    Here they watch a metric that nothing emits, and change their state by SetAlarmState alone.
    """
    record = provisioners._cw_metric_alarm_record

    def record_of(name: str, properties: dict[str, Any]) -> Any:
        if "Metrics" in properties:
            others = {key: value for key, value in properties.items() if key != "Metrics"}
            properties = {**others, "Namespace": "none", "MetricName": "none"}
        return record(name, properties)

    provisioners._cw_metric_alarm_record = record_of


def _watch_owner(orphaned: threading.Event, work_folder: str) -> None:
    # os.read, not sys.stdin: a thread inside sys.stdin would hold its lock when the interpreter ends.
    message = b""
    while chunk := os.read(0, 64):
        message += chunk
    if message == DETACH:
        return
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_S)  # usually the process has ended before this sleep does
    _vanish(work_folder)


def _vanish(work_folder: str) -> None:
    shutil.rmtree(work_folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
