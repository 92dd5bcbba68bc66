"""Corrects moto's Step Functions interpreter where it differs from the service, while a harness is open.

Each repair says what the service does, by its documentation, or by histories that were recorded on it
(docs/tables/recorded.json). When moto does it too, delete the repair.

- callback tasks and their tokens: https://docs.aws.amazon.com/step-functions/latest/dg/connect-to-resource.html
- errors, retries, what a Parallel does when a branch fails:
  https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html and
  https://docs.aws.amazon.com/step-functions/latest/dg/state-parallel.html
- answers to tasks that are over: https://docs.aws.amazon.com/step-functions/latest/apireference/API_SendTaskSuccess.html
- stopping: https://docs.aws.amazon.com/step-functions/latest/apireference/API_StopExecution.html
- nested executions: https://docs.aws.amazon.com/step-functions/latest/dg/connect-stepfunctions.html
- JSONata: https://docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html and
  https://states-language.net/spec.html
"""

from __future__ import annotations

import copy
import datetime
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from jsonata import Jsonata
from jsonata.jexception import JException
from jsonata.utils import Utils
from moto.core.responses import EmptyResult
from moto.stepfunctions.parser.api import ExecutionStatus, HistoryEventType, TaskTimedOut
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.common.retry.retry_outcome import RetryOutcome
from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringJSONata
from moto.stepfunctions.parser.asl.component.program.program import Program
from moto.stepfunctions.parser.asl.component.state.exec.execute_state import ExecutionState
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel import branches_decl
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel.branch_worker import BranchWorker
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel.branches_decl import BranchWorkerPool
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.resource import ResourceCondition
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_callback import (
    StateTaskServiceCallback,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
    StateTaskServiceSfn,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask
from moto.stepfunctions.parser.asl.eval.callback.callback import (
    CallbackConsumerTimeout,
    CallbackNotifyConsumerError,
    CallbackPoolManager,
)
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager
from moto.stepfunctions.parser.asl.eval.program_state import ProgramEnded, ProgramError
from moto.stepfunctions.parser.asl.parse.preprocessor import Preprocessor
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
    context: Any = env.event_history_context
    context.is_stopped = True
    original(env, *args, **kwargs)
    _end_token(env)


def _nothing_after_a_stop(
    original: Original, events: Any, context: Any, event_type: Any, *args: Any, **more: Any
) -> int:
    """A stopped execution or cancelled branch writes nothing more but how the execution ends."""
    if getattr(context, "is_stopped", False) and not event_type.startswith("Execution"):
        return int(context.last_published_event_id)
    return int(original(events, context, event_type, *args, **more))


def _cut_tasks_are_aborted(original: Original, branch: Any, *args: Any, **kwargs: Any) -> None:
    """When a branch fails, the task that it has failed in is aborted, and those in which the others are."""
    env = branch.env
    state = branch._program.states.states.get(env.states.context_object.context_object_data["State"]["Name"])
    if isinstance(state, StateTask) and not isinstance(env.program_state(), ProgramEnded):
        env.event_manager.add_event(
            env.event_history_context, HistoryEventType.TaskStateAborted, update_source_event_id=False
        )
    original(branch, *args, **kwargs)


def _failure_may_have_no_name(original: Original, branches: Any) -> Any:
    """A branch may fail without an error and a cause: both are null then, as after a failed task."""
    details = original(branches)
    return {"error": None, "cause": None} if details == {} else details


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


def _evaluated(_: Original, text: StringJSONata, env: Environment) -> None:
    """An expression in JSONata is evaluated, for which moto lacks a library. Nothing, or a failure, fails the state."""
    variables = env.variable_store
    bound = {**variables._outer_scope, **variables._inner_scope, "states": env.states._states_data}
    try:
        expression = Jsonata(text.expression)
        # Otherwise null would be the same as nothing.
        expression.set_output_convert_nulls(False)
        expression.register_lambda("parse", json.loads)
        expression.register_lambda("uuid", lambda: str(uuid.uuid4()))
        found = expression.evaluate(None, copy.deepcopy(bound))
        problem = "returned nothing (undefined)" if found is None else ""
    except (JException, ValueError) as error:
        problem = f"failed: {error}"
    if problem:
        name = StatesErrorNameType.StatesQueryEvaluationError
        cause = f"The JSONata expression '{text.expression}' {problem}."
        details: Any = {"evaluationFailedEventDetails": {"error": name.to_name(), "cause": cause}}
        failed = FailureEvent(env, StatesErrorName(name), HistoryEventType.EvaluationFailed, details)
        raise FailureEventException(failed)
    env.stack.append(Utils.convert_nulls(found))


def _branches_have_the_machines_language(original: Original, preprocessor: Any, branch: Any) -> Any:
    """The language of a Parallel is not that of the states in it, which by default is the state machine's."""
    scopes = preprocessor._query_language_per_scope
    preprocessor._query_language_per_scope = scopes[:1]
    try:
        return original(preprocessor, branch)
    finally:
        preprocessor._query_language_per_scope = scopes


_REPAIRS: list[tuple[Any, str, Callable[..., Any]]] = [
    (StateTaskServiceCallback, "_evaluate_with_timeout", _new_token_on_retry),
    (CallbackPoolManager, "notify", _first_answer_wins),
    (Environment, "set_stop", _stop_reaches_callbacks),
    (Environment, "set_error", _stopped_stays_stopped),
    (EventManager, "add_event", _nothing_after_a_stop),
    (BranchWorker, "stop", _cut_tasks_are_aborted),
    (BranchWorkerPool, "get_exit_event_details", _failure_may_have_no_name),
    (ExecutionState, "_handle_retry", _no_retry_when_stopped),
    (StepFunctionsParserBackend, "_get_executions", _only_started),
    (StepFunctionsParserBackend, "list_executions", _listed_once_started),
    (StepFunctionResponse, "send_task_failure", _failure_has_a_cause),
    (Program, "eval", _stopped_before_it_began),
    (branches_decl, "CustomErrorName", _states_errors_leave_a_branch),
    (BaseExecutionWorkerCommunication, "_reflect_execution_status", _status_comes_last),
    (StateTaskServiceSfn, "_normalise_parameters", _nested_parameters),
    (StateTaskServiceSfn, "_normalise_response", _nested_response),
    (StringJSONata, "_eval_body", _evaluated),
    (Preprocessor, "visitProgram_decl", _branches_have_the_machines_language),
]
