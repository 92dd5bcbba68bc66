"""The permissions of the roles: enough for everything, and no more than that.

Everything in this folder runs with the roles of the functions enforced. Here each action is removed in turn, and the
request that needs it must be refused. The emulator does not enforce the roles of state machines, so IAM's own
simulation decides about those.

What the emulator does not show: it ignores the condition on leading keys, by which a state machine may write sessions
and no locks; and it wants the SendTask actions on every resource, so that theirs are widened here, not narrowed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from e2e.cloud import Cloud, FunctionFailed
from e2e.roles import Permission, Role
from e2e.steps import Callback, Callbacks, Steps, Turn
from kit.events import tasks_of
from ticketlock_local.demo import run as demo
from ticketlock_local.demo.checks import judge

from ticketlock.locks._items import lock_key, row_key
from ticketlock.workflow._failures import execution_arn, work_name
from ticketlock.workflow._turn import grant_of, place_of

pytestmark = pytest.mark.verify("a deployment of its own; tests/infra asks which permissions there are")

FAR_MS = 9_999_999_999_999
STEPS = ("take_ticket", "wait_for_wake_up", "check_position", "heartbeat", "release", "clean_up")


def test_the_demo_keeps_its_promises_with_these_roles(cloud: Cloud) -> None:
    runs = demo._watch(cloud.step_functions, cloud.outputs, lambda _runs, _now_ms: None)
    verdict = judge(runs, demo._locks(cloud.endpoint, cloud.outputs["TableName"]))
    assert len(runs) == sum(demo._RUNS.values())
    assert verdict.passed, verdict.failures


# One action less.

Drive = Callable[[Steps], bool]


@dataclass(frozen=True, slots=True)
class Need:
    """Why a function needs an action.

    Attributes:
        drive: makes it send the request; returns whether that had its effect.
        silent: whether the function continues when it is refused, so that only the effect shows it.
        part: a part of the resource's ARN, if the action is allowed on several.
    """

    step: str
    action: str
    drive: Drive
    silent: bool = False
    part: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.step, self.action, self.part)))


def takes_at_once(steps: Steps) -> bool:
    return bool(steps.take_ticket()["status"] == "granted")


def joins(steps: Steps) -> bool:
    steps.take_ticket()
    return bool(steps.take_ticket()["status"] == "parked")


def takes_past_the_count(steps: Steps) -> bool:
    steps.release_without_waking(steps.take_ticket())
    steps.write(lock_key(steps.lock), waiting=1)
    return takes_at_once(steps)


def first_call(step: str, drive: Drive) -> Drive:
    """A new process reads the table's time."""

    def drives(steps: Steps) -> bool:
        steps.make_cold(step)
        return drive(steps)

    return drives


def takes_its_turn(steps: Steps) -> bool:
    holder = steps.take_ticket()
    waiter = steps.take_ticket()
    steps.release_without_waking(holder)
    return bool(steps.check_position(waiter)["status"] == "granted")


def joins_again(steps: Steps) -> bool:
    steps.take_ticket()
    waiter = steps.take_ticket()
    steps.cloud.dynamodb.delete_item(
        TableName=steps.cloud.outputs["TableName"], Key=row_key(steps.lock, place_of(waiter).ticket)
    )
    return bool(place_of(steps.check_position(waiter)).ticket > place_of(waiter).ticket)


def wakes_the_first_when_it_gives_up(steps: Steps) -> bool:
    holder, first, second = steps.take_ticket(), steps.take_ticket(), steps.take_ticket()
    callback = steps.wait_for_wake_up(first)
    steps.release_without_waking(holder)
    assert steps.check_position({**second, "waitUntilMs": 1})["status"] == "RecordWaitExceeded"
    return callback.is_answered()


def parks(steps: Steps) -> bool:
    steps.take_ticket()
    steps.wait_for_wake_up(steps.take_ticket())
    return True


def answers_that_it_holds_the_lock(steps: Steps) -> bool:
    return steps.take_ticket_and_answer().is_answered()


def answers_that_it_waits(steps: Steps) -> bool:
    steps.take_ticket()
    return steps.take_ticket_and_answer().is_answered()


def does_not_park_at_its_turn(steps: Steps) -> bool:
    holder, waiter = steps.take_ticket(), steps.take_ticket()
    steps.release_without_waking(holder)
    return steps.wait_for_wake_up(waiter).is_answered()


def with_an_expired_lease(turn: Turn) -> Turn:
    """A holder whose last known lease has expired."""
    return {**turn, "grant": {**turn["grant"], "leaseUntilMs": 1}}


def beating(steps: Steps) -> tuple[Turn, Callback]:
    """A holder, and its heartbeat's task."""
    holder = steps.take_ticket()
    return holder, steps.heartbeat(holder)


def waited_for(steps: Steps) -> tuple[Turn, Callback]:
    """A holder, and the task of one that has parked behind it."""
    holder, waiter = steps.take_ticket(), steps.take_ticket()
    return holder, steps.wait_for_wake_up(waiter)


def beats(steps: Steps) -> bool:
    steps.heartbeat(with_an_expired_lease(steps.take_ticket()))
    return True


def beats_after_the_end(steps: Steps) -> bool:
    holder = steps.take_ticket()
    steps.release(holder)
    return steps.heartbeat(holder).is_answered()


def beats_without_the_lock(steps: Steps) -> bool:
    holder = steps.take_ticket()
    steps.release_without_waking(holder)
    return steps.heartbeat(with_an_expired_lease(holder)).is_answered()


def beats_after_a_release_that_was_left_to_it(steps: Steps) -> bool:
    holder, callback = waited_for(steps)
    fencing_token = grant_of(holder).fencing_token
    # As the state LeaveToHeartbeat does.
    steps.write_session(holder, finishedToken=fencing_token, unreleasedToken=fencing_token)
    steps.heartbeat(holder)
    return callback.is_answered()


def releases(steps: Steps) -> bool:
    steps.release(steps.take_ticket())
    return steps.cloud.is_free(steps.entity)


def releases_and_wakes(steps: Steps) -> bool:
    holder, callback = waited_for(steps)
    steps.release(holder)
    return callback.is_answered()


def releases_behind_one_that_has_gone(steps: Steps) -> bool:
    """The task of the waiter, far behind when it parked, has ended: its row is shortened."""
    holder, waiter = steps.take_ticket(), steps.take_ticket()
    steps.write_session(waiter, wakeUpToken="of a task that has ended")
    steps.write(row_key(steps.lock, place_of(waiter).ticket), leaseUntilMs=FAR_MS)
    steps.release(holder)
    (row,) = steps.cloud.lock(steps.entity).rows
    return row.lease_until_ms < FAR_MS


def releases_and_ends_the_heartbeat(steps: Steps) -> bool:
    holder, callback = beating(steps)
    steps.release(holder)
    return callback.is_answered()


def releases_too_late(steps: Steps) -> bool:
    holder, callback = beating(steps)
    steps.release_without_waking(holder)
    # Its lease has ended long ago, and the lock was freed.
    steps.write_session(holder, leaseUntilMs=1)
    try:
        steps.release(with_an_expired_lease(holder))
    except FunctionFailed as failed:
        if "had ended before the work was finished" not in str(failed):
            raise
    return callback.is_answered()


def nested_work(steps: Steps, holder: Turn) -> str:
    """Starts, by hand, the execution that is the holder's work; returns its ARN."""
    work: str = steps.cloud.step_functions.start_execution(
        stateMachineArn=steps.cloud.outputs["ExampleTargetArn"],
        name=work_name(holder["session"]["execution"], grant_of(holder).fencing_token),
        input='{"seconds": 60}',
    )["executionArn"]
    return work


def stops_the_work_that_timed_out(steps: Steps) -> bool:
    target = steps.cloud.outputs["ExampleTargetArn"]
    holder = steps.take_ticket({"stateMachineArn": target})
    work = nested_work(steps, holder)
    steps.release_after_time_out(holder, target)
    return steps.cloud.is_free(steps.entity) and steps.cloud.described(work)["status"] == "ABORTED"


def cleans_up_after_a_holder(steps: Steps) -> bool:
    """Its work is a function: the lock is left to the lease, and the heartbeat is ended."""
    holder, callback = beating(steps)
    steps.clean_up(holder)
    return callback.is_answered()


def cleans_up_after_a_waiter(steps: Steps) -> bool:
    steps.take_ticket()
    steps.clean_up(steps.take_ticket())
    return steps.cloud.lock(steps.entity).rows == ()


def cleans_up_after_a_waiter_whose_input_was_too_long(steps: Steps) -> bool:
    """Too long for the event: its session records what it waited for."""
    steps.take_ticket()
    steps.clean_up(steps.take_ticket(), with_input=False)
    return steps.cloud.lock(steps.entity).rows == ()


def stops_the_work_of_a_stopped_one(steps: Steps) -> bool:
    task = {"stateMachineArn": steps.cloud.outputs["ExampleTargetArn"]}
    holder = steps.take_ticket(task)
    work = nested_work(steps, holder)
    steps.clean_up(holder, task)
    return steps.cloud.is_free(steps.entity) and steps.cloud.described(work)["status"] == "ABORTED"


def stops_the_continued_wait(steps: Steps) -> bool:
    steps.take_ticket()
    waiter = steps.take_ticket()
    continued = steps.cloud.step_functions.start_execution(
        stateMachineArn=waiter["continueMachine"], input=json.dumps({"goOn": "waiting", "lock": {"turn": waiter}})
    )["executionArn"]
    steps.write_session(waiter, continuation=continued)
    steps.clean_up(waiter)
    return bool(steps.cloud.described(continued)["status"] == "ABORTED")


NEEDS = [
    Need("take_ticket", "dynamodb:GetItem", first_call("take_ticket", takes_at_once)),
    Need("take_ticket", "dynamodb:UpdateItem", takes_at_once),
    Need("take_ticket", "dynamodb:PutItem", joins),
    Need("take_ticket", "dynamodb:Query", takes_past_the_count),
    Need("take_ticket", "states:SendTaskSuccess", answers_that_it_holds_the_lock),
    Need("take_ticket", "states:SendTaskFailure", answers_that_it_waits),
    Need("wait_for_wake_up", "dynamodb:GetItem", first_call("wait_for_wake_up", parks)),
    Need("wait_for_wake_up", "dynamodb:UpdateItem", parks),
    Need("wait_for_wake_up", "dynamodb:Query", parks),
    Need("wait_for_wake_up", "states:SendTaskSuccess", does_not_park_at_its_turn),
    Need("check_position", "dynamodb:GetItem", first_call("check_position", takes_its_turn)),
    Need("check_position", "dynamodb:Query", takes_its_turn),
    Need("check_position", "dynamodb:UpdateItem", takes_its_turn),
    Need("check_position", "dynamodb:DeleteItem", takes_its_turn),
    Need("check_position", "dynamodb:PutItem", joins_again),
    Need("check_position", "states:SendTaskSuccess", wakes_the_first_when_it_gives_up, silent=True),
    Need("heartbeat", "dynamodb:GetItem", first_call("heartbeat", beats)),
    Need("heartbeat", "dynamodb:UpdateItem", beats),
    Need("heartbeat", "dynamodb:Query", beats_after_a_release_that_was_left_to_it, silent=True),
    Need("heartbeat", "states:SendTaskSuccess", beats_after_the_end),
    Need("heartbeat", "states:SendTaskFailure", beats_without_the_lock),
    Need("release", "dynamodb:GetItem", first_call("release", releases)),
    Need("release", "dynamodb:UpdateItem", releases),
    Need("release", "dynamodb:Query", releases_and_wakes, silent=True),
    Need("release", "dynamodb:ConditionCheckItem", releases_behind_one_that_has_gone, silent=True),
    Need("release", "states:SendTaskSuccess", releases_and_ends_the_heartbeat),
    Need("release", "states:SendTaskFailure", releases_too_late),
    Need("release", "states:DescribeExecution", stops_the_work_that_timed_out, silent=True),
    Need("release", "states:StopExecution", stops_the_work_that_timed_out, silent=True),
    Need("clean_up", "dynamodb:GetItem", first_call("clean_up", cleans_up_after_a_waiter)),
    Need("clean_up", "dynamodb:BatchGetItem", cleans_up_after_a_waiter),
    Need("clean_up", "dynamodb:Query", cleans_up_after_a_waiter_whose_input_was_too_long),
    Need("clean_up", "dynamodb:UpdateItem", cleans_up_after_a_holder),
    Need("clean_up", "dynamodb:DeleteItem", cleans_up_after_a_waiter),
    Need("clean_up", "states:SendTaskSuccess", cleans_up_after_a_holder),
    Need("clean_up", "states:DescribeExecution", cleans_up_after_a_waiter, part="StateMachine"),
    Need("clean_up", "states:DescribeExecution", stops_the_work_of_a_stopped_one, part="Example", silent=True),
    Need("clean_up", "states:StopExecution", stops_the_work_of_a_stopped_one, part="Example", silent=True),
    Need("clean_up", "states:DescribeExecution", stops_the_continued_wait, part="Continue", silent=True),
    Need("clean_up", "states:StopExecution", stops_the_continued_wait, part="Continue", silent=True),
]
LAMBDAS_OWN = "Lambda sends it by itself, with the role of the function; the emulator asks no role."
WAKES = "sent by each function that wakes the next in line; it is shown of the release"
SWEEPS = "the row of a dead waiter, a lease after it died: tests/infra/test_permissions.py asks for it in memory"
NOT_SHOWN = {
    **{(step, "dynamodb:ConditionCheckItem"): WAKES for step in STEPS if step != "release"},
    **{(step, "logs:CreateLogStream"): LAMBDAS_OWN for step in STEPS},
    **{(step, "logs:PutLogEvents"): LAMBDAS_OWN for step in STEPS},
    **{(step, "xray:PutTelemetryRecords"): LAMBDAS_OWN for step in STEPS},
    **{(step, "xray:PutTraceSegments"): LAMBDAS_OWN for step in STEPS},
    ("clean_up", "sqs:SendMessage"): LAMBDAS_OWN,
    ("take_ticket", "dynamodb:DeleteItem"): SWEEPS,
}


@pytest.fixture(scope="module")
def callbacks(cloud: Cloud) -> Callbacks:
    return Callbacks(cloud)


@pytest.fixture(scope="module")
def seen_to_work() -> set[Drive]:
    return set()


@pytest.mark.parametrize("need", NEEDS, ids=str)
def test_a_function_without_one_of_its_actions_is_refused(
    need: Need, cloud: Cloud, callbacks: Callbacks, seen_to_work: set[Drive]
) -> None:
    role = Role.of_step(cloud, need.step)
    [resource] = [
        each.resource for each in role.permissions() if each.action == need.action and need.part in each.resource
    ]
    if need.drive not in seen_to_work:
        # A wake-up is a hint, tried for a moment only: on a busy machine one may be lost.
        tries = 3 if need.silent else 1
        assert any(need.drive(Steps(cloud, callbacks)) for _ in range(tries)), "with all of its actions"
        seen_to_work.add(need.drive)
    with role.without(need.action, resource):
        if need.silent:
            assert not need.drive(Steps(cloud, callbacks))
            return
        with pytest.raises(FunctionFailed, match=f"not authorized to perform: {need.action}"):
            need.drive(Steps(cloud, callbacks))


@pytest.mark.parametrize("step", STEPS)
def test_every_action_of_a_function_is_shown_to_be_needed_or_has_a_reason(step: str, cloud: Cloud) -> None:
    permissions = Role.of_step(cloud, step).permissions()
    shown = {
        permission
        for permission in permissions
        for need in NEEDS
        if (need.step, need.action) == (step, permission.action) and need.part in permission.resource
    }
    assert {(step, permission.action) for permission in permissions - shown} == {
        (of, action) for of, action in NOT_SHOWN if of == step
    }


# The state machines.

RULE = "arn:aws:events:us-east-1:000000000000:rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
TO_LEARN_OF_ENDS = ("events:DescribeRule", "events:PutRule", "events:PutTargets")
# Sent by the service itself, for logs and traces.
SERVICES_OWN = {"logs", "xray"}


def sent_by(definition: Mapping[str, Any]) -> Iterator[Permission]:
    """What the tasks of a definition send, one for each target if the input names it."""
    payload = definition["States"].get("TakeTicket", {}).get("Parameters", {}).get("Payload", {})
    targets: list[str] = payload.get("targets", [])
    for _, task in tasks_of(definition):
        parameters = task["Parameters"]
        if ":::lambda:invoke" in task["Resource"]:
            own = parameters.get("FunctionName")
            functions = [own] if own else [arn for arn in targets if ":function:" in arn]
            yield from (Permission("lambda:InvokeFunction", arn) for arn in functions)
        elif task["Resource"].endswith(":::states:startExecution.sync:2"):
            own = parameters.get("StateMachineArn")
            # As functions/ name them.
            names = ["wait-0-1", "hold-0-1-1"] if own else ["lock-0-1"]
            for machine in [own] if own else [arn for arn in targets if ":stateMachine:" in arn]:
                yield Permission("states:StartExecution", machine)
                for execution in (execution_arn(machine, name) for name in names):
                    yield Permission("states:DescribeExecution", execution)
                    yield Permission("states:StopExecution", execution)
            yield from (Permission(action, RULE) for action in TO_LEARN_OF_ENDS)
        else:
            assert task["Resource"].endswith(":::dynamodb:updateItem")
            table = f"arn:aws:dynamodb:us-east-1:000000000000:table/{parameters['TableName']}"
            yield Permission("dynamodb:UpdateItem", table)


@pytest.fixture(params=["the workflow", "the one it goes on in"])
def machine(request: pytest.FixtureRequest, cloud: Cloud) -> str:
    """The ARN of a state machine."""
    workflow = cloud.outputs["StateMachineArn"]
    if request.param == "the workflow":
        return workflow
    continue_machine: str = dict(tasks_of(cloud.definition(workflow)))["ContinueWaiting"]["Parameters"][
        "StateMachineArn"
    ]
    return continue_machine


def test_a_state_machine_may_send_its_requests_and_needs_every_action_for_them(machine: str, cloud: Cloud) -> None:
    role, context = Role.of_machine(cloud, machine), {"dynamodb:LeadingKeys": "session#arn"}
    sent = set(sent_by(cloud.definition(machine)))
    assert sent
    assert {permission for permission in sent if not role.allows(permission, context)} == set()
    for action in sorted({permission.action for permission in sent}):
        with role.without(action):
            still = {permission for permission in sent if role.allows(permission, context)}
        assert still == {permission for permission in sent if permission.action != action}


def test_a_state_machine_may_send_nothing_that_its_definition_does_not(machine: str, cloud: Cloud) -> None:
    sent = {permission.action for permission in sent_by(cloud.definition(machine))}
    granted = {permission.action for permission in Role.of_machine(cloud, machine).permissions()}
    assert {action for action in granted if action.partition(":")[0] not in SERVICES_OWN} == sent
