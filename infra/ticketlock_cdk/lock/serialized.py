"""Part of a user's own workflow inside the lock: a fragment to chain, made of the serialised workflow's states."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jsii
from aws_cdk import Annotations, Aws, Duration, IResolveContext, IStringProducer, Lazy, Token
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from ticketlock._names import like_a_template
from ticketlock.workflow import LockRequest
from ticketlock_cdk.lock.jsonata import PayloadInJsonata, TaskInJsonata, caught, condition, expression, in_jsonata
from ticketlock_cdk.lock.serialize_machine import PARKED, fragment_states, ticket_settings
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
_TRANSITIONS = {"Next", "End", "Catch", "Choices", "Default", "Branches"}
_NO_PROPERTIES = {"Type", "Seconds", "SecondsPath"}
_IN_A_NAME = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Serialized(sfn.StateMachineFragment):
    """Takes the lock, runs the protected states, and releases the lock. Made by ``TicketLock.serialize``.

    Between its states the user's payload is kept in ``$.payload``. The protected states get it unchanged, and their
    output is the fragment's output.

    Attributes:
        name: its id, with the prefixes that its states have got.
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
        query_language: sfn.QueryLanguage,
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
        if not isinstance(query_language, sfn.QueryLanguage):
            raise ValueError(f"query_language is {query_language!r}; allowed: sfn.QueryLanguage.JSON_PATH or .JSONATA")
        request = _request(entity, namespace, record_wait, permits, shared)
        run = work_of(protected)
        self._work_machine = "" if run is None else run.machine_arn
        super().__init__(scope, id)
        self._warn_of_a_constant("entity", entity)
        self._warn_of_a_constant("namespace", namespace)
        self._id = id
        self._settings = settings
        self._lock_path = lock_path
        self._in_jsonata = query_language == sfn.QueryLanguage.JSONATA
        self._substitutions = {"Partition": Aws.PARTITION, **substitutions}
        self._definition: dict[str, Any] = fragment_states(settings)
        self._output_path = "$.payload.output"
        work, kind = self._work(protected)
        self._start = self._mint(request)
        held, self._ends = self._hold(work, kind, lock_path)
        self._wait(self._start, held)

    @property
    def name(self) -> str:
        """What the names of its states begin with."""
        return self._start.state_id.removesuffix(".Enter")

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
            options: further options of a Parallel state, whose query language is by default the fragment's.

        Raises:
            ValueError: an option would fail each execution after its work; the message says what to write.
        """
        # The payload gets the lock only if it is an object, too.
        reads = {**self._start.to_state_json().get("Parameters", {}), "lock_path.$": self._lock_path or "$"}
        if self._in_jsonata:
            options = {"query_language": sfn.QueryLanguage.JSONATA, **options}
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
        if self._in_jsonata or any(_is_expression(value) for value in request.values()):
            other = "the fragment" if self._in_jsonata else "another field"
            for field, value in request.items():
                if _is_path(value) or _is_encoded_path(value):
                    raise ValueError(
                        f"{field} is a path, and {other} is in JSONata; allowed: one language, in which "
                        "$.order.id is {% $states.input.order.id %}"
                    )
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

    def _wait(self, mint: sfn.Pass, held: Any) -> None:
        """The states from the first one to those that hold the lock."""
        payload = {
            "request.$": "$.lock.request",
            "place.$": "$.lock.place",
            "execution.$": "$$.Execution.Id",
            "started.$": "$$.Execution.StartTime",
            "workMachine": self._work_machine,
            "continueMachine": "${ContinueArn}",
            **ticket_settings(self._settings),
        }
        of_first: dict[str, Any] = {"ResultPath": "$.lock", "OutputPath": None}
        states: dict[str, Any] = {
            "TakeTicket": self._state(
                "TakeTicket",
                Comment="Checks the request; takes the free lock, or joins the queue. The function answers.",
                Parameters={"FunctionName": "${TakeTicketArn}", "Payload": payload | {"taskToken.$": "$$.Task.Token"}},
                **of_first,
            ),
            "TakeTicketAgain": self._state(
                "TakeTicketAgain",
                Parameters={"FunctionName": "${TakeTicketArn}", "Payload": payload},
                ResultSelector={"turn.$": "$.Payload.lock.turn"},
                **of_first,
            ),
            "WaitForTurn": self._state("WaitForTurn"),
        }
        # In JSONata the Catch itself reads the turn.
        for name in () if self._in_jsonata else ("Parked", "NotYet"):
            if name in self._definition:
                turn = {"payload.$": "$.payload", "lock.$": "States.StringToJson($.lock.Cause)"}
                states[name] = self._state(name, Parameters=turn, OutputPath=None)
        for name in (*PARKED, "CheckPosition", "ContinueWaiting"):
            if name in self._definition:
                states[name] = self._state(name)
        my_turn = self._state("MyTurn?")
        after = {**states, "MyTurn?": my_turn, "Hold": held}
        for name, state in states.items():
            for catch in self._definition[name].get("Catch", ()):
                then, kept = catch["Next"], self._caught(None if "ResultPath" in catch else "$.lock")
                if then not in after:
                    then, kept = self._definition[then]["Next"], {"outputs": caught("$.lock", is_json=True)}
                state.add_catch(after[then], errors=catch["ErrorEquals"], **kept)
            state.next(after[self._definition[name]["Next"]])
        mint.next(states["TakeTicket"])
        for choice in self._definition["MyTurn?"]["Choices"]:
            name = choice["Next"]
            if name in after:
                my_turn.when(self._condition(choice), after[name])
            elif name != "TaskNotAllowed":
                my_turn.when(self._condition(choice), self._state(name))

    def _hold(self, work: Any, kind: str, lock_path: str | None) -> tuple[Any, list[sfn.INextable]]:
        """The states that hold the lock, and their last state."""
        branch, ends = self._branch_of_work(work, kind, lock_path)
        if not self._settings.heartbeat:
            return branch, ends
        hold = self._state("Hold")
        hold.branch(sfn.Chain.start(branch))
        hold.branch(sfn.Chain.start(self._heartbeat()))
        return hold, [hold]

    def _branch_of_work(self, work: Any, kind: str, lock_path: str | None) -> tuple[Any, list[sfn.INextable]]:
        states = self._states_of_branch(0)
        release = self._state("Release", states, OutputPath=self._output_path)
        after_failure = self._state(
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
        failed = self._state("WorkFailed", states)
        after_failure.add_catch(failed, **self._caught(None))
        after_failure.next(failed)
        for errors in (["States.DataLimitExceeded"], ["States.ALL"]):
            work.add_catch(after_failure, errors=errors, **self._caught("$.failure"))
        work.next(release)
        release.add_catch(failed, errors=["LockLost"], **self._caught("$.failure"))
        left_to = "LeaveToHeartbeat" if self._settings.heartbeat else "LeftToLease"
        left = self._state(left_to, states, OutputPath=self._output_path)
        release.add_catch(left, **self._caught(None))
        ends: list[sfn.INextable] = [release, left]
        if lock_path is None:
            return work, ends
        tell = self._made(
            "TellLock",
            {
                "Type": "Pass",
                "Comment": "Puts the lock, with its fencing token, into the payload of the protected states.",
                "InputPath": "$.lock.turn.work.lock",
                "ResultPath": "$.payload" + lock_path.removeprefix("$"),
            },
        )
        tell.next(work)
        return tell, ends

    def _heartbeat(self) -> Any:
        states = self._states_of_branch(1)
        heartbeat = self._state("Heartbeat", states)
        next_beats, go_on = self._state("NextBeats", states), self._state("ContinueHolding", states)
        hold_on = self._state("HoldOn?", states)
        heartbeat.add_catch(next_beats, errors=["ContinueHolding"], **self._caught("$.heartbeatEnd"))
        next_beats.next(go_on)
        go_on.add_catch(heartbeat, **self._caught(None))
        go_on.next(hold_on)
        for choice in states["HoldOn?"]["Choices"]:
            name = choice["Next"]
            hold_on.when(self._condition(choice), next_beats if name == "NextBeats" else self._state(name, states))
        hold_on.otherwise(self._state("HeartbeatEnded", states))
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
                payload=sfn.TaskInput.from_text(self._value("$.payload")),
                retry_on_service_exceptions=False,
                **self._work_properties("InvokeFunction", "$.Payload"),
            )
            return self._repeated(function, "InvokeFunction"), "function"
        if hasattr(given, "state_machine_arn"):
            execution = tasks.StepFunctionsStartExecution(
                self,
                self._named("StartExecution"),
                state_machine=given,
                integration_pattern=sfn.IntegrationPattern.RUN_JOB,
                name=self._value("$.lock.turn.workName"),
                input=sfn.TaskInput.from_text(self._value("$.payload")),
                **self._work_properties("StartExecution", "$.Output"),
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
        states = self._made(
            "Protected",
            {
                "Type": "Parallel",
                "Comment": "The protected states as one state, which catches their failure.",
                "InputPath": "$.payload",
                "ResultPath": "$.payload",
            },
        )
        states.branch(given)
        return states, Lazy.uncached_string(_KindOfChain(given.start_state))

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

    def _work_properties(self, name: str, output_path: str) -> dict[str, Any]:
        """The properties of the task that does the work, with its output as the payload."""
        state = self._states_of_branch(0)[name]
        fields = {field: state[field] for field in ("Type", "Comment")}
        fields |= {"ResultSelector": {"output.$": output_path}, "ResultPath": "$.payload"}
        time_out = sfn.Timeout.duration(Duration.seconds(state["TimeoutSeconds"]))
        return self._properties(self._written(fields)) | {"task_timeout": time_out}

    def _states_of_branch(self, number: int) -> dict[str, Any]:
        if not self._settings.heartbeat:
            return self._definition
        states: dict[str, Any] = self._definition["Hold"]["Branches"][number]["States"]
        return states

    def _state(self, name: str, states: Mapping[str, Any] | None = None, **changed: Any) -> Any:
        """A state of the definition, with other fields."""
        return self._made(name, {**(states or self._definition)[name], **changed})

    def _made(self, name: str, state: Mapping[str, Any]) -> Any:
        """A state of these fields in JSONPath, in the fragment's language, without its transitions."""
        fields = self._written(state)
        if fields["Type"] == "Task":
            of_any_type = TaskInJsonata if self._in_jsonata else sfn.CustomState
            return of_any_type(self, self._named(name), state_json=_filled(fields, self._substitutions))
        of_its_type = PayloadInJsonata if self._in_jsonata and name == "Protected" else getattr(sfn, fields["Type"])
        return of_its_type(self, self._named(name), **self._properties(fields))

    def _written(self, state: Mapping[str, Any]) -> dict[str, Any]:
        fields = {
            field: value
            for field, value in state.items()
            if field not in _TRANSITIONS and (value is not None or field == "ResultPath")
        }
        if self._in_jsonata:
            return in_jsonata(fields)
        if fields.get("ResultPath", "$") is None:
            fields["ResultPath"] = sfn.JsonPath.DISCARD  # jsii drops a null
        return fields

    def _properties(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The same as the properties of a state's construct."""
        properties = {
            "outputs" if field == "Output" else _IN_A_NAME.sub("_", field).lower(): value
            for field, value in fields.items()
            if field not in _NO_PROPERTIES
        }
        # A Succeed is the same in both.
        if self._in_jsonata and fields["Type"] != "Succeed":
            properties["query_language"] = sfn.QueryLanguage.JSONATA
        if fields["Type"] == "Wait":
            properties["time"] = (
                sfn.WaitTime.seconds(fields["Seconds"])
                if self._in_jsonata
                else sfn.WaitTime.seconds_path(fields["SecondsPath"])
            )
        return properties

    def _value(self, path: str) -> str:
        """A value of the state's input, as a property of a task."""
        return expression(path) if self._in_jsonata else sfn.JsonPath.string_at(path)

    def _condition(self, choice: Mapping[str, Any]) -> sfn.Condition:
        if self._in_jsonata:
            return sfn.Condition.jsonata(condition(choice))
        return sfn.Condition.string_equals(choice["Variable"], choice["StringEquals"])

    def _caught(self, result_path: str | None) -> dict[str, Any]:
        """How a Catch keeps the failure at a path, or nowhere."""
        if self._in_jsonata:
            return {"outputs": caught(result_path)}
        return {"result_path": result_path or sfn.JsonPath.DISCARD}

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


def _request(
    entity: str, namespace: str, record_wait: RecordWaitOrPath | None, permits: int | str | None, shared: bool | str
) -> dict[str, Any]:
    """The request to the first step: text, numbers, paths, expressions.

    Raises:
        ValueError: the first step would refuse a part that is known now; the message names it.
    """
    if not isinstance(record_wait, Duration | str | float | int | None):
        raise ValueError(
            f'record_wait is {record_wait!r}; allowed: a Duration, seconds, "Infinity", a path or an expression'
        )
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


def _is_expression(value: Any) -> bool:
    """Whether a text is evaluated as JSONata; beside other text, or without its end, it would be a constant."""
    return isinstance(value, str) and _JSONATA.fullmatch(value) is not None


def _is_path(value: Any) -> bool:
    """Whether a text is a path or an intrinsic function: the field's name then needs the suffix."""
    if not isinstance(value, str) or Token.is_unresolved(value) or value.startswith(_NO_PATHS):
        return False
    return value.startswith("$") or _INTRINSIC.match(value) is not None


def _is_encoded_path(value: Any) -> bool:
    """Whether a text or a number is one of ``sfn.JsonPath``, for which the CDK names the field itself."""
    return Token.is_unresolved(value) and bool(sfn.FieldUtils.find_referenced_paths({"value": value}))


@jsii.implements(IStringProducer)
class _KindOfChain:
    """The kind of work that a chain is, told when a definition is written: states may be added to it until then.

    Args:
        start: the chain's first state.
    """

    def __init__(self, start: sfn.State) -> None:
        self._start = start

    def produce(self, _context: IResolveContext) -> str:
        """Whether other states of the chain may still run after a failure."""
        reachable = sfn.State.find_reachable_states(self._start, include_error_handlers=True)
        # By their JSON: a CustomState may be of any type.
        is_concurrent = any(state.to_state_json()["Type"] in ("Parallel", "Map") for state in reachable)
        return "concurrent" if is_concurrent else "chain"
