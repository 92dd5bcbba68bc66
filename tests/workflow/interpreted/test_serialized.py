"""Fragments in a user's own state machine, executed: the CDK's definition, with real handlers and a real table."""

import time
from typing import Any

import pytest
from kit.interpreter.harness import PATIENCE_S, Work, until
from ticketlock_cdk.lock.settings import HandOver
from ticketlock_cdk.lock.single_state import parallel_options
from workflow.interpreted.conftest import ENTITY, OpenUser, StockMissing, both
from workflow.interpreted.user_machine import REFUSED_STATES, SINGLE_STATE_MACHINES, USER_LEASE_S, UserStage

pytestmark = pytest.mark.verify(
    "moto's interpreter waits in real time; `make test` asks the ways that most executions take"
)

CALLBACK, POLL = HandOver.CALLBACK, HandOver.POLL


def echo(event: Any, _context: Any) -> Any:
    return event


# No null among them: the interpreter would invoke the function without an event.
PAYLOADS: list[Any] = [
    {"order": 42, "lines": [{"sku": "tea"}], "none": None},
    {"lock": "mine", "payload": [1], "failure": {"Error": "E"}, "task": {}, "ignored": 1, "heartbeatEnd": 2},
    {},
    [1, [2], None],
    [],
    "text",
    "",
    0,
    False,
]


@pytest.mark.parametrize("name", [*both("chain"), *both("function"), "caught"])
def test_the_payload_arrives_at_the_work_and_leaves_it_untouched(open_user: OpenUser, name: str) -> None:
    user = open_user(name, {"work": echo})
    outcomes = [user.run(payload) for payload in PAYLOADS]
    assert [(outcome.status, outcome.output) for outcome in outcomes] == [("SUCCEEDED", each) for each in PAYLOADS]
    assert [run.event for run in user.stage.engine.invocations_of("work")] == PAYLOADS
    assert user.stage.is_free(ENTITY)


@pytest.mark.parametrize("name", both("passing"))
def test_states_without_a_task_see_every_payload_untouched(open_user: OpenUser, name: str) -> None:
    user = open_user(name)
    payloads = [*PAYLOADS, None]
    outcomes = [user.run(payload) for payload in payloads]
    assert [(outcome.status, outcome.output) for outcome in outcomes] == [("SUCCEEDED", each) for each in payloads]


@pytest.mark.parametrize("name", both("by_path"))
def test_entity_namespace_and_record_wait_come_from_the_payload_and_the_work_gets_the_lock(
    open_user: OpenUser, name: str
) -> None:
    work = Work()
    user = open_user(name, work)
    payload = {"order": {"id": "tea", "size": 2}, "tenant": "shop", "patience": 5}
    arn = user.start(payload)
    assert user.machine.wait(arn).output == "done"
    event = work.runs[0].event
    lock = event["order"].pop("lock")
    assert event == payload
    assert (lock["entity"], lock["namespace"], set(lock)) == (
        "tea",
        "shop",
        {"entity", "namespace", "owner", "fencingToken"},
    )
    assert lock["owner"].startswith(f"{arn}/Locked/")
    assert isinstance(lock["fencingToken"], int)


@pytest.mark.parametrize("name", both("by_path"))
def test_a_path_that_leads_to_no_text_fails_by_name_and_writes_nothing(open_user: OpenUser, name: str) -> None:
    user = open_user(name)
    outcome = user.run({"order": {"id": 7.5}, "tenant": "shop", "patience": "Infinity"})
    assert (outcome.status, outcome.error) == ("FAILED", "InvalidLockRequest")
    assert (outcome.cause or "").startswith("entity is 7.5")
    assert user.stage.items() == []


def test_an_expression_that_finds_nothing_fails_the_state_and_writes_nothing(open_user: OpenUser) -> None:
    user = open_user("by_path_in_jsonata")
    outcome = user.run({"order": {"id": "tea"}, "patience": 5})
    assert (outcome.status, outcome.error) == ("FAILED", "States.QueryEvaluationError")
    assert "$states.input.tenant" in (outcome.cause or "")
    assert user.stage.items() == []


@pytest.mark.parametrize("payload", ["tea", None, [{"id": "tea"}]])
def test_an_expression_puts_the_lock_into_an_object_alone(open_user: OpenUser, payload: Any) -> None:
    work = Work()
    user = open_user("repeated_in_jsonata", work)
    outcome = user.run(payload)
    assert (outcome.status, outcome.error) == ("FAILED", "States.QueryEvaluationError")
    assert work.runs == []


def test_an_entity_may_be_made_of_several_values(open_user: OpenUser) -> None:
    user = open_user("by_name")
    arn = user.start({"order": "tea"})
    assert user.machine.wait(arn).status == "SUCCEEDED"
    assert user.stage.is_free(f"tea/{arn.rpartition(':')[2]}")


def releases(user: UserStage) -> list[Any]:
    return [invocation.event for invocation in user.stage.engine.invocations_of("Release")]


@pytest.mark.always("the way that most executions take")
def test_a_fragment_and_the_serialised_workflow_share_one_queue(open_user: OpenUser, work: Work) -> None:
    after = Work()
    user = open_user("chain", {"work": work, "after": after})
    first = user.hold()
    second = user.stage.start(ENTITY, function="after")
    user.stage.wait_until_parked(second)
    work.finish.set()
    assert user.machine.wait(first).status == "SUCCEEDED"
    assert user.stage.machine.wait(second).status == "SUCCEEDED"
    assert work.runs[0].ended <= after.runs[0].started


def test_two_fragments_follow_each_other(open_user: OpenUser) -> None:
    user = open_user("two", {"work": echo})
    payload = {"first": "a", "second": "b"}
    arn = user.start(payload)
    assert user.machine.wait(arn).output == payload
    assert user.stage.is_free("a")
    assert user.stage.is_free("b")
    assert len({session["sk"]["S"].split("/")[1] for session in user.sessions(arn)}) == 2


def test_a_machine_in_jsonpath_may_have_fragments_of_both_languages(open_user: OpenUser) -> None:
    user = open_user("of_both_languages", {"work": echo})
    outcomes = [user.run(payload) for payload in PAYLOADS]
    assert [(outcome.status, outcome.output) for outcome in outcomes] == [("SUCCEEDED", each) for each in PAYLOADS]
    assert user.stage.is_free(ENTITY)


def test_in_jsonata_a_machines_variables_conditions_and_outputs_reach_a_fragment_and_leave_it(
    open_user: OpenUser,
) -> None:
    def sell(event: Any, _context: Any) -> Any:
        if event["sku"] == "cup":
            raise StockMissing
        return {"sold": event["sku"]}

    user = open_user("variables_in_jsonata", {"work": sell})
    skipped = {"sku": "pot", "sold": True}
    lines = [{"sku": "tea", "sold": False}, {"sku": "cup", "sold": False}, skipped]
    made = [{"line": line} for line in ({"sold": "tea"}, {"missing": "cup"}, skipped)]
    assert user.run({"shop": "abroad", "lines": lines}).output == {"shop": "abroad", "lines": made}
    assert {event["turn"]["claim"]["entity"] for event in releases(user)} == {"abroad/tea", "abroad/cup", "abroad/pot"}
    assert user.stage.is_free("abroad/cup")


def test_a_fragment_may_protect_another(open_user: OpenUser) -> None:
    work = Work()
    user = open_user("nested_locks", work)
    payload = {"outer": "customer-7", "inner": "order-42"}
    assert user.run(payload).output == "done"
    assert work.runs[0].event == payload
    assert user.stage.is_free("customer-7")
    assert user.stage.is_free("order-42")


@pytest.mark.parametrize("entities", [["order-42"], ["order-1", "order-2"]], ids=["one entity", "two entities"])
def test_branches_of_a_parallel_never_overlap_on_one_entity(open_user: OpenUser, entities: list[str]) -> None:
    work = Work(seconds=1)
    user = open_user("branches", work)
    arns = [user.start() for _ in entities]
    assert [user.machine.wait(arn).output for arn in arns] == [["done", "done"]] * len(entities)
    assert len(work.runs) == 2 * len(entities)
    assert work.overlaps() == []
    assert len(owners(user)) == 2 * len(entities)
    assert user.stage.is_free(ENTITY)


def owners(user: UserStage) -> set[str]:
    return {event["turn"]["claim"]["owner"] for event in releases(user)}


@pytest.mark.parametrize("name", both("items"))
def test_iterations_of_a_map_are_owners_of_their_own_one_at_a_time(open_user: OpenUser, name: str) -> None:
    work = Work(seconds=0.3)
    user = open_user(name, work)
    items = [{"entity": ENTITY, "line": line} for line in range(4)]
    assert user.run({"items": items}).output == ["done"] * 4
    assert work.overlaps() == []
    assert sorted(run.event["line"] for run in work.runs) == [0, 1, 2, 3]
    assert len({run.event["lock"]["owner"] for run in work.runs}) == 4
    assert tokens(work) == sorted(set(tokens(work)))
    assert user.stage.is_free(ENTITY)


def tokens(work: Work) -> list[int]:
    return [run.event["lock"]["fencingToken"] for run in sorted(work.runs, key=lambda run: run.started)]


def test_iterations_of_a_map_in_a_map_are_owners_of_their_own(open_user: OpenUser) -> None:
    work = Work(seconds=0.2)
    user = open_user("groups", work)
    groups = [[{"entity": entity} for entity in ("order-1", "order-2")] for _ in range(2)]
    assert user.run({"groups": groups}).output == [["done", "done"]] * 2
    for entity in ("order-1", "order-2"):
        of_entity = Work(runs=[run for run in work.runs if run.event["entity"] == entity])
        assert len(of_entity.runs) == 2
        assert of_entity.overlaps() == []
        assert user.stage.is_free(entity)
    assert len(owners(user)) == 4


def test_each_entry_of_a_loop_takes_a_ticket_of_its_own(open_user: OpenUser) -> None:
    seen: list[Any] = []

    def count_down(event: Any, _context: Any) -> Any:
        seen.append(event)
        return {"left": event["left"] - 1}

    user = open_user("loop", {"work": count_down})
    assert user.run({"left": 3}).output == {"left": 0}
    locks = [event["lock"] for event in seen]
    assert [event["left"] for event in seen] == [3, 2, 1]
    assert len({lock["owner"] for lock in locks}) == 3
    assert [lock["fencingToken"] for lock in locks] == sorted({lock["fencingToken"] for lock in locks})
    assert len({event["turn"]["grant"]["ticket"] for event in releases(user)}) == 3
    assert user.stage.is_free(ENTITY)


def test_a_protected_fail_state_fails_the_execution_as_itself_and_frees_the_lock(open_user: OpenUser) -> None:
    user = open_user("failing")
    outcome = user.run()
    assert (outcome.status, outcome.error, outcome.cause) == ("FAILED", "OutOfPaint", "no more red")
    assert user.stage.is_free(ENTITY)


@pytest.mark.always("the way that most executions take")
@pytest.mark.parametrize("name", both("caught"))
def test_a_failure_can_be_caught_and_the_lock_is_free_by_then(open_user: OpenUser, name: str) -> None:
    user = open_user(name, Work(error=StockMissing()))
    outcome = user.run({"order": 42})
    assert outcome.status == "SUCCEEDED"
    assert outcome.output["order"] == 42
    assert outcome.output["failure"]["Error"] == "StockMissing"
    assert user.stage.is_free(ENTITY)


@pytest.mark.parametrize("name", both("caught"))
def test_a_record_wait_that_ends_is_caught_by_name(open_user: OpenUser, work: Work, name: str) -> None:
    user = open_user(name, work)
    first = user.hold()
    second = user.run({"order": 42})
    assert (second.status, second.output["by"]) == ("SUCCEEDED", "name")
    assert second.output["caught"].startswith("the lock cannot be taken at once, and the record wait is 0; held by")
    work.finish.set()
    assert user.machine.wait(first).status == "SUCCEEDED"
    assert user.stage.is_free(ENTITY)


@pytest.mark.parametrize("name", both("repeated"))
def test_a_fragment_that_is_repeated_enters_as_another_owner(open_user: OpenUser, name: str) -> None:
    work = Work(error=StockMissing())
    user = open_user(name, work)
    assert user.run({}).error == "StockMissing"
    assert len({run.event["lock"]["owner"] for run in work.runs}) == len(work.runs) == 3
    assert user.stage.is_free(ENTITY)


def paid_for(payload: Any) -> dict[str, Any]:
    return {"paid": {"euros": 7}, "by": payload}


def as_one_state(options: str, order: Any) -> Any:
    """The output of a state with these options, by the CDK's documentation of a Parallel, for one order."""
    given = {"options": options, "order": order}
    payment = paid_for(given)
    return {
        "no option": payment,
        "input_path": paid_for(order),
        "parameters": paid_for(order),
        "output_path": 7,
        "the whole result": [payment],
        "no output": {},
        "result_path": {**given, "payment": [payment]},
        "result_path in an object": {**given, "order": {**order, "payment": [payment]}},
        "no result": given,
        "result_path and output_path": 7,
        "result_selector": {"paid": 7},
        "result_selector and result_path": {**given, "payment": {"paid": 7}},
        "result_selector and output_path": 7,
        "no result and output_path": order,
        "result_path and another output_path": 7,
        "input_path and result_path": {**given, "payment": [paid_for(order)]},
        "prefix_states": payment,
    }[options]


@pytest.mark.parametrize("name", SINGLE_STATE_MACHINES)
def test_every_option_of_a_fragment_as_one_state_gives_what_it_gives_of_any_parallel(
    open_user: OpenUser, name: str
) -> None:
    user = open_user(name, {"work": lambda event, _context: paid_for(event)})
    for options in SINGLE_STATE_MACHINES[name]:
        outcome = user.run({"options": options, "order": {"id": 7}}, 60)
        assert (options, outcome.error, outcome.output) == (options, None, as_one_state(options, {"id": 7}))
    assert user.stage.is_free(ENTITY)


def test_every_option_that_is_refused_would_fail_the_execution_after_the_work(open_user: OpenUser) -> None:
    user = open_user("refused_states")
    for name, options in REFUSED_STATES.items():
        with pytest.raises(ValueError, match=r"; allowed: "):
            parallel_options(options, {"entity.$": "$.order.id"})
        arn = user.start({"options": name, "order": {"id": 7}})
        assert (name, user.machine.wait(arn).status) == (name, "FAILED")
        assert f"Work of {name}" in user.machine.entered(arn)


def test_a_chain_with_a_fragment_may_be_one_state_by_the_cdks_own_method(open_user: OpenUser) -> None:
    user = open_user("chain_as_one_state", {"work": lambda event, _context: paid_for(event)})
    assert user.run({"id": 7}).output == {"id": 7, "payment": [paid_for({"id": 7})]}


@pytest.mark.parametrize("name", ["concurrent", "concurrent_by_states_wired_later"])
def test_when_one_of_several_protected_states_fails_the_others_keep_the_lock(open_user: OpenUser, name: str) -> None:
    slow = Work(seconds=60)
    user = open_user(name, {"work": Work(error=StockMissing()), "slow": slow})
    outcome = user.run({})
    assert (outcome.status, outcome.error) == ("FAILED", "StockMissing")
    assert not user.stage.is_free(ENTITY)
    slow.finish.set()


@pytest.mark.parametrize("name", both("continued"))
def test_a_long_wait_and_a_long_hold_continue_in_other_executions(open_user: OpenUser, work: Work, name: str) -> None:
    after = Work()
    user = open_user(name, {"work": work, "after": after}, hand_over=POLL)
    first = user.hold("first")
    second = user.start("second")
    until(lambda: user.stage.continuations("wait-"), PATIENCE_S, lambda: str(user.machine.entered(second)))
    until(lambda: user.stage.continuations("hold-"), PATIENCE_S, lambda: str(user.machine.entered(first)))
    work.finish.set()
    assert {user.machine.wait(arn).status for arn in (first, second)} == {"SUCCEEDED"}
    assert work.overlaps() == []
    assert [run.event for run in work.runs] == ["first", "second"]
    assert user.stage.is_free(ENTITY)


@pytest.mark.parametrize(
    ("name", "hand_over", "state"),
    [
        *((name, CALLBACK, "WakeUp") for name in both("chain")),
        *((name, POLL, "Turn") for name in both("polled_chain")),
    ],
)
def test_a_waiter_parks_or_polls_as_the_hand_over_says(
    open_user: OpenUser, work: Work, name: str, hand_over: HandOver, state: str
) -> None:
    user = open_user(name, work, hand_over=hand_over)
    first = user.hold()
    second = user.start()
    user.machine.wait_until_entered(second, f"Locked.WaitFor{state}")
    if hand_over is CALLBACK:
        user.wait_until_parked(second)
    began = time.monotonic()
    work.finish.set()
    assert {user.machine.wait(arn).status for arn in (first, second)} == {"SUCCEEDED"}
    # Half a lease, if it had not been woken.
    assert time.monotonic() - began < USER_LEASE_S / 2
    assert work.overlaps() == []


def test_every_entry_of_a_stopped_execution_is_cleaned_up(open_user: OpenUser, work: Work) -> None:
    user = open_user("branches", work)
    arn = user.hold()
    user.wait_until_parked(arn)
    user.stop(arn)
    state = user.stage.lock(ENTITY)
    # The waiting branch has left; the function of the other may still be running, until the lease ends.
    assert (len(state.rows), len(state.item.holders if state.item else ())) == (0, 1)


def test_a_stopped_holder_of_a_nested_execution_frees_the_lock_at_once(open_user: OpenUser) -> None:
    user = open_user("nested_execution")
    wait = {"Type": "Wait", "Seconds": 60, "End": True}
    child = user.stage.engine.machine("child", {"StartAt": "Wait", "States": {"Wait": wait}})
    arn = user.start({})
    user.machine.wait_until_entered(arn, "Locked.StartExecution")
    (nested,) = until(child.executions, PATIENCE_S, lambda: "the nested execution to start")
    # The interpreter cannot stop an execution that has not entered its first state.
    child.wait_until_entered(nested["executionArn"], "Wait")
    user.stop(arn)
    assert child.executions(statusFilter="RUNNING") == []
    assert user.stage.is_free(ENTITY)
