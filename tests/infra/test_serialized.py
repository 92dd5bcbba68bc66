"""A fragment in a user's own state machine, and the permissions that attaching that machine grants."""

import json
import math
import re
import subprocess
import sys
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Aws, CfnParameter, Duration, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from aws_cdk.assertions import Annotations, Match
from constructs import Construct
from kit.stacks import as_list, function, machine
from ticketlock_cdk import HandOver, TicketLock
from ticketlock_cdk.assets import source_folder

pytestmark = pytest.mark.verify("each fragment is a stack; the interpreter runs fragments")

ENTITY, EXPRESSION = "$.order.id", "{% $states.input.order.id %}"
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:work"
JSONATA, DISCARD = sfn.QueryLanguage.JSONATA, sfn.JsonPath.DISCARD


def states(definition):
    for name, state in definition["States"].items():
        yield name, state
        for branch in state.get("Branches", []):
            yield from states(branch)


def attached(lock, scope, chain):
    """A machine with fragments of this lock, and attached to it, as it must be."""
    made = machine(scope, chain=chain)
    lock.attach(made)
    return made


@pytest.fixture
def found_of(stack, synthesise):
    """The states of a machine with one fragment of a lock with these settings."""

    def found(*, protected=None, settings=None, **arguments):
        lock = TicketLock(stack, "Lock", **(settings or {}))
        work = protected or sfn.Pass(stack, "Inspect")
        fragment = lock.serialize(stack, "Ship", work, **{"entity": ENTITY, **arguments})
        workflow = attached(lock, stack, fragment)
        return dict(states(synthesise(stack).definition(workflow)))

    return found


@pytest.fixture(scope="module")
def one_lock(outdir):
    """One for all tests that only ask what is accepted: a lock takes most of their time."""
    return TicketLock(Stack(App(outdir=outdir), "Test"), "Lock")


@pytest.fixture
def scope(one_lock):
    """A place of its own beside that lock."""
    stack = Stack.of(one_lock)
    return Construct(stack, f"Beside{len(stack.node.children)}")


def imported_function(scope):
    return lambda_.Function.from_function_arn(scope, "ImportedFunction", FUNCTION)


def imported_machine(scope):
    arn = "arn:aws:states:eu-west-1:123456789012:stateMachine:child"
    return sfn.StateMachine.from_state_machine_arn(scope, "ImportedMachine", arn)


class OfEachKind:
    """One machine with a fragment of each kind, in the order: chain, function, state machine."""

    def __init__(self, outdir, synthesise, language=sfn.QueryLanguage.JSON_PATH):
        stack = Stack(App(outdir=outdir), "OfEachKind")
        self.lock = TicketLock(stack, "Lock")
        in_jsonata = language is sfn.QueryLanguage.JSONATA

        def serialized(id, protected, entity, **more):
            given = {"entity": EXPRESSION if in_jsonata else entity, **more}
            return self.lock.serialize(stack, id, protected, query_language=language, **given)

        chain = serialized("Chain", sfn.Pass(stack, "Inspect"), ENTITY, lock_path="$.lock")
        invoked = serialized("Function", imported_function(stack), EXPRESSION)
        path, wait = sfn.JsonPath.string_at(ENTITY), Duration.minutes(1)
        started = serialized("Machine", imported_machine(stack), path, namespace="billing", record_wait=wait)
        self.left_out = {"Parked", "NotYet"} if in_jsonata else set()
        self.machine = machine(stack, chain=chain.next(invoked).next(started), query_language=language)
        self.lock.attach(self.machine)
        self.synthesised = synthesise(stack)
        self.definition = self.synthesised.definition(self.machine)
        self.states = dict(states(self.definition))


@pytest.fixture(scope="module")
def of_each_kind(outdir, synthesise):
    return OfEachKind(outdir, synthesise)


@pytest.fixture(scope="module")
def in_jsonata(outdir, synthesise):
    return OfEachKind(outdir, synthesise, JSONATA)


@pytest.fixture(params=["of_each_kind", "in_jsonata"])
def in_either_language(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def written():
    return dict(states(json.loads((source_folder("statemachines") / "serialize.asl.json").read_text())))


def states_of_both(of_each_kind, written):
    """The states that the serialised workflow has too: the name, the name there, and the state."""
    for name, state in of_each_kind.states.items():
        _, _, own = name.partition(".")
        if own in written:
            yield name, own, state


def test_it_has_every_state_of_the_serialised_workflow(in_either_language, written):
    own = in_either_language.left_out | {"TaskNotAllowed", "InvokeFunction", "StartExecution"}
    for id, work in (
        ("Chain", {"TellLock", "Protected"}),
        ("Function", {"InvokeFunction"}),
        ("Machine", {"StartExecution"}),
    ):
        found = {name.removeprefix(f"{id}.") for name in in_either_language.states if name.startswith(f"{id}.")}
        assert found == written.keys() - own | {"Enter", "TakeTicketAgain"} | work


def assert_same(field, found, written, changed=()):
    for name, own, state in states_of_both(found, written):
        if (own, field) not in changed:
            text = json.dumps(written[own].get(field, "nothing")).replace("${Partition}", "<AWS::Partition>")
            assert (name, state.get(field, "nothing")) == (name, json.loads(text))


@pytest.mark.parametrize("field", ["Retry", "TimeoutSeconds", "Resource"])
def test_its_states_are_those_of_the_serialised_workflow(field, in_either_language, written):
    assert_same(field, in_either_language, written)


@pytest.mark.parametrize("field", ["ResultPath", "ResultSelector", "SecondsPath"])
def test_in_jsonpath_they_make_the_same_of_their_results(field, of_each_kind, written):
    changed = {("TakeTicket", "ResultPath"), ("TakeTicket", "ResultSelector")}
    changed |= {(name, "ResultPath") for name in ("InvokeFunction", "StartExecution")}
    assert_same(field, of_each_kind, written, changed)


def test_in_jsonata_each_reads_and_writes_by_expressions_alone(in_jsonata):
    of_jsonpath = {"InputPath", "Parameters", "ResultSelector", "ResultPath", "OutputPath", "Variable"}
    of_jsonpath |= {"SecondsPath", "ErrorPath", "CausePath"}
    assert in_jsonata.definition["QueryLanguage"] == "JSONata"
    for name, state in in_jsonata.states.items():
        fields = {field for part in (state, *state.get("Catch", ()), *state.get("Choices", ())) for field in part}
        assert (name, fields & of_jsonpath) == (name, set())
    # A path that was left.
    assert not re.search(r'\.\$"|"\$|States\.[A-Z]\w+\(', json.dumps(in_jsonata.definition))


def test_in_jsonata_it_is_valid(in_jsonata, tmp_path):
    text = re.sub("<+AWS::Partition>+", "aws", json.dumps(in_jsonata.definition))
    properties = {"RoleArn": "arn:aws:iam::123456789012:role/orders", "DefinitionString": text}
    template = {"Resources": {"Orders": {"Type": "AWS::StepFunctions::StateMachine", "Properties": properties}}}
    (tmp_path / "orders.json").write_text(json.dumps(template))
    lint = [str(Path(sys.executable).with_name("cfn-lint")), "--", str(tmp_path / "orders.json")]
    linted = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_its_errors_are_caught_as_those_of_the_serialised_workflow(in_either_language, written):
    for name, own, state in states_of_both(in_either_language, written):
        prefix = name.removesuffix(own)
        caught = []
        for catch in written[own].get("Catch", []):
            then = catch["Next"]
            # The Catch itself reads the turn.
            then = written[then]["Next"] if then in in_either_language.left_out else then
            caught.append((catch["ErrorEquals"], prefix + then))
        assert [(catch["ErrorEquals"], catch["Next"]) for catch in state.get("Catch", [])] == caught


def test_every_state_says_why_it_exists_and_every_task_has_a_time_out(in_either_language):
    found = in_either_language.states
    assert [name for name, state in found.items() if "." in name and not state.get("Comment")] == []
    tasks = {name: state for name, state in found.items() if state["Type"] == "Task"}
    assert [name for name, state in tasks.items() if not state.get("TimeoutSeconds")] == []
    # Nothing is left to substitute.
    assert "${" not in json.dumps(in_either_language.definition)


def test_a_path_names_the_entity_and_each_entry_is_an_owner(of_each_kind):
    for id, namespace, more in (("Chain", "default", {}), ("Machine", "billing", {"recordWaitSeconds": 60})):
        enter = of_each_kind.states[f"{id}.Enter"]
        assert "QueryLanguage" not in enter
        assert enter["Parameters"] == {
            "payload.$": "$",
            "lock": {
                "request": {"entity.$": ENTITY, "namespace": namespace, **more},
                "place.$": f"States.Format('{id}/{{}}', States.UUID())",
            },
        }


# What is asked for in each entry, by the arguments.
ASKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"shared": False}, {}),
    ({"shared": True}, {"shared": True}),
    ({"permits": 3}, {"permits": 3}),
    ({"record_wait": math.inf}, {"recordWaitSeconds": "Infinity"}),
    ({"record_wait": "Infinity"}, {"recordWaitSeconds": "Infinity"}),
    ({"record_wait": 1.5}, {"recordWaitSeconds": 1.5}),
    ({"permits": "$.seats", "shared": "$.reads"}, {"permits.$": "$.seats", "shared.$": "$.reads"}),
    ({"permits": sfn.JsonPath.number_at("$.seats")}, {"permits.$": "$.seats"}),
]


def in_a_row(lock, stack, given):
    """Fragments with these arguments, one after the other in a machine: ``Ship0``, ``Ship1``, ..."""
    fragments = [
        lock.serialize(stack, f"Ship{number}", sfn.Pass(stack, f"Inspect{number}"), **{"entity": ENTITY, **arguments})
        for number, arguments in enumerate(given)
    ]
    return fragments, attached(lock, stack, reduce(sfn.Chain.next, fragments[1:], sfn.Chain.start(fragments[0])))


def test_how_long_it_waits_and_with_whom_it_may_hold_is_asked_for(stack, synthesise):
    lock = TicketLock(stack, "Lock", permits=7)
    _, workflow = in_a_row(lock, stack, [arguments for arguments, _ in ASKED])
    found = dict(states(synthesise(stack).definition(workflow)))
    for number, (arguments, asked) in enumerate(ASKED):
        request = found[f"Ship{number}.Enter"]["Parameters"]["lock"]["request"]
        assert (arguments, request) == (arguments, {"entity.$": ENTITY, "namespace": "default", **asked})
        # For a request without a value.
        assert found[f"Ship{number}.TakeTicket"]["Parameters"]["Payload"]["defaultPermits"] == 7


def test_where_the_payload_gets_the_lock_may_be_a_path_of_the_cdk(found_of):
    assert found_of(lock_path=sfn.JsonPath.string_at("$.a.lock"))["Ship.TellLock"]["ResultPath"] == "$.payload.a.lock"


def test_an_expression_may_say_whether_the_lock_is_shared(found_of):
    entity, shared = "{% $states.input.id %}", "{% $states.input.reads %}"
    request = {"entity": entity, "namespace": "default", "permits": 1, "shared": shared}
    found = found_of(entity=entity, shared=shared, permits=1)
    assert found["Ship.Enter"]["Output"]["lock"]["request"] == request


def test_an_expression_names_the_entity_and_each_entry_is_an_owner(of_each_kind):
    enter = of_each_kind.states["Function.Enter"]
    assert (enter["Type"], enter["QueryLanguage"]) == ("Pass", "JSONata")
    assert enter["Output"] == {
        "payload": "{% $states.input %}",
        "lock": {
            "request": {"entity": "{% $states.input.order.id %}", "namespace": "default"},
            "place": "{% 'Function/' & $uuid() %}",
        },
    }


def test_no_other_state_is_in_jsonata_but_a_protected_one_may_be(of_each_kind, stack, found_of):
    assert [name for name, state in of_each_kind.states.items() if "QueryLanguage" in state] == ["Function.Enter"]
    found = found_of(protected=sfn.Pass.jsonata(stack, "Inspect", outputs="{% $states.input %}"))
    assert found["Inspect"]["QueryLanguage"] == "JSONata"


@pytest.mark.parametrize(
    ("attach", "message"),
    [
        (lambda lock: lock.attach("arn"), "machine is 'arn'; allowed: a StateMachine of this app, as a construct"),
        (lambda lock: lock.attach(None), "machine is None; allowed: a StateMachine of this app"),
        (lambda lock: lock.attach_durable("name"), "function is 'name'; allowed: a durable function of this app"),
        (lambda lock: lock.grant_use("arn"), "grantee is 'arn'; allowed: a function, state machine, role, user or"),
    ],
    ids=["a machine's ARN", "nothing", "a function's name", "a principal's ARN"],
)
def test_what_is_no_construct_is_not_attached_nor_granted_to(attach, message, one_lock):
    with pytest.raises(ValueError, match="allowed: ") as refused:
        attach(one_lock)
    assert str(refused.value).startswith(message)


def test_an_imported_machine_cannot_be_attached(stack):
    with pytest.raises(ValueError, match="machine is Test/ImportedMachine, which is imported; allowed: one of this"):
        TicketLock(stack, "Lock").attach(imported_machine(stack))


def test_the_longest_id_makes_names_of_states_that_aws_takes(stack, synthesise):
    lock = TicketLock(stack, "Lock")
    id = "Ship-the_order. " + 34 * "x"
    fragment = lock.serialize(stack, id, sfn.Pass(stack, "Inspect"), entity="e").to_single_state()
    workflow = attached(lock, stack, fragment)
    names = [name for name, _ in states(synthesise(stack).definition(workflow))]
    assert id in names
    # https://docs.aws.amazon.com/step-functions/latest/dg/statemachine-structure.html
    assert max(map(len, names)) <= 80


@pytest.mark.parametrize(
    ("outputs", "output"),
    [({}, "{% $states.result[0] %}"), ({"outputs": {"all": "{% $states.result %}"}}, {"all": "{% $states.result %}"})],
)
@pytest.mark.parametrize("of_its_own", [True, False], ids=["the fragment's language", "the state's own"])
def test_one_state_in_jsonata_has_the_fragments_output_or_the_one_that_is_given(
    of_its_own, outputs, output, stack, synthesise
):
    lock = TicketLock(stack, "Lock")
    language = JSONATA if of_its_own else sfn.QueryLanguage.JSON_PATH
    fragment = lock.serialize(stack, "Ship", sfn.Pass(stack, "Inspect"), entity="e", query_language=language)
    options = outputs if of_its_own else {"query_language": JSONATA, **outputs}
    workflow = attached(lock, stack, fragment.to_single_state(**options))
    found = synthesise(stack).definition(workflow)["States"]["Ship"]
    assert {name: found[name] for name in found if name not in ("Branches", "Type", "End")} == {
        "QueryLanguage": "JSONata",
        "Output": output,
    }


def test_one_state_assigns_of_the_fragments_output_and_has_that_output(stack, synthesise):
    """The interpreter has no variables."""
    lock = TicketLock(stack, "Lock")
    fragment = lock.serialize(stack, "Ship", sfn.Pass(stack, "Inspect"), entity=ENTITY)
    workflow = attached(lock, stack, fragment.to_single_state(assign={"total.$": "$[0].total"}))
    found = synthesise(stack).definition(workflow)["States"]["Ship"]
    assert (found["Assign"], found["OutputPath"]) == ({"total.$": "$[0].total"}, "$[0]")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_path": "$.paid"}, "output_path is '$.paid', and $ is a list with the fragment's one output"),
        ({"output_path": "$['paid']"}, "and $ is a list with the fragment's one output"),
        ({"output_path": "$[1].paid"}, "output_path is '$[1].paid', and $ is a list"),
        ({"output_path": "$.paid[*]"}, "output_path is '$.paid[*]', and $ is a list"),
        ({"result_path": "$['a'].b", "output_path": "$.a.b.c"}, "and $.a.b is a list"),
        ({"result_path": DISCARD, "output_path": "$[0]"}, "output_path is '$[0]', and $ is an object"),
        ({"result_path": "$[0]"}, "result_path is '$[0]', and $ is an object"),
        ({"entity": "e", "lock_path": "$.a", "result_path": "$[0]"}, "result_path is '$[0]', and $ is an object"),
        ({"entity": "e", "input_path": "$.a", "result_path": "$[0]"}, "result_path is '$[0]', and $ is an object"),
        ({"entity": "e", "parameters": {"a": [{"b.$": "$.b"}]}, "result_path": "$[0]"}, "and $ is an object"),
        ({"result_selector": {"a.$": "$"}, "output_path": "$.b"}, "output_path is '$.b', and $ has only a; allowed"),
        ({"result_selector": {"a.$": "$"}, "output_path": "$.a.b"}, "and $.a is a list"),
        ({"result_selector": {"a.$": "$[0]"}, "assign": {"b.$": "$.b"}}, "assign has '$.b', and $ has only a"),
        ({"result_selector": {"by": {"id.$": "$.id"}}}, "result_selector has '$.id', and $ is a list"),
        ({"result_selector": {"all": [{"id": sfn.JsonPath.string_at("$.id")}]}}, "result_selector has '$.id'"),
        ({"result_selector": {"id.$": "States.Format('{}', $.id)"}}, 'result_selector has "States.Format('),
        ({"assign": {"paid.$": "$.paid"}}, "assign has '$.paid', and $ is a list"),
        ({"result_path": "$.payment", "output_path": "$[0]"}, "output_path is '$[0]', and $ is an object"),
        ({"result_selector": {"id.$": "$[0].id"}, "output_path": "$[0]"}, "output_path is '$[0]', and $ is an object"),
        ({"query_language": JSONATA, "result_path": "$.a"}, "result_path is '$.a', and query_language is JSONata"),
        ({"outputs": "{% 1 %}"}, "outputs is '{% 1 %}', and the state is in JSONPath"),
    ],
)
def test_an_option_of_one_state_that_would_fail_after_the_work_is_refused(options, message, one_lock, scope):
    with pytest.raises(ValueError, match="allowed") as refused:
        as_single_state(one_lock, scope, **options)
    assert message in str(refused.value)


def as_single_state(lock, scope, entity=ENTITY, lock_path=None, **options):
    fragment = lock.serialize(scope, "Ship", sfn.Pass(scope, "Inspect"), entity=entity, lock_path=lock_path)
    single = fragment.to_single_state(**options)
    attached(lock, scope, single)
    return single


@pytest.mark.parametrize(
    "options",
    [
        {"output_path": "$..paid"},
        {"output_path": "$.length()"},
        {"output_path": "$$.Execution.Id"},
        {"output_path": "$paid.today"},
        {"output_path": DISCARD},
        {"output_path": "$[-1]"},
        {"output_path": "$[1][*]"},
        {"result_selector": {"text.$": "States.Format('$.id {}', $[0].id)"}},
        {"result_selector": {"a.$": "$[0]"}, "output_path": "$.a.b[0]"},
        {"result_selector": {"a.$": "$[0]"}, "result_path": "$.b", "output_path": "$.a"},
        {"result_selector": {"a.$": "$[0]"}, "assign": {"b.$": "$.a"}},
        {"result_path": "$.payment[0]", "output_path": "$.payment[0].paid"},
        {"result_path": DISCARD, "output_path": "$.order[0]"},
        # The payload may be a list.
        {"entity": "e", "result_path": DISCARD, "output_path": "$[0]"},
        {"entity": "{% $states.input.id %}", "result_path": DISCARD, "output_path": "$[0]"},
        {"entity": "e", "result_path": "$[0]"},
        {"entity": "$.id", "parameters": {"id": 7}, "result_path": "$[0]"},
    ],
)
def test_a_path_that_a_list_or_a_payload_may_have_is_accepted(options, one_lock, scope):
    assert as_single_state(one_lock, scope, **options)


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"assign": {"t": "$[0].t"}}, "assign has the text '$[0].t', the same in every execution; $[ in it"),
        ({"assign": {"a": [{"t": "{% $states.result[0].t %}"}]}}, "assign has the text '{% $states"),
        ({"result_selector": {"t": "{{ t }}"}}, "result_selector has the text '{{ t }}'"),
        ({"result_selector": {"t": sfn.JsonPath.string_at("$[0].t"), "u": "all", "v": Aws.REGION}}, None),
        ({"parameters": {"text": "{name}"}}, None),
        ({"query_language": JSONATA, "assign": {"t": "{% $states.result[0].t %}"}}, None),
    ],
)
def test_a_constant_like_a_path_or_an_expression_brings_a_warning(options, warned, stack):
    as_single_state(TicketLock(stack, "Lock"), stack, **options)
    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("the same in every execution"))
    assert [warned in str(each.entry.data) for each in found] == ([] if warned is None else [True])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": "x" * 51}, "allowed: 1 to 50 letters"),
        ({"id": "it's"}, 'id is "it\'s"; allowed: 1 to 50 letters'),
        ({"entity": 7.5}, "entity is 7.5; allowed: text"),
        ({"record_wait": -1}, "recordWaitSeconds is -1"),
        ({"record_wait": math.nan}, "recordWaitSeconds is NaN"),
        ({"record_wait": timedelta(minutes=5)}, "record_wait is datetime.timedelta(seconds=300); allowed: a Duration"),
        ({"record_wait": -math.inf}, "recordWaitSeconds is -Infinity"),
        ({"permits": math.inf}, "permits is Infinity"),
        ({"permits": 0}, "permits is 0; allowed: a whole number from 1 to 100"),
        ({"shared": 1}, "shared is 1; allowed: true or false"),
        ({"shared": True, "permits": 2}, "permits is 2; allowed: 1, because `shared` is true"),
        (
            {"entity": "{% $states.input.id %}", "shared": "$.reads"},
            "shared is a path, and another field is in JSONata",
        ),
        (
            {"entity": "{% $states.input.id %}", "namespace": "$.tenant"},
            "namespace is a path, and another field is in JSONata",
        ),
        ({"entity": "{% $states.input.id %}", "record_wait": "States.MathAdd($.a, 1)"}, "recordWaitSeconds is a path"),
        (
            {"entity": sfn.JsonPath.string_at("$.a"), "namespace": "{% 'a' %}"},
            "entity is a path, and another field is in JSONata",
        ),
        (
            {"query_language": "JSONata"},
            "query_language is 'JSONata'; allowed: sfn.QueryLanguage.JSON_PATH or .JSONATA",
        ),
        ({"query_language": JSONATA, "entity": ENTITY}, "entity is a path, and the fragment is in JSONata"),
        ({"query_language": JSONATA, "permits": sfn.JsonPath.number_at("$.a")}, "permits is a path, and the fragment"),
        ({"lock_path": "$"}, "lock_path is '$'; allowed: a path of names"),
        ({"lock_path": "lock"}, "lock_path is 'lock'; allowed"),
        ({"protected": None}, "protected is None; allowed: states, a function or a Standard state machine"),
        ({"protected": FUNCTION}, "protected is 'arn"),
    ],
)
def test_an_invalid_argument_is_refused_by_name(arguments, message, one_lock, scope):
    given = {"scope": scope, "id": "Ship", "protected": sfn.Pass(scope, "Inspect"), "entity": "e", **arguments}
    with pytest.raises(ValueError, match="allowed") as refused:
        one_lock.serialize(**given)
    assert message in str(refused.value)


class WiredLater:
    """Ways to wire the states that a fragment protects, after ``serialize`` was called: each is a method here."""

    def __init__(self, stack, language):
        self.stack, self._language = stack, language

    def state(self, name):
        return sfn.Pass(self.stack, name, query_language=self._language)

    def task(self, name):
        """A state whose failure can be caught."""
        service = {"service": "s3", "action": "listBuckets", "iam_resources": ["*"], "query_language": self._language}
        return tasks.CallAwsService(self.stack, name, **service)

    def several(self, name):
        return sfn.Parallel(self.stack, name, query_language=self._language).branch(self.state(f"In {name}"))

    def one_by_one(self):
        protected = self.state("First")
        yield protected
        protected.next(self.state("Second"))

    def next_several(self):
        protected = self.state("Look")
        yield protected
        protected.next(self.several("Ship and bill"))

    def several_of_a_choice(self):
        protected = sfn.Choice(self.stack, "Way", query_language=self._language)
        yield protected
        each = sfn.Map(self.stack, "Lines", query_language=self._language).item_processor(self.state("Line"))
        in_jsonata = sfn.Condition.jsonata("{% true %}")
        present = sfn.Condition.is_present("$.id")
        protected.when(in_jsonata if self._language is JSONATA else present, each).otherwise(self.state("Nothing"))

    def several_after_a_failure(self):
        protected = self.task("Charge")
        yield protected
        protected.add_catch(self.several("Repair and tell"))


@pytest.mark.parametrize("language", sfn.QueryLanguage)
def test_whether_states_run_beside_a_failed_one_is_known_of_states_that_are_wired_later(language, stack, synthesise):
    lock, ways = TicketLock(stack, "Lock"), WiredLater(stack, language)
    of_ways, fragments = [], []
    for name in ("one_by_one", "next_several", "several_of_a_choice", "several_after_a_failure"):
        of_ways.append(getattr(ways, name)())
        given = {"entity": "e", "query_language": language}
        fragment = lock.serialize(stack, name, next(of_ways[-1]), **given)
        fragments.append(fragment.to_single_state() if name == "next_several" else fragment)
    for way in of_ways:
        assert list(way) == []
    chain = reduce(sfn.Chain.next, fragments[1:], sfn.Chain.start(fragments[0]))
    workflow = machine(stack, chain=chain, query_language=language)
    lock.attach(workflow)
    told = {
        name.removesuffix(".ReleaseAfterFailure"): (state.get("Parameters") or state["Arguments"])["Payload"]["kind"]
        for name, state in states(synthesise(stack).definition(workflow))
        if name.endswith(".ReleaseAfterFailure")
    }
    several = "concurrent"
    assert told == {
        "one_by_one": "chain",
        "next_several": several,
        "several_of_a_choice": several,
        "several_after_a_failure": several,
    }


def test_values_that_are_known_only_at_deploy_time_are_accepted(stack, found_of):
    found = found_of(namespace=CfnParameter(stack, "Tenant").value_as_string)
    assert found["Ship.Enter"]["Parameters"]["lock"]["request"] == {"entity.$": ENTITY, "namespace": "<Tenant>"}


def test_an_express_machine_is_refused_as_work_and_as_the_machine(stack):
    lock, express = TicketLock(stack, "Lock"), machine(stack, state_machine_type=sfn.StateMachineType.EXPRESS)
    with pytest.raises(ValueError, match="protected is Test/Workflow, an Express state machine"):
        lock.serialize(stack, "Ship", express, entity="e")
    with pytest.raises(ValueError, match="machine is Test/Workflow, an Express state machine"):
        lock.attach(express)


def test_without_heartbeat_a_chain_is_refused_as_nothing_bounds_its_time(stack):
    lock = TicketLock(stack, "Lock", heartbeat=False)
    with pytest.raises(ValueError, match="protected is a chain of states; allowed with heartbeat=False"):
        lock.serialize(stack, "Ship", sfn.Pass(stack, "Inspect"), entity="e")


def test_without_heartbeat_the_work_has_the_time_out_that_the_lease_bounds(stack, synthesise):
    lock = TicketLock(stack, "Lock", heartbeat=False, lease=Duration.seconds(30))
    invoked = lock.serialize(stack, "Function", imported_function(stack), entity="e")
    started = lock.serialize(stack, "Machine", imported_machine(stack), entity="e")
    workflow = attached(lock, stack, invoked.next(started))
    found = dict(states(synthesise(stack).definition(workflow)))
    # Three quarters of the lease, less 5 s.
    assert [found[name]["TimeoutSeconds"] for name in ("Function.InvokeFunction", "Machine.StartExecution")] == [17, 17]
    assert not [name for name in found if "Heartbeat" in name or "Hold" in name]


# The permissions that attaching grants.


def granted(synthesised, construct):
    """Action to the resources on which it is allowed."""
    allowed: dict[str, list[object]] = {}
    for statement in synthesised.statements(construct):
        for action in as_list(statement["Action"]):
            allowed.setdefault(action, []).extend(as_list(statement["Resource"]))
    return allowed


def test_the_machine_has_the_permissions_of_its_states_and_no_others_and_writes_sessions_only(of_each_kind):
    found, lock = of_each_kind.synthesised, of_each_kind.lock
    allowed = granted(found, of_each_kind.machine)
    own = [lock.take_ticket, lock.wait_for_wake_up, lock.check_position, lock.heartbeat, lock.release]
    by_alias = {f"<{id}>" for id in found.of_type("AWS::Lambda::Alias")}
    invoked = {found.text(resource) for resource in allowed["lambda:InvokeFunction"]}
    # The CDK's own grant for a function in a state of the user's has its versions too.
    assert invoked == {f"<{found.id_of(function)}>" for function in own} | by_alias | {FUNCTION, f"{FUNCTION}:*"}
    assert set(allowed) == {
        "dynamodb:UpdateItem",
        "events:DescribeRule",
        "events:PutRule",
        "events:PutTargets",
        "lambda:InvokeFunction",
        "states:DescribeExecution",
        "states:StartExecution",
        "states:StopExecution",
    }
    continues = lock.node.find_child("Serialize").node.find_child("Continue")
    assert {"Ref": found.id_of(continues)} in allowed["states:StartExecution"]
    [statement] = [each for each in found.statements(of_each_kind.machine) if "dynamodb:" in str(each)]
    assert statement["Resource"] == {"Fn::GetAtt": [found.id_of(lock.table), "Arn"]}
    assert statement["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["session#*"]}}


@pytest.mark.parametrize("step", ["wait_for_wake_up", "check_position", "heartbeat", "release", "clean_up"])
def test_a_step_may_answer_tasks_of_the_machine(step, of_each_kind):
    allowed = granted(of_each_kind.synthesised, getattr(of_each_kind.lock, step))
    attached_one = {"Ref": of_each_kind.synthesised.id_of(of_each_kind.machine)}
    assert attached_one in allowed["states:SendTaskSuccess"]
    assert (attached_one in allowed.get("states:SendTaskFailure", [])) == (step in ("heartbeat", "release"))


def test_the_clean_up_may_describe_the_machines_executions_and_close_the_work_that_it_started(of_each_kind):
    found = of_each_kind.synthesised
    allowed = granted(found, of_each_kind.lock.clean_up)
    described = [found.text(resource) for resource in allowed["states:DescribeExecution"]]
    assert [text for text in described if text.endswith(f"<{found.id_of(of_each_kind.machine)}>>:*")]
    closed = [found.text(resource) for resource in allowed["states:StopExecution"]]
    assert "arn:aws:states:eu-west-1:123456789012:execution:child:lock-*" in closed


@pytest.mark.parametrize("is_imported", [False, True], ids=["of the app", "imported"])
def test_a_step_and_a_client_may_use_the_key_of_an_encrypted_machine(is_imported, stack, synthesise):
    arn = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    key = kms.Key.from_key_arn(stack, "Key", arn) if is_imported else kms.Key(stack, "Key")
    lock = TicketLock(stack, "Lock")
    fragment = lock.serialize(stack, "Ship", sfn.Pass(stack, "Inspect"), entity="e")
    configuration = sfn.CustomerManagedEncryptionConfiguration(key)
    lock.attach(machine(stack, chain=fragment, state_machine_name="mine", encryption_configuration=configuration))
    client = function(stack, "Client")
    lock.grant_use(client)
    found = synthesise(stack)
    steps = (lock.take_ticket, lock.wait_for_wake_up, lock.check_position, lock.heartbeat, lock.release, lock.clean_up)
    for step in (*steps, client):
        allowed = granted(found, step)
        assert allowed["kms:GenerateDataKey"] == [arn if is_imported else {"Fn::GetAtt": [found.id_of(key), "Arn"]}]
        assert allowed["kms:Decrypt"] == allowed["kms:GenerateDataKey"]


def test_the_machines_ends_are_cleaned_up(of_each_kind):
    found = of_each_kind.synthesised
    rules = found.of_type("AWS::Events::Rule").values()
    [rule] = [
        rule
        for rule in rules
        if {"Ref": found.id_of(of_each_kind.machine)} in rule["EventPattern"]["detail"]["stateMachineArn"]
    ]
    assert rule["EventPattern"]["detail"]["status"] == ["FAILED", "TIMED_OUT", "ABORTED"]
    [target] = rule["Targets"]
    assert target["Arn"] == {"Fn::GetAtt": [found.id_of(of_each_kind.lock.clean_up), "Arn"]}
    assert target["DeadLetterConfig"]["Arn"] == {
        "Fn::GetAtt": [found.id_of(of_each_kind.lock.dead_letter_queue), "Arn"]
    }


def test_a_machine_that_is_never_woken_does_not_park(found_of):
    assert not [name for name in found_of(settings={"hand_over": HandOver.POLL}) if "WaitForWakeUp" in name]


@pytest.mark.parametrize(
    ("snap_start", "language"),
    [(False, sfn.QueryLanguage.JSON_PATH), (True, sfn.QueryLanguage.JSON_PATH), (False, JSONATA)],
    ids=["no snapshots", "snap_start", "in JSONata"],
)
def test_a_machine_with_a_fragment_that_was_never_attached_fails_the_synthesis(snap_start, language, outdir):
    app = App(outdir=outdir)
    stack, other = Stack(app, "Locks"), Stack(app, "Orders")
    lock = TicketLock(stack, "Lock", snap_start=snap_start)
    attached(lock, stack, lock.serialize(stack, "Bill", sfn.Pass(stack, "Inspect"), entity="e"))
    for scope in (stack, other):
        fragment = lock.serialize(scope, "Ship", sfn.Pass(scope, "Nothing"), entity="e", query_language=language)
        machine(scope, "Forgotten", fragment)
    with pytest.raises(RuntimeError, match="was never attached") as refused:
        app.synth()
    told = [line.strip() for line in str(refused.value).splitlines() if "never attached" in line]
    why = "has fragments of Locks/Lock (Ship) and was never attached: call attach(machine) of that lock"
    assert told == [f"[Locks/Lock] state machine {name}/Forgotten {why}" for name in ("Locks", "Orders")]


def test_attaching_a_machine_once_more_changes_nothing(stack, synthesise):
    lock = TicketLock(stack, "Lock")
    workflow = attached(lock, stack, lock.serialize(stack, "Ship", sfn.Pass(stack, "Inspect"), entity="e"))
    once = synthesise(stack).template
    lock.attach(workflow)
    assert synthesise(stack).template == once


def test_a_machine_may_have_fragments_of_several_locks(stack, synthesise):
    locks = [TicketLock(stack, name) for name in ("Orders", "Customers")]
    inner = locks[0].serialize(stack, "Order", sfn.Pass(stack, "Inspect"), entity=ENTITY)
    workflow = machine(stack, chain=locks[1].serialize(stack, "Customer", inner, entity="$.customer"))
    for lock in locks:
        lock.attach(workflow)
    found = synthesise(stack)
    rules = [rule for rule in found.of_type("AWS::Events::Rule").values() if found.id_of(workflow) in str(rule)]
    assert len(rules) == 2


def test_a_machine_may_be_in_another_stack(outdir):
    app = App(outdir=outdir)
    lock = TicketLock(Stack(app, "Locks"), "Lock")
    other = Stack(app, "Orders")
    fragment = lock.serialize(other, "Ship", sfn.Pass(other, "Inspect"), entity=ENTITY)
    bill = lock.serialize(other, "Bill", machine(other, "Own"), entity=ENTITY)
    attached(lock, other, fragment.next(bill))
    assembly = app.synth()
    # The machine's stack needs the lock's, and not the other way round.
    needed = {stack.stack_name: [each.id for each in stack.dependencies] for stack in assembly.stacks}
    assert [name for name in needed["Orders"] if name == "Locks"] == ["Locks"]
    assert "Orders" not in needed["Locks"]


def warnings_of(stack, *entities, field="entity"):
    """What the synthesis of a machine with a fragment for each entity warns of, by entity; or for another field."""
    fragments, _ = in_a_row(TicketLock(stack, "Lock"), stack, [{field: entity} for entity in entities])
    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("one lock for every execution"))
    warned = {each.id: str(each.entry.data) for each in found}
    paths = [f"/{fragment.node.path}" for fragment in fragments]
    return {entity: warned[path] for entity, path in zip(entities, paths, strict=True) if path in warned}


def test_an_entity_like_a_path_without_its_root_brings_a_warning(stack):
    entities = ["order.id", "detail.order_id", "orders[0].id", "orders[0]"]
    entities += ["order['id']", 'order["id"]', "['id']", ".id", "@.id", "id", "order_id", "orderId"]
    warnings = warnings_of(stack, *entities)
    assert list(warnings) == entities
    assert "$.order.id, or {% $states.input.order.id %}" in warnings["order.id"]
    assert "$['id'], or {% $states.input['id'] %}" in warnings["['id']"]


TEMPLATES = {
    "order-{order_id}": "{order_id}",
    "{order_id}": "{order_id}",
    "{{ order.id }}": "{{",
    "${id}": "{id}",
    "order-${id}": "{id}",
    "$(id)": "$(",
    "order-$.id": "$.",
    "order-$id": "$i",
    "$states.input.id": "$s",
    "{% $states.input.id": "{%",
    "order-{% $states.input.id %}": "{%",
    " {% $states.input.id %}": "{%",
    "order-States.Format('{}', $.id)": "States.Format(",
    "order-%s": "%s",
    "order-%(id)s": "%(id)s",
    "order-%05d": "%05d",
    "order-%i": "%i",
    "order-%ID%": "%ID%",
    "<id>": "<id>",
    "<order.id>": "<order.id>",
    "<order-id>": "<order-id>",
    "<order id>": "<order id>",
    "order-<%= id %>": "<%= id %>",
    "order-[[id]]": "[[",
    "/orders/:id": "/:id",
    "order-:id": "-:id",
    "#id": "#id",
    "order-@orderId": "@orderId",
    "order-$1": "$1",
    "'order-' + id": "'order-' +",
    '"order-" & id': '"order-" &',
    "id + '-order'": "+ '-order'",
    f"{Aws.STACK_NAME}-{{id}}": "{id}",
}


def test_an_entity_like_a_template_brings_a_warning(stack):
    warnings = warnings_of(stack, *TEMPLATES)
    assert list(warnings) == list(TEMPLATES)
    assert all(
        f"; {TEMPLATES[entity]} in it is not replaced: write $.order.id" in warnings[entity] for entity in warnings
    )


def test_a_namespace_like_a_template_brings_a_warning(stack):
    namespaces = ["tenant-{tenant}", "prod.eu", "$.tenant"]
    assert list(warnings_of(stack, *namespaces, field="namespace")) == namespaces[:1]


def test_a_path_within_other_text_fails_the_synthesis(stack):
    lock = TicketLock(stack, "Lock")
    entity = f"order-{sfn.JsonPath.string_at('$.id')}"
    with pytest.raises(RuntimeError, match="cannot concatenate"):
        machine(stack, chain=lock.serialize(stack, "Pay", sfn.Pass(stack, "Charge"), entity=entity))


def test_no_other_entity_brings_one(stack):
    texts = ["the-warehouse", "partner-7", "nightly", "v1.2", "order-42.pdf", "grid", Aws.STACK_NAME]
    texts += ["a@b.c", "user@host", "@ann", "C#", "#42", "#general", "order:42", "50%", "a%20b", "$100", "US$1"]
    texts += ["a - b", "Q&A", "R&D", "C++", "a<b", "a[0]b", "it's & more", "the boys' & girls'"]
    paths = ["$.order.id", "$$.Execution.Input.order", "States.Format('{}', $.id)", "{% $states.input.order.id %}"]
    assert warnings_of(stack, *texts, *paths, sfn.JsonPath.string_at("$.order.id")) == {}
