"""Part of a user's own workflow inside the lock: a fragment to chain, made of the serialised workflow's states."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from aws_cdk import Annotations, Aws, Duration, Stack, Token
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from ticketlock._names import like_a_template
from ticketlock.workflow import LockRequest
from ticketlock_cdk.lock.serialize_machine import serialize_definition, ticket_settings
from ticketlock_cdk.lock.settings import LockSettings
from ticketlock_cdk.lock.single_state import constants, parallel_options
from ticketlock_cdk.lock.targets import TOKEN, Target, parse_target

Protected = sfn.IChainable | lambda_.IFunction | sfn.IStateMachine
RecordWaitOrPath = float | int | str | Duration | Literal["Infinity"]

# State names have at most 80 characters; the id is quoted in intrinsic functions and in JSONata.
# https://docs.aws.amazon.com/step-functions/latest/dg/statemachine-structure.html
_ID = re.compile(r"[A-Za-z0-9_. -]{1,50}")
_INTRINSIC = re.compile(r"States\.[A-Za-z0-9]+\(")
_REFERENCE_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*)+")
# Names with dots or indices between them, such as order.id, or the name of an id alone, such as order_id.
_STEP = r"""(\.[A-Za-z_]\w*|\[(\d+|'[^']*'|"[^"]*")\])"""
_PATH_WITHOUT_ITS_ROOT = re.compile(rf"@?\.?[A-Za-z_]\w*{_STEP}+|@?{_STEP}+|(\w+_)?id|[a-z]\w*I[dD]")
_JSONATA = re.compile(r"\{%.*%\}", re.DOTALL)
# What begins like a path and is none: a template's placeholders, and the variable that only JSONata has.
_NO_PATHS = ("${", "$(", "$states.")
_IN_JSONATA = '"QueryLanguage":"JSONata"}'


class Serialized(sfn.StateMachineFragment):
    """Takes the lock, runs the protected states, and releases the lock. Made by ``TicketLock.serialize``.

    Between its states the user's payload is kept in ``$.payload``. The protected states get it unchanged, and their
    output is the fragment's output.

    Attributes:
        start_state, end_states: those of the fragment.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        protected: Protected,
        entity: str,
        namespace: str,
        record_wait: RecordWaitOrPath | None,
        permits: int | str | None,
        shared: bool | str,
        lock_path: str | None,
        settings: LockSettings,
        substitutions: Mapping[str, str],
    ) -> None:
        if not _ID.fullmatch(id):
            raise ValueError(
                f"id is {id!r}; allowed: 1 to 50 letters, digits, spaces and any of _.- since it is part of state names"
            )
        if _is_encoded_path(lock_path):
            [lock_path] = sfn.FieldUtils.find_referenced_paths({"lock": lock_path})
        if lock_path is not None and not _REFERENCE_PATH.fullmatch(lock_path):
            raise ValueError(f"lock_path is {lock_path!r}; allowed: a path of names, such as $.lock")
        request = _request(entity, namespace, record_wait, permits, shared)
        run = work_of(protected)
        self._work_machine = "" if run is None else run.machine_arn
        super().__init__(scope, id)
        self._warn_of_a_constant("entity", entity)
        self._warn_of_a_constant("namespace", namespace)
        self._id = id
        self._settings = settings
        self._lock_path = lock_path
        self._substitutions = {"Partition": Aws.PARTITION, **substitutions}
        self._definition: dict[str, Any] = serialize_definition(settings, ())["States"]
        self._output_path = "$.payload.output"
        work, kind = self._work(protected)
        self._start = self._mint(request)
        my_turn = self._waiting(self._start)
        held, self._ends = self._hold(work, kind, lock_path)
        my_turn.when(_status("granted"), held)

    @property
    def start_state(self) -> sfn.State:
        """The first state."""
        return self._start

    @property
    def end_states(self) -> list[sfn.INextable]:
        """The last states: their output is that of the protected states."""
        return self._ends

    # The CDK's method would prefix the state names with the fragment's id, which they begin with.
    def to_single_state(
        self, *, state_id: str | None = None, prefix_states: str | None = None, **options: Any
    ) -> sfn.Parallel:
        """The fragment as one state, to which Catch and Retry can be added; its output is that of the fragment.

        With ``output_path``, ``result_path``, ``result_selector``, ``assign`` or ``outputs`` you shape it as of any
        Parallel of the CDK: the result is a list with the one output, ``$[0]``.

        Args:
            state_id: the state's name; the fragment's id otherwise.
            prefix_states: put before the names of the states in it.
            options: further options of a Parallel state.

        Raises:
            ValueError: an option would fail each execution after its work; the message says what to write.
        """
        # The payload gets the lock only if it is an object, too.
        reads = {**self._start.to_state_json().get("Parameters", {}), "lock_path.$": self._lock_path or "$"}
        single = sfn.Parallel(self, state_id or self._id, **parallel_options(options, reads))
        self._warn_of_constants(options)
        if prefix_states is not None:
            self.prefix_states(prefix_states)
        return single.branch(self)

    def _warn_of_a_constant(self, field: str, given: Any) -> None:
        """Warn if a fixed text looks like a path or a template: one for all executions is probably a mistake."""
        if not isinstance(given, str) or _is_path(given) or _is_expression(given) or _is_encoded_path(given):
            return
        constant = TOKEN.sub("", given)
        placeholder = like_a_template(constant)
        if placeholder is not None:
            warned = "Template"
            instead = (
                f"{placeholder} in it is not replaced: write $.order.id, States.Format('order-{{}}', $.order.id) or "
                "{% 'order-' & $states.input.order.id %}"
            )
        # A namespace may well be of several words.
        elif field == "entity" and constant == given and _PATH_WITHOUT_ITS_ROOT.fullmatch(given):
            path = given.lstrip(".@")
            path = path if path.startswith("[") else f".{path}"
            warned, instead = "Path", f"for the payload's value write ${path}, or {{% $states.input{path} %}}"
        else:
            return
        Annotations.of(self).add_warning_v2(
            f"ticketlock:{field}LooksLikeA{warned}",
            f"{field} is the text {given!r}, one lock for every execution; {instead}",
        )

    def _warn_of_constants(self, options: Mapping[str, Any]) -> None:
        for name, constant in constants(options):
            placeholder = like_a_template(TOKEN.sub("", constant))
            if placeholder is not None:
                Annotations.of(self).add_warning_v2(
                    f"ticketlock:{name}LooksLikeATemplate",
                    f"{name} has the text {constant!r}, the same in every execution; {placeholder} in it is not "
                    "replaced: of a path the field's name ends with .$, and expressions need "
                    "query_language=sfn.QueryLanguage.JSONATA",
                )

    def _mint(self, request: Mapping[str, Any]) -> sfn.Pass:
        """Keep the payload, and make the owner: the execution's ARN would not be unique in Maps and loops."""
        name, comment = self._named("Enter"), "Keeps the payload, and makes the lock's owner with a new UUID."
        if any(_is_expression(value) for value in request.values()):
            for field, value in request.items():
                if _is_path(value) or _is_encoded_path(value):
                    raise ValueError(f"{field} is a path, and another field is in JSONata; allowed: one language")
            place = f"{{% '{self._id}/' & $uuid() %}}"
            return sfn.Pass.jsonata(
                self,
                name,
                comment=comment,
                outputs={"payload": "{% $states.input %}", "lock": {"request": request, "place": place}},
            )
        paths = {f"{field}.$" if _is_path(value) else field: value for field, value in request.items()}
        return sfn.Pass.json_path(
            self,
            name,
            comment=comment,
            parameters={
                "payload.$": "$",
                "lock": {"request": paths, "place.$": f"States.Format('{self._id}/{{}}', States.UUID())"},
            },
        )

    def _waiting(self, mint: sfn.Pass) -> sfn.Choice:
        take_ticket = self._custom(
            "TakeTicket",
            Comment="Checks the request; takes the free lock, or joins the queue.",
            Parameters={
                "FunctionName": "${TakeTicketArn}",
                "Payload": {
                    "request.$": "$.lock.request",
                    "place.$": "$.lock.place",
                    "execution.$": "$$.Execution.Id",
                    "started.$": "$$.Execution.StartTime",
                    "workMachine": self._work_machine,
                    "continueMachine": "${ContinueArn}",
                    **ticket_settings(self._settings),
                },
            },
            ResultSelector={"turn.$": "$.Payload.lock.turn"},
            ResultPath="$.lock",
            OutputPath=None,
        )
        my_turn = sfn.Choice(self, self._named("MyTurn?"), comment=self._definition["MyTurn?"]["Comment"])
        sleep = sfn.Wait(
            self,
            self._named("WaitForTurn"),
            time=sfn.WaitTime.seconds_path("$.lock.turn.waitSeconds"),
            comment=self._definition["WaitForTurn"]["Comment"],
        )
        states: dict[str, Any] = {"TakeTicket": take_ticket, "WaitForTurn": sleep, "MyTurn?": my_turn}
        for name in ("WaitForWakeUp", "WaitForWakeUpBriefly", "CheckPosition", "ContinueWaiting"):
            if name in self._definition:
                states[name] = self._custom(name)
        for name in [name for name in states if name != "MyTurn?"]:
            for catch in self._definition[name].get("Catch", ()):
                states[name].add_catch(
                    states[catch["Next"]], errors=catch["ErrorEquals"], result_path=sfn.JsonPath.DISCARD
                )
            states[name].next(states[self._definition[name]["Next"]])
        mint.next(take_ticket)
        for choice in self._definition["MyTurn?"]["Choices"]:
            status, name = choice["StringEquals"], choice["Next"]
            if name in states:
                my_turn.when(_status(status), states[name])
            elif status not in ("granted", "TaskNotAllowed"):
                my_turn.when(_status(status), self._failed(name, "$.lock.turn.cause"))
        return my_turn

    def _hold(self, work: Any, kind: str, lock_path: str | None) -> tuple[Any, list[sfn.INextable]]:
        """The states that hold the lock, and their last state."""
        branch, ends = self._branch_of_work(work, kind, lock_path)
        if not self._settings.heartbeat:
            return branch, ends
        hold = sfn.Parallel(self, self._named("Hold"), output_path="$[0]", comment=self._definition["Hold"]["Comment"])
        hold.branch(sfn.Chain.start(branch))
        hold.branch(sfn.Chain.start(self._heartbeat()))
        return hold, [hold]

    def _branch_of_work(self, work: Any, kind: str, lock_path: str | None) -> tuple[Any, list[sfn.INextable]]:
        states = self._states_of_branch(0)
        release = self._custom("Release", states, OutputPath=self._output_path)
        after_failure = self._custom(
            "ReleaseAfterFailure",
            states,
            Parameters={
                "FunctionName": "${ReleaseArn}",
                "Payload": {
                    "turn.$": "$.lock.turn",
                    "kind": kind,
                    "work": self._work_machine,
                    "failure.$": "$.failure",
                },
            },
        )
        failed = sfn.Fail(
            self,
            self._named("WorkFailed"),
            error_path="$.failure.Error",
            cause_path="$.failure.Cause",
            comment=states["WorkFailed"]["Comment"],
        )
        after_failure.add_catch(failed, result_path=sfn.JsonPath.DISCARD)
        after_failure.next(failed)
        for errors in (["States.DataLimitExceeded"], ["States.ALL"]):
            work.add_catch(after_failure, errors=errors, result_path="$.failure")
        work.next(release)
        release.add_catch(failed, errors=["LockLost"], result_path="$.failure")
        if self._settings.heartbeat:
            left: Any = self._custom("LeaveToHeartbeat", states, OutputPath=self._output_path)
        else:
            left = sfn.Pass(
                self,
                self._named("LeftToLease"),
                output_path=self._output_path,
                comment=states["LeftToLease"]["Comment"],
            )
        release.add_catch(left, result_path=sfn.JsonPath.DISCARD)
        ends: list[sfn.INextable] = [release, left]
        if lock_path is None:
            return work, ends
        tell = sfn.Pass(
            self,
            self._named("TellLock"),
            input_path="$.lock.turn.work.lock",
            result_path="$.payload" + lock_path.removeprefix("$"),
            comment="Puts the lock, with its fencing token, into the payload of the protected states.",
        )
        tell.next(work)
        return tell, ends

    def _heartbeat(self) -> sfn.State:
        states = self._states_of_branch(1)
        heartbeat = self._custom("Heartbeat", states)
        next_beats = sfn.Pass(
            self,
            self._named("NextBeats"),
            parameters=states["NextBeats"]["Parameters"],
            result_path="$.lock",
            comment=states["NextBeats"]["Comment"],
        )
        go_on = self._custom("ContinueHolding", states)
        hold_on = sfn.Choice(self, self._named("HoldOn?"), comment=states["HoldOn?"]["Comment"])
        heartbeat.add_catch(next_beats, errors=["ContinueHolding"], result_path="$.heartbeatEnd")
        next_beats.next(go_on)
        go_on.add_catch(heartbeat, result_path=sfn.JsonPath.DISCARD)
        go_on.next(hold_on)
        for choice in states["HoldOn?"]["Choices"]:
            name = choice["Next"]
            then = next_beats if name == "NextBeats" else self._failed(name, "$.heartbeatEnd.Cause", states)
            hold_on.when(sfn.Condition.string_equals("$.heartbeatEnd.status", choice["StringEquals"]), then)
        hold_on.otherwise(sfn.Succeed(self, self._named("HeartbeatEnded"), comment=states["HeartbeatEnded"]["Comment"]))
        return heartbeat

    def _work(self, protected: Protected) -> tuple[Any, str]:
        """The protected states as one state, and the kind of work, for when it fails.

        Its output is a list of one, or an object with one field, at ``$.payload``.
        """
        given: Any = protected
        if hasattr(given, "function_arn"):
            function = tasks.LambdaInvoke(
                self,
                self._named("InvokeFunction"),
                lambda_function=given,
                payload=sfn.TaskInput.from_json_path_at("$.payload"),
                result_selector={"output.$": "$.Payload"},
                result_path="$.payload",
                retry_on_service_exceptions=False,
                task_timeout=sfn.Timeout.duration(self._work_timeout("InvokeFunction")),
                comment=self._states_of_branch(0)["InvokeFunction"]["Comment"],
            )
            return self._repeated(function, "InvokeFunction"), "function"
        if hasattr(given, "state_machine_arn"):
            execution = tasks.StepFunctionsStartExecution(
                self,
                self._named("StartExecution"),
                state_machine=given,
                integration_pattern=sfn.IntegrationPattern.RUN_JOB,
                name=sfn.JsonPath.string_at("$.lock.turn.workName"),
                input=sfn.TaskInput.from_json_path_at("$.payload"),
                result_selector={"output.$": "$.Output"},
                result_path="$.payload",
                task_timeout=sfn.Timeout.duration(self._work_timeout("StartExecution")),
                comment=self._states_of_branch(0)["StartExecution"]["Comment"],
            )
            return self._repeated(execution, "StartExecution"), "execution"
        if not hasattr(given, "start_state"):
            raise ValueError(f"protected is {given!r}; allowed: states, a function or a Standard state machine")
        if not self._settings.heartbeat:
            raise ValueError(
                "protected is a chain of states; allowed with heartbeat=False: a function or a state machine, "
                "whose time-out the lease bounds"
            )
        self._output_path = "$.payload[0]"
        states = sfn.Parallel(
            self,
            self._named("Protected"),
            input_path="$.payload",
            result_path="$.payload",
            comment="The protected states as one state, which catches their failure.",
        )
        states.branch(given)
        return states, "concurrent" if _is_concurrent(given) else "chain"

    def _repeated(self, work: sfn.TaskStateBase, name: str) -> sfn.TaskStateBase:
        for retry in self._states_of_branch(0)[name].get("Retry", ()):
            work.add_retry(
                errors=retry["ErrorEquals"],
                interval=Duration.seconds(retry["IntervalSeconds"]),
                backoff_rate=retry["BackoffRate"],
                max_attempts=retry["MaxAttempts"],
                max_delay=Duration.seconds(retry["MaxDelaySeconds"]),
                jitter_strategy=sfn.JitterType.FULL if "JitterStrategy" in retry else None,
            )
        return work

    def _work_timeout(self, name: str) -> Duration:
        return Duration.seconds(self._states_of_branch(0)[name]["TimeoutSeconds"])

    def _states_of_branch(self, number: int) -> dict[str, Any]:
        if not self._settings.heartbeat:
            return self._definition
        states: dict[str, Any] = self._definition["Hold"]["Branches"][number]["States"]
        return states

    def _failed(self, name: str, cause_path: str, states: Mapping[str, Any] | None = None) -> sfn.Fail:
        state = (states or self._definition)[name]
        return sfn.Fail(self, self._named(name), error=state["Error"], cause_path=cause_path, comment=state["Comment"])

    def _custom(self, name: str, states: Mapping[str, Any] | None = None, **changed: Any) -> sfn.CustomState:
        state = {**(states or self._definition)[name], **changed}
        for routed in ("Catch", "Next", "End"):
            state.pop(routed, None)
        if "ResultPath" in state and state["ResultPath"] is None:
            state["ResultPath"] = sfn.JsonPath.DISCARD  # jsii drops a null
        filled = {key: _filled(value, self._substitutions) for key, value in state.items() if value is not None}
        return sfn.CustomState(self, self._named(name), state_json=filled)

    def _named(self, state: str) -> str:
        return f"{self._id}.{state}"


def _filled(value: Any, substitutions: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, token in substitutions.items():
            value = value.replace(f"${{{name}}}", token)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(inner, substitutions) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_filled(inner, substitutions) for inner in value]
    return value


def work_of(protected: Protected) -> Target | None:
    """The function or the state machine, if the protected work is one.

    Raises:
        ValueError: it is a state machine or a function that cannot be run; the message says why.
    """
    if isinstance(protected, str) or not (
        hasattr(protected, "function_arn") or hasattr(protected, "state_machine_arn")
    ):
        return None
    return parse_target("protected", protected)


def is_in_jsonata(machine: sfn.StateMachine) -> bool:
    """Whether a state machine's query language is JSONata, which the CDK writes as the last field of the definition.

    JSONPath states are not allowed in it, and the CDK does not say so:
    https://docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html

    Raises:
        ValueError: the state machine is imported, so its definition is unknown.
    """
    resource = machine.node.default_child
    if not isinstance(resource, sfn.CfnStateMachine):
        raise ValueError(f"machine is {machine.node.path}, which is imported; allowed: one of this app")
    match Stack.of(machine).resolve(resource.definition_string):
        case str() as text:
            return text.endswith(_IN_JSONATA)
        case {"Fn::Join": [_, [*_, str() as end]]}:
            return end.endswith(_IN_JSONATA)
    return False


def _request(
    entity: str, namespace: str, record_wait: RecordWaitOrPath | None, permits: int | str | None, shared: bool | str
) -> dict[str, Any]:
    """The request to the first step: text, numbers, paths, expressions.

    Raises:
        ValueError: the first step would refuse a part that is known now; the message names it.
    """
    request: dict[str, Any] = {"entity": entity, "namespace": namespace}
    if record_wait == math.inf:
        request["recordWaitSeconds"] = "Infinity"
    elif record_wait is not None:
        request["recordWaitSeconds"] = (
            record_wait.to_milliseconds() / 1_000 if isinstance(record_wait, Duration) else record_wait
        )
    if permits is not None:
        request["permits"] = permits
    if shared is not False:
        request["shared"] = shared
    known = {
        field: value
        for field, value in request.items()
        # Infinity and NaN would end the CDK's own process.
        if (isinstance(value, float) and not math.isfinite(value))
        or not (_is_path(value) or _is_expression(value) or Token.is_unresolved(value))
    }
    LockRequest.parse_place({"entity": "known later", **known}, default_record_wait="Infinity", default_permits=1)
    return request


def _status(status: str) -> sfn.Condition:
    return sfn.Condition.string_equals("$.lock.turn.status", status)


def _is_expression(value: Any) -> bool:
    """Whether a text is evaluated as JSONata; beside other text, or without its end, it would be a constant."""
    return isinstance(value, str) and _JSONATA.fullmatch(value) is not None


def _is_path(value: Any) -> bool:
    """Whether a text is a path or an intrinsic function: the field's name then needs the suffix."""
    if not isinstance(value, str) or Token.is_unresolved(value) or value.startswith(_NO_PATHS):
        return False
    return value.startswith("$") or _INTRINSIC.match(value) is not None


def _is_encoded_path(value: Any) -> bool:
    """Whether a text is one of ``sfn.JsonPath``, for which the CDK names the field itself."""
    return isinstance(value, str) and sfn.JsonPath.is_encoded_json_path(value)


def _is_concurrent(chain: Any) -> bool:
    """Whether other states of the chain may still run after a failure."""
    reachable = sfn.State.find_reachable_states(chain.start_state, include_error_handlers=True)
    # By their JSON: a CustomState may be of any type.
    return any(state.to_state_json()["Type"] in ("Parallel", "Map") for state in reachable)
