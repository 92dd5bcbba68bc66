"""Corrects moto's Step Functions interpreter where it differs from the service, while a harness is open.

Each repair says what the service does, by its documentation. When moto does it too, delete the repair.

- callback tasks and their tokens: https://docs.aws.amazon.com/step-functions/latest/dg/connect-to-resource.html
- errors, retries, what a Parallel does when a branch fails:
  https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html and
  https://docs.aws.amazon.com/step-functions/latest/dg/state-parallel.html
- answers to tasks that are over: https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskSuccess.html
- stopping: https://docs.aws.amazon.com/step-functions/latest/apireference/API_StopExecution.html
- nested executions: https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from moto.core.responses import EmptyResult
from moto.stepfunctions.parser.api import ExecutionStatus, TaskTimedOut
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.retry.retry_outcome import RetryOutcome
from moto.stepfunctions.parser.asl.component.program.program import Program
from moto.stepfunctions.parser.asl.component.state.exec.execute_state import ExecutionState
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel import branches_decl
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.resource import ResourceCondition
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_callback import (
    StateTaskServiceCallback,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
    StateTaskServiceSfn,
)
from moto.stepfunctions.parser.asl.eval.callback.callback import (
    CallbackConsumerTimeout,
    CallbackNotifyConsumerError,
    CallbackPoolManager,
)
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.program_state import ProgramEnded, ProgramError
from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication
from moto.stepfunctions.parser.models import StepFunctionsParserBackend
from moto.stepfunctions.responses import StepFunctionResponse

Original = Callable[..., Any]


@contextmanager
def repaired() -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, repair in _REPAIRS:
            original = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, _bound(repair, original)))
        yield


def _bound(repair: Callable[..., Any], original: Original) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return repair(original, *args, **kwargs)

    return method


def _new_token_on_retry(original: Original, task: Any, env: Environment) -> None:
    """Every attempt of a callback task has a new token, which ends with the attempt.

    In moto all attempts share one token, and after the first time-out the others time out at once.
    """
    if task.resource.condition != ResourceCondition.WaitForTaskToken:
        original(task, env)
        return
    context = env.states.context_object
    data: Any = context.context_object_data
    if data["State"]["RetryCount"] > 0:
        env.callback_pool_manager.add(context.update_task_token())
        if not env.is_running():  # stopped meanwhile
            _end_token(env)
    try:
        original(task, env)
    finally:
        _end_token(env)


def _end_token(env: Environment) -> None:
    task: Any = env.states.context_object.context_object_data.get("Task")
    endpoint = env.callback_pool_manager.get(task["Token"]) if task else None
    if endpoint is not None:
        endpoint.report(CallbackConsumerTimeout())
        endpoint.interrupt_all()


def _ended() -> TaskTimedOut:
    return TaskTimedOut("Task Timed Out: 'Provided task does not exist anymore'", "TaskTimedOut")


def _first_answer_wins(original: Original, pool: Any, callback_id: str, outcome: Any) -> bool:
    """A token that is answered, timed out or cancelled is refused as TaskTimedOut."""
    endpoint = pool.get(callback_id)
    if endpoint is not None and endpoint.get_outcome() is not None:
        raise _ended()
    try:
        return bool(original(pool, callback_id, outcome))
    except CallbackNotifyConsumerError:
        raise _ended() from None


def _stop_reaches_callbacks(original: Original, env: Environment, *args: Any, **kwargs: Any) -> None:
    """A stopped execution or cancelled branch does not wait for its callback task's time-out."""
    original(env, *args, **kwargs)
    _end_token(env)


def _stopped_before_it_began(original: Original, program: Any, env: Environment) -> None:
    """A Parallel that is stopped before its branches began ends; in moto the branches' threads fail."""
    try:
        original(program, env)
    except RuntimeError:
        if env.is_running():
            raise


def _states_errors_leave_a_branch(original: Original, error_name: str | None) -> Any:
    """A branch may fail with an error of the service's own, such as States.Timeout, and so does Parallel."""
    if error_name is not None and error_name.startswith("States."):
        return StatesErrorName.from_name(error_name)
    return original(error_name)


def _no_retry_when_stopped(original: Original, state: Any, env: Environment, failure_event: Any) -> Any:
    """A stopped execution or cancelled branch ends without the Retry interval."""
    return original(state, env, failure_event) if env.is_running() else RetryOutcome.CanRetry


def _stopped_stays_stopped(original: Original, env: Environment, error: Any) -> None:
    """An error after the end does not turn ABORTED into FAILED."""
    if env.is_running():
        original(env, error)


def _listed_once_started(original: Original, backend: Any, *args: Any, **kwargs: Any) -> Any:
    """An execution that is listed has a status; in moto one that is just starting has none, and the list fails."""
    executions, next_token = original(backend, *args, **kwargs)
    return [execution for execution in executions if execution.exec_status is not None], next_token


def _only_started(_: Original, backend: Any, execution_status: Any = None) -> list[Any]:  # noqa: ARG001
    """An answer to a task searches all executions, except one that is just being created."""
    executions = (execution for machine in backend.state_machines for execution in list(machine.executions))
    return [execution for execution in executions if execution.exec_worker and execution.exec_worker.env]


def _failure_has_a_cause(_: Original, response: Any) -> Any:
    """SendTaskFailure carries its cause; moto's request handler drops it."""
    token, error, cause = (response._get_param(name) for name in ("taskToken", "error", "cause"))
    response.stepfunction_backend.send_task_failure(token, error=error, cause=cause)
    return EmptyResult()


def _status_comes_last(original: Original, communication: Any) -> None:
    """When the end of an execution can be seen, its output, which is JSON, or its error can be seen too."""
    execution = communication.execution
    env = execution.exec_worker.env
    state = env.program_state()
    if isinstance(state, ProgramEnded):
        execution.output = json.dumps(env.states.get_input())
        execution.stop_date = datetime.datetime.now(tz=datetime.UTC)
        execution.exec_status = ExecutionStatus.SUCCEEDED
        return
    if isinstance(state, ProgramError) and state.error:
        execution.error, execution.cause = state.error.get("error"), state.error.get("cause")
    original(communication)


def _nested_parameters(original: Original, task: Any, parameters: dict[str, Any], *args: Any, **kwargs: Any) -> None:
    """`startExecution` takes names in upper camel case; the client that moto passes them to does not."""
    original(task, parameters, *args, **kwargs)
    for key in list(parameters):
        parameters[key[0].lower() + key[1:]] = parameters.pop(key)


def _nested_response(_: Original, task: Any, response: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
    """What `startExecution` returns has names in upper camel case."""
    for key in list(response):
        response[key[0].upper() + key[1:]] = response.pop(key)


_REPAIRS: list[tuple[Any, str, Callable[..., Any]]] = [
    (StateTaskServiceCallback, "_evaluate_with_timeout", _new_token_on_retry),
    (CallbackPoolManager, "notify", _first_answer_wins),
    (Environment, "set_stop", _stop_reaches_callbacks),
    (Environment, "set_error", _stopped_stays_stopped),
    (ExecutionState, "_handle_retry", _no_retry_when_stopped),
    (StepFunctionsParserBackend, "_get_executions", _only_started),
    (StepFunctionsParserBackend, "list_executions", _listed_once_started),
    (StepFunctionResponse, "send_task_failure", _failure_has_a_cause),
    (Program, "eval", _stopped_before_it_began),
    (branches_decl, "CustomErrorName", _states_errors_leave_a_branch),
    (BaseExecutionWorkerCommunication, "_reflect_execution_status", _status_comes_last),
    (StateTaskServiceSfn, "_normalise_parameters", _nested_parameters),
    (StateTaskServiceSfn, "_normalise_response", _nested_response),
]
