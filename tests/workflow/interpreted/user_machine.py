"""Users' own state machines with fragments of a TicketLock in them: synthesised by the CDK, run by the harness.

Each is a function here, named like its machine: it creates the states, with its lock's ``serialize``. Their definitions
are taken from the template as CloudFormation would resolve it, with the harness's ARNs.
"""

import fcntl
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import clean_up
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from aws_cdk.assertions import Template
from constructs import Construct, Node
from kit.interpreter.harness import PATIENCE_S, Machine, Outcome, until
from kit.interpreter.lambda_server import function_arn
from kit.interpreter.stage import CHILD_ARN, CONTINUE_ARN, Stage
from ticketlock_cdk import HandOver, TicketLock
from ticketlock_cdk.lock.serialized import Serialized

from ticketlock.wire._actions import Item

USER_LEASE_S = 20
RETRIES = 5
"""Of a state whose function commits a unit."""
Made = sfn.IChainable
Make = Callable[["Maker"], Made]
JSON_PATH, JSONATA = BOTH = tuple(sfn.QueryLanguage)
_MACHINES: dict[str, tuple[Make, sfn.QueryLanguage, dict[str, Any]]] = {}


class Maker(Construct):
    """Creates one machine's states in its language, with short ways to create them."""

    def __init__(self, scope: Construct, id: str, lock: TicketLock, language: sfn.QueryLanguage) -> None:
        super().__init__(scope, id)
        self._lock = lock
        self._language = language
        self._in_jsonata = language is JSONATA
        self._functions: dict[str, lambda_.IFunction] = {}

    def function(self, name: str) -> lambda_.IFunction:
        if name not in self._functions:
            self._functions[name] = lambda_.Function.from_function_arn(self, f"Function{name}", function_arn(name))
        return self._functions[name]

    def child(self) -> sfn.IStateMachine:
        return sfn.StateMachine.from_state_machine_arn(self, "Child", CHILD_ARN)

    def state(self, name: str, **properties: Any) -> sfn.Pass:
        return sfn.Pass(self, name, query_language=self._language, **properties)

    def invoke(self, name: str, function: str = "work", **properties: Any) -> tasks.LambdaInvoke:
        """A state of the user's own that invokes a function with the whole payload, and returns its result."""
        if self._in_jsonata:
            properties["outputs"] = "{% $states.result.Payload %}"
        else:
            properties["output_path"] = "$.Payload"
        return tasks.LambdaInvoke(
            self,
            name,
            query_language=self._language,
            lambda_function=self.function(function),
            payload=sfn.TaskInput.from_text(self.value("$")),
            retry_on_service_exceptions=False,
            **properties,
        )

    def each(self, items: str, work: sfn.IChainable) -> sfn.Map:
        """A Map over the items at a path."""
        if self._in_jsonata:
            each = sfn.Map.jsonata(self, "Each", items=sfn.ProvideItems.jsonata(self.value(items)))
        else:
            each = sfn.Map(self, "Each", items_path=items)
        return each.item_processor(work)

    def made(self, name: str, output: Mapping[str, Any]) -> sfn.Pass:
        """A state with this output."""
        return self.state(name, **{"outputs" if self._in_jsonata else "parameters": output})

    def caught(self) -> dict[str, Any]:
        """How a Catch adds the failure to the payload."""
        if self._in_jsonata:
            return {"outputs": "{% $merge([$states.input, {'failure': $states.errorOutput}]) %}"}
        return {"result_path": "$.failure"}

    def value(self, path: str) -> str:
        """A value of the payload."""
        return f"{{% $states.input{path[1:]} %}}" if self._in_jsonata else sfn.JsonPath.string_at(path)

    def serialize(self, id: str, protected: Any, **properties: Any) -> Serialized:
        given = {"entity": "order-42", "query_language": self._language, **properties}
        return self._lock.serialize(self, id, protected, **given)


def machine(*, languages: Iterable[sfn.QueryLanguage] = (JSON_PATH,), **settings: Any) -> Callable[[Make], Make]:
    """Create a machine of a function's states, under a lock with these settings; for JSONata ``..._in_jsonata``."""

    def keep(make: Make) -> Make:
        for language in languages:
            suffix = "_in_jsonata" if language is JSONATA else ""
            _MACHINES[make.__name__ + suffix] = (make, language, settings)
        return make

    return keep


@machine(languages=BOTH)
def chain(user: Maker) -> Made:
    protected = user.state("Look").next(user.invoke("Work")).next(user.state("LookAgain"))
    return user.serialize("Locked", protected).next(user.state("After"))


@machine(languages=BOTH)
def passing(user: Maker) -> Made:
    return user.state("Before").next(user.serialize("Locked", user.state("Look"))).next(user.state("After"))


@machine(languages=BOTH, hand_over=HandOver.POLL)
def polled_chain(user: Maker) -> Made:
    return user.serialize("Locked", user.invoke("Work"))


@machine(languages=BOTH, hand_over=HandOver.POLL, polls_an_execution=2, beats_an_execution=2)
def continued(user: Maker) -> Made:
    """Waits and holds that soon continue in other executions."""
    return user.serialize("Locked", user.invoke("Work")).next(user.state("After"))


@machine(languages=BOTH)
def function(user: Maker) -> Made:
    return user.serialize("Locked", user.function("work")).next(user.state("After"))


@machine(languages=BOTH)
def nested_execution(user: Maker) -> Made:
    return user.serialize("Locked", user.child()).next(user.state("After"))


@machine(languages=BOTH)
def by_path(user: Maker) -> Made:
    return user.serialize(
        "Locked",
        user.invoke("Work"),
        entity=user.value("$.order.id"),
        namespace=user.value("$.tenant"),
        record_wait=user.value("$.patience"),
        lock_path="$.order.lock",
    )


@machine()
def of_both_languages(user: Maker) -> Made:
    """A machine in JSONPath; a fragment is in JSONata, and what it protects is not."""
    in_jsonata = user.serialize("Other", user.invoke("WorkOther"), query_language=JSONATA)
    return user.serialize("Locked", user.invoke("Work")).next(in_jsonata).next(user.state("After"))


@machine()
def by_name(user: Maker) -> Made:
    """The entity is made from the payload and the execution's name."""
    return user.serialize("Locked", user.invoke("Work"), entity="States.Format('{}/{}', $.order, $$.Execution.Name)")


@machine()
def two(user: Maker) -> Made:
    first = user.serialize("First", user.invoke("WorkFirst"), entity="$.first")
    return first.next(user.serialize("Second", user.invoke("WorkSecond"), entity="$.second"))


@machine()
def nested_locks(user: Maker) -> Made:
    inner = user.serialize("Inner", user.invoke("Work"), entity="$.inner")
    return user.serialize("Outer", inner, entity="$.outer")


@machine()
def branches(user: Maker) -> Made:
    both = sfn.Parallel(user, "Both")
    both.branch(sfn.Chain.start(user.serialize("Left", user.invoke("WorkLeft"))))
    both.branch(sfn.Chain.start(user.serialize("Right", user.invoke("WorkRight"))))
    return both


@machine(languages=BOTH)
def items(user: Maker) -> Made:
    entity = user.value("$.entity")
    return user.each("$.items", user.serialize("Locked", user.invoke("Work"), entity=entity, lock_path="$.lock"))


@machine(languages=[JSONATA])
def variables(user: Maker) -> Made:
    """What people write in JSONata: variables, a Map, a condition, a Catch with an output."""
    before = user.state("Before", assign={"shop": user.value("$.shop")}, outputs=user.value("$"))
    sell = user.invoke("Work")
    sell.add_catch(user.state("Keep"), errors=["StockMissing"], outputs={"missing": user.value("$.sku")})
    choose = sfn.Choice.jsonata(user, "Sold?").when(sfn.Condition.jsonata(user.value("$.sold")), user.state("Skip"))
    locked = user.serialize("Locked", choose.otherwise(sell), entity="{% $shop & '/' & $states.input.sku %}")
    each = sfn.Map.jsonata(
        user, "Each", items=sfn.ProvideItems.jsonata(user.value("$.lines")), assign={"lines": "{% $states.result %}"}
    )
    each.item_processor(locked.to_single_state(outputs={"line": "{% $states.result[0] %}"}))
    return before.next(each).next(user.made("After", {"shop": "{% $shop %}", "lines": "{% $lines %}"}))


@machine()
def readers(user: Maker) -> Made:
    """Iterations on one entity, each of which chooses whether it shares the lock."""
    each = sfn.Map(user, "Each", items_path="$.items")
    return each.item_processor(user.serialize("Locked", user.invoke("Work"), shared="$.shares"))


@machine()
def two_at_once(user: Maker) -> Made:
    each = sfn.Map(user, "Each", items_path="$.items")
    return each.item_processor(user.serialize("Locked", user.invoke("Work"), permits=2))


@machine()
def groups(user: Maker) -> Made:
    """A Map in a Map."""
    inner = sfn.Map(user, "EachItem", items_path="$")
    inner.item_processor(user.serialize("Locked", user.invoke("Work"), entity="$.entity", lock_path="$.lock"))
    return sfn.Map(user, "EachGroup", items_path="$.groups").item_processor(inner)


@machine()
def loop(user: Maker) -> Made:
    locked = user.serialize("Locked", user.invoke("Work"), lock_path="$.lock")
    again = sfn.Choice(user, "Again?")
    again.when(sfn.Condition.number_greater_than("$.left", 0), locked).otherwise(user.state("Enough"))
    return locked.next(again)


@machine()
def failing(user: Maker) -> Made:
    """The chain ends in a Fail state of its own."""
    failed = sfn.Fail(user, "OutOfPaint", error="OutOfPaint", cause="no more red")
    return user.serialize("Locked", user.state("Look").next(failed))


@machine(languages=BOTH)
def caught(user: Maker) -> Made:
    """Any error of the fragment is caught."""
    single = user.serialize("Locked", user.invoke("Work"), record_wait=Duration.seconds(0)).to_single_state()
    waited = user.made("Waited", {"caught": user.value("$.failure.Cause"), "by": "name"})
    single.add_catch(waited, errors=["RecordWaitExceeded"], **user.caught())
    single.add_catch(user.state("Caught"), **user.caught())
    return single.next(user.state("After"))


@machine(languages=BOTH)
def repeated(user: Maker) -> Made:
    """A fragment that is entered again when it fails."""
    single = user.serialize("Locked", user.invoke("Work"), lock_path="$.lock").to_single_state(state_id="Try")
    single.add_retry(errors=["StockMissing"], interval=Duration.seconds(1), max_attempts=2, backoff_rate=1)
    return single


# Not $[0].paid: of what is just below an index the interpreter makes a list, and the service does not.
_PAID = {"paid.$": "$[0].paid.euros"}
SINGLE_STATES: Mapping[str, Mapping[str, Any]] = {
    "no option": {},
    "input_path": {"input_path": "$.order"},
    "parameters": {"parameters": {"id": sfn.JsonPath.string_at("$.order.id")}},
    "output_path": {"output_path": "$[0].paid.euros"},
    "the whole result": {"output_path": "$"},
    "no output": {"output_path": sfn.JsonPath.DISCARD},
    "result_path": {"result_path": "$.payment"},
    "result_path in an object": {"result_path": "$.order.payment"},
    "no result": {"result_path": sfn.JsonPath.DISCARD},
    "result_path and output_path": {"result_path": "$.payment", "output_path": "$.payment[0].paid.euros"},
    "result_selector": {"result_selector": _PAID},
    "result_selector and result_path": {"result_selector": _PAID, "result_path": "$.payment"},
    "result_selector and output_path": {"result_selector": _PAID, "output_path": "$.paid"},
    "input_path and result_path": {"input_path": "$.order", "result_path": "$.payment"},
    "no result and output_path": {"result_path": sfn.JsonPath.DISCARD, "output_path": "$.order"},
    "result_path and another output_path": {"result_path": "$.payment", "output_path": "$.order.id"},
    "prefix_states": {"prefix_states": "Locked: "},
}
"""Options of a fragment as one state."""

REFUSED_STATES: Mapping[str, Mapping[str, Any]] = {
    "output_path of a list": {"output_path": "$.paid"},
    "output_path beyond the list": {"output_path": "$[1]"},
    "output_path of a list in the payload": {"result_path": "$.payment", "output_path": "$.payment.paid"},
    "output_path of a list deep in the payload": {"result_path": "$.a.b", "output_path": "$.a.b.paid"},
    "output_path of the payload": {"result_path": sfn.JsonPath.DISCARD, "output_path": "$[0]"},
    "output_path of the payload and more": {"result_path": "$.payment", "output_path": "$[0]"},
    "output_path of an object": {"result_selector": _PAID, "output_path": "$[0]"},
    "output_path not selected": {"result_selector": _PAID, "output_path": "$.all"},
    "output_path not selected within": {"result_selector": {"a": _PAID}, "output_path": "$.a.b"},
    "output_path of what is selected": {"result_selector": {"all.$": "$"}, "output_path": "$.all.paid"},
    "output_path not selected for the payload": {
        "result_selector": _PAID,
        "result_path": "$.payment",
        "output_path": "$.payment.all",
    },
    "result_selector of a list": {"result_selector": {"by": {"id.$": "$.id"}}},
    "result_selector beyond the list": {"result_selector": {"paid.$": "$[1].paid"}},
    "intrinsic function of a list": {"result_selector": {"id.$": "States.Format('{}', $.id)"}},
}
"""Options that fail each execution after the work, of a fragment whose payload is an object."""


@machine()
def refused_states(user: Maker) -> Made:
    """A Parallel of the CDK with each of them; its input names one."""
    choose = sfn.Choice(user, "Choose")
    for name, options in REFUSED_STATES.items():
        work = user.state(f"Work of {name}", result=sfn.Result.from_object({"paid": {"euros": 7}}))
        single = sfn.Parallel(user, name, **options).branch(work)
        choose.when(sfn.Condition.string_equals("$.options", name), single)
    return choose


def _single_state_machines() -> dict[str, Sequence[str]]:
    """Machines that have two each, since the interpreter reads a definition at each start; their inputs name one."""
    made: dict[str, Sequence[str]] = {}
    for first in range(0, len(SINGLE_STATES), 2):
        some = list(SINGLE_STATES)[first : first + 2]

        def make(user: Maker, some: Sequence[str] = some) -> Made:
            choose = sfn.Choice(user, "Choose")
            for name in some:
                single = user.serialize(f"Of {name}", user.function("work")).to_single_state(**SINGLE_STATES[name])
                choose.when(sfn.Condition.string_equals("$.options", name), single)
            return choose

        make.__name__ = f"single_states_{first}"
        machine()(make)
        made[make.__name__] = some
    return made


SINGLE_STATE_MACHINES = _single_state_machines()


@machine()
def chain_as_one_state(user: Maker) -> Made:
    """By the CDK's own method."""
    chain = user.state("Before").next(user.serialize("InChain", user.function("work")))
    return chain.to_single_state("Chain", result_path="$.payment")


@machine()
def timing_out(user: Maker) -> Made:
    return user.serialize("Locked", user.invoke("Work", task_timeout=sfn.Timeout.duration(Duration.seconds(1))))


@machine()
def concurrent(user: Maker) -> Made:
    """One of two concurrent protected states fails."""
    both = sfn.Parallel(user, "Both").branch(user.invoke("Work")).branch(user.invoke("Slow", "slow"))
    return user.serialize("Locked", both)


@machine()
def concurrent_by_states_wired_later(user: Maker) -> Made:
    """The same, behind a state to which both are chained when it is already protected."""
    look = user.state("Look")
    locked = user.serialize("Locked", look)
    look.next(sfn.Parallel(user, "Both").branch(user.invoke("Work")).branch(user.invoke("Slow", "slow")))
    return locked


@machine()
def child_in_chain(user: Maker) -> Made:
    """The chain runs a nested execution until its end, with a state of the user's own."""
    run = tasks.StepFunctionsStartExecution(
        user, "Run", state_machine=user.child(), integration_pattern=sfn.IntegrationPattern.RUN_JOB
    )
    return user.serialize("Locked", run)


@machine()
def unit(user: Maker) -> Made:
    """A state that is retried, whose function commits a unit under the lock."""
    return user.serialize("Locked", committing(user), lock_path="$.lock").next(user.state("After"))


@machine()
def units_of_items(user: Maker) -> Made:
    """A Map in the protected states: a unit for each item, under the one lock."""
    selected = {
        "lock": sfn.JsonPath.object_at("$.lock"),
        "account": sfn.JsonPath.string_at("$$.Map.Item.Value"),
        "item": sfn.JsonPath.number_at("$$.Map.Item.Index"),
    }
    each = sfn.Map(user, "Each", items_path="$.accounts", item_selector=selected)
    item = sfn.JsonPath.number_at("$.item")
    return user.serialize("Locked", each.item_processor(committing(user, item=item)), lock_path="$.lock")


def committing(user: Maker, **more: Any) -> tasks.LambdaInvoke:
    """The function gets the data for the unit and its name from the payload and the context."""
    payload = {
        "account": sfn.JsonPath.string_at("$.account"),
        "lock": sfn.JsonPath.object_at("$.lock"),
        "execution": sfn.JsonPath.string_at("$$.Execution.Id"),
        "state": sfn.JsonPath.string_at("$$.State.Name"),
        **more,
    }
    commit = tasks.LambdaInvoke(
        user,
        "Commit",
        lambda_function=user.function("commit"),
        payload=sfn.TaskInput.from_object(payload),
        output_path="$.Payload",
        retry_on_service_exceptions=False,
    )
    commit.add_retry(errors=["LockLost"], max_attempts=0)
    commit.add_retry(interval=Duration.seconds(1), backoff_rate=1, max_attempts=RETRIES)
    return commit


@machine(languages=BOTH, heartbeat=False, lease=Duration.seconds(20))
def fixed_function(user: Maker) -> Made:
    return user.serialize("Locked", user.function("work"), lock_path="$.lock").next(user.state("After"))


@machine(heartbeat=False, work_timeout=Duration.seconds(1))
def fixed_timing_out(user: Maker) -> Made:
    return user.serialize("Locked", user.function("work"))


@machine(heartbeat=False, lease=Duration.seconds(20))
def fixed_execution(user: Maker) -> Made:
    return user.serialize("Locked", user.child())


def definitions(folder: Path) -> dict[str, str]:
    """The definitions of all machines, by name, with the stage's placeholder for the table."""
    # One stack would have too many resources.
    return {name: text for language in BOTH for name, text in _of_a_stack(folder, language).items()}


def _of_a_stack(folder: Path, language: sfn.QueryLanguage) -> dict[str, str]:
    stack = Stack(App(outdir=str(folder / language.value)), "Users")
    locks: dict[str, TicketLock] = {}
    machines: dict[str, sfn.StateMachine] = {}
    values = {"AWS::Partition": "aws"}
    for name, (make, own, settings) in _MACHINES.items():
        if own is not language:
            continue
        key = "".join(f"{setting}{value}" for setting, value in sorted(_plain(settings).items())) or "default"
        if key not in locks:
            locks[key] = TicketLock(
                stack,
                f"Lock{len(locks)}",
                **{"lease": Duration.seconds(USER_LEASE_S), "poll": Duration.seconds(1), **settings},
            )
            values |= _harness_arns(stack, locks[key])
        body = sfn.DefinitionBody.from_chainable(make(Maker(stack, name, locks[key], language)))
        machines[name] = sfn.StateMachine(stack, f"Machine{name}", definition_body=body, query_language=language)
        locks[key].attach(machines[name])
    resources = Template.from_stack(stack).to_json()["Resources"]
    return {
        name: _resolved(resources[_logical_id(stack, made)]["Properties"]["DefinitionString"], values)
        for name, made in machines.items()
    }


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.to_seconds() if isinstance(value, Duration) else value for name, value in settings.items()}


def _harness_arns(stack: Stack, lock: TicketLock) -> dict[str, str]:
    functions = {
        "TakeTicket": lock.take_ticket,
        "CheckPosition": lock.check_position,
        "WaitForWakeUp": lock.wait_for_wake_up,
        "Heartbeat": lock.heartbeat,
        "Release": lock.release,
    }
    continues = stack.resolve(lock._continues_arn)["Ref"]
    return {
        # The functions that definitions invoke.
        **{
            _logical_id(stack, _beside(found).find_child(f"{name}Live")): function_arn(name)
            for name, found in functions.items()
        },
        _logical_id(stack, lock.table): "${TableName}",
        continues: CONTINUE_ARN,
    }


def _beside(construct: Construct) -> Node:
    assert construct.node.scope is not None
    return construct.node.scope.node


def _logical_id(stack: Stack, construct: Any) -> str:
    id: str = stack.resolve(stack.get_logical_id(construct.node.default_child))
    return id


def _resolved(value: Any, values: Mapping[str, str]) -> str:
    match value:
        case str():
            return value
        case {"Fn::Join": [delimiter, parts]}:
            text: str = delimiter.join(_resolved(part, values) for part in parts)
            return text
        case {"Ref": name} | {"Fn::GetAtt": [name, _]}:
            return values[name]
    raise AssertionError(f"nothing here resolves {json.dumps(value)}")


@cache
def definition(name: str, shared: Path) -> str:
    """One machine's definition; the first call synthesises them all, for all processes of the test run."""
    kept = shared / "user-machines.json"
    with (shared / "user-machines.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(definitions(shared / "user-machines")))
    found: dict[str, str] = json.loads(kept.read_text())
    return found[name]


@dataclass
class UserStage:
    """One open engine with one machine of the user's in it."""

    stage: Stage
    machine: Machine

    def start(self, payload: Any = None) -> str:
        return self.machine.start(f"u-{uuid.uuid4().hex}", payload)

    def run(self, payload: Any = None, timeout: float = 30.0) -> Outcome:
        return self.machine.wait(self.start(payload), timeout)

    def hold(self, payload: Any = None) -> str:
        """Start an execution, and wait until its work runs."""
        arn = self.start(payload)
        work: Any = self.stage.function("work").handler
        assert work.started.wait(PATIENCE_S)
        return arn

    def sessions(self, arn: str) -> list[Item]:
        return [item for item in self.stage.items() if item["pk"]["S"] == f"session#{arn}"]

    def wait_until_parked(self, arn: str) -> None:
        until(
            lambda: any("wakeUpToken" in session for session in self.sessions(arn)),
            20,
            lambda: f"{arn} to park: {self.machine.entered(arn)}",
        )

    def stop(self, arn: str) -> None:
        """Stop an execution, and clean up after it as EventBridge would cause."""
        self.machine.stop(arn)
        detail = {
            "executionArn": arn,
            "stateMachineArn": self.machine.arn,
            "status": "ABORTED",
            "stopDate": time.time_ns() // 1_000_000,
        }
        clean_up.handler({"detail": detail}, None)


def user_stage(stage: Stage, name: str, definition: str) -> UserStage:
    """Put a machine into an open engine."""
    return UserStage(stage, stage.engine.machine(name, definition.replace("${TableName}", stage.table_name)))
