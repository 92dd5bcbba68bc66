"""The functions, called directly as the state machine calls them: quicker, and one request at a time."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from e2e.cloud import Cloud
from kit.events import handed_over, tasks_of

from ticketlock import LockName
from ticketlock.workflow._failures import execution_arn
from ticketlock.workflow._turn import claim_of, grant_of, session_of

Turn = Mapping[str, Any]
FUNCTION_OF_STATE = {
    "TakeTicket": "take_ticket",
    "TakeTicketAgain": "take_ticket",
    "CheckPosition": "check_position",
    "WaitForWakeUp": "wait_for_wake_up",
    "Heartbeat": "heartbeat",
    "Release": "release",
    "ReleaseAfterFailure": "release",
}


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback task."""

    cloud: Cloud
    token: str

    def is_answered(self) -> bool:
        step_functions = self.cloud.step_functions
        try:
            # Taken as long as the task waits, of which it changes nothing: no time-out for heartbeats is set.
            step_functions.send_task_heartbeat(taskToken=self.token)
        except step_functions.exceptions.TaskDoesNotExist:
            return True
        return False


class Callbacks:
    """Callback tasks: those of an activity without workers."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        name = f"callbacks-{uuid.uuid4().hex}"
        self._activity = cloud.step_functions.create_activity(name=name)["activityArn"]
        task = {"Type": "Task", "Resource": self._activity, "TimeoutSeconds": 300, "End": True}
        example = cloud.step_functions.describe_state_machine(stateMachineArn=cloud.outputs["ExampleTargetArn"])
        self._machine = cloud.step_functions.create_state_machine(
            name=name, definition=json.dumps({"StartAt": "Wait", "States": {"Wait": task}}), roleArn=example["roleArn"]
        )["stateMachineArn"]

    def new(self) -> Callback:
        """A task that waits for its answer."""
        self._cloud.step_functions.start_execution(stateMachineArn=self._machine)
        task = self._cloud.step_functions.get_activity_task(activityArn=self._activity)
        return Callback(self._cloud, task["taskToken"])


class Steps:
    """An entity of its own, and any number of owners that contend for it.

    Owners are executions that do not exist.

    Args:
        cloud: where the functions are.
        callbacks: the tasks in which they wait for a wake-up, or beat.
    """

    def __init__(self, cloud: Cloud, callbacks: Callbacks) -> None:
        self.cloud = cloud
        self._callbacks = callbacks
        self.entity = f"order-{uuid.uuid4().hex}"

    def take_ticket(self, task: Mapping[str, Any] | None = None) -> Turn:
        """Take the lock, or join the queue, as a new owner."""
        turn: Turn = self._run("TakeTicketAgain", self._request(task), self._nobody())["lock"]["turn"]
        return turn

    def take_ticket_and_answer(self) -> Callback:
        """The same in a task of its own."""
        callback = self._callbacks.new()
        self._run("TakeTicket", self._request(), self._nobody(), token=callback.token)
        return callback

    def check_position(self, turn: Turn) -> Turn:
        reply: Turn = self._run_with_turn("CheckPosition", turn)
        return reply

    def wait_for_wake_up(self, turn: Turn) -> Callback:
        """Park the waiter in a task of its own."""
        return self._run_with_callback("WaitForWakeUp", turn)

    def heartbeat(self, turn: Turn) -> Callback:
        """Renew the lease in a task of its own."""
        return self._run_with_callback("Heartbeat", turn)

    def release(self, turn: Turn) -> None:
        self._run_with_turn("Release", turn)

    def release_after_time_out(self, turn: Turn, target: str) -> None:
        """As after nested work that has exceeded its time-out."""
        state_input = {
            "lock": {"turn": turn},
            "task": {"kind": "execution", "arn": target},
            "failure": {"Error": "States.Timeout", "Cause": ""},
        }
        self._run("ReleaseAfterFailure", state_input, turn["session"]["execution"])

    def clean_up(self, turn: Turn, task: Mapping[str, Any] | None = None, *, with_input: bool = True) -> None:
        """As after an execution that was stopped just now."""
        function = {"functionArn": self.cloud.outputs["ExampleFunctionArn"]}
        detail = {
            "executionArn": turn["session"]["execution"],
            "stateMachineArn": self.cloud.outputs["StateMachineArn"],
            "status": "ABORTED",
            "stopDate": self.cloud.now_ms(),
            **({"input": json.dumps({"entity": self.entity, "task": task or function})} if with_input else {}),
        }
        self.cloud.call("clean_up", {"detail": detail})

    def release_without_waking(self, turn: Turn) -> None:
        """Release the lock by hand."""
        self.cloud.locks.release(claim_of(turn), grant_of(turn))

    def write(self, key: Mapping[str, Any], **numbers_or_texts: int | str) -> None:
        """Set attributes of an item, by hand."""
        names = {f"#{name}": name for name in numbers_or_texts}
        values = {
            f":{name}": {"N": str(value)} if isinstance(value, int) else {"S": value}
            for name, value in numbers_or_texts.items()
        }
        self.cloud.dynamodb.update_item(
            TableName=self.cloud.outputs["TableName"],
            Key=key,
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in numbers_or_texts),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )

    def write_session(self, turn: Turn, **attributes: int | str) -> None:
        self.write(session_of(turn).key(), **attributes)

    def make_cold(self, step: str) -> None:
        """Make a function's next call the first one in a new process."""
        function = self.cloud.functions[step]
        variables = {**function["Environment"]["Variables"], "STARTED_ANEW": uuid.uuid4().hex}
        self.cloud.client("lambda").update_function_configuration(
            FunctionName=function["FunctionName"], Environment={"Variables": variables}
        )

    @property
    def lock(self) -> LockName:
        return LockName(self.entity)

    def _request(self, task: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        function = {"functionArn": self.cloud.outputs["ExampleFunctionArn"], "input": {}}
        return {"entity": self.entity, "task": task or function}

    def _nobody(self) -> str:
        return execution_arn(self.cloud.outputs["StateMachineArn"], f"nobody-{uuid.uuid4().hex}")

    def _run_with_callback(self, state: str, turn: Turn) -> Callback:
        callback = self._callbacks.new()
        self._run_with_turn(state, turn, token=callback.token)
        return callback

    def _run_with_turn(self, state: str, turn: Turn, *, token: str = "") -> Any:
        return self._run(state, {"lock": {"turn": turn}}, turn["session"]["execution"], token=token)

    def _run(self, state: str, state_input: Any, execution: str, *, token: str = "") -> Any:
        """Call the function of a state with what the state machine would pass to it."""
        now = datetime.now(UTC).isoformat()
        context = {
            "Execution": {"Id": execution, "StartTime": now},
            "State": {"EnteredTime": now, "RetryCount": 0},
            "Task": {"Token": token},
        }
        event = handed_over(self._tasks[state], lambda path: _followed(path, state_input, context))
        return self.cloud.call(FUNCTION_OF_STATE[state], event)

    @cached_property
    def _tasks(self) -> Mapping[str, Any]:
        return dict(tasks_of(self.cloud.definition(self.cloud.outputs["StateMachineArn"])))


def _followed(path: str, state_input: Any, context: Mapping[str, Any]) -> Any:
    """The value that a path leads to."""
    root, *fields = path.split(".")
    found = context if root == "$$" else state_input
    for field in fields:
        found = found[field]
    return found
