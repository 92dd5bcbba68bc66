"""What synth says of a definition with fragments that the service refuses, or that does not do what it seems to do."""

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Annotations, Match
from kit.stacks import function, machine
from ticketlock_cdk import TicketLock

JSONATA = sfn.QueryLanguage.JSONATA
PRESENT = sfn.Condition.is_present("$.id")


class Machines:
    """Machines with fragments, all in one stack: each is a method here, and returns its first state."""

    def __init__(self, outdir):
        self.app = App(outdir=outdir)
        self.stack = Stack(self.app, "Orders")
        self.lock = TicketLock(self.stack, "Lock")
        self._of = ""

    def add(self, *names, **more):
        for name in names:
            self._of = name
            made = machine(self.stack, name, chain=getattr(self, name)(), **more)
            self.lock.attach(made)

    def state(self, name, **more):
        return sfn.Pass(self.stack, f"{self._of} {name}", **more)

    def assigning(self, name, variable):
        return self.state(name, assign={variable: 1})

    def task(self, name):
        """A state whose failure can be caught."""
        return sfn.Parallel(self.stack, f"{self._of} {name}").branch(self.state(f"In {name}"))

    def locked(self, protected, id="Ship", **more):
        return self.lock.serialize(self.stack, f"{self._of}-{id}", protected, **{"entity": "$.id", **more})

    # Variables.

    def assigns(self):
        return self.locked(self.state("Look").next(self.assigning("Charge", "total"))).next(self.state("After"))

    def assigns_on_other_ways(self):
        charge = self.task("Charge")
        charge.add_catch(sfn.Fail(self.stack, "Failed"), assign={"error.$": "$.Error"})
        way = sfn.Choice(self.stack, "Way").when(PRESENT, self.state("This"), assign={"way": "this"})
        return self.locked(charge.next(way.otherwise(self.state("That"))))

    def assigns_in_both_of_two_nested_fragments(self):
        inner = self.locked(self.assigning("Inner", "line"), "Line")
        return self.locked(inner.next(self.assigning("Outer", "order")))

    def assigns_only_in_a_map_of_its_own(self):
        each = sfn.Map(self.stack, "Each").item_processor(self.assigning("Line", "line"))
        return self.assigning("Before", "order").next(self.locked(each))

    def assigns_outside_too(self):
        single = self.locked(self.assigning("Charge", "total")).to_single_state(prefix_states="Try: ")
        return self.assigning("Before", "total").next(single)

    def assigns_to_one_of_the_outer_fragment(self):
        inner = self.locked(self.assigning("Inner", "order"), "Line")
        return self.locked(inner.next(self.assigning("Outer", "order")))

    # Failures that are caught.

    def catches_and_ends(self):
        charge = self.task("Charge")
        charge.add_catch(self.state("Notify").next(self.state("Note")))
        return self.locked(charge).next(self.state("After"))

    def catches_and_goes_on_or_fails(self):
        end = self.state("End")
        charge, pack = self.task("Charge"), self.task("Pack")
        charge.add_catch(self.state("Repair").next(end))
        pack.add_catch(self.state("Note").next(sfn.Fail(self.stack, "NotPacked")))
        return self.locked(charge.next(pack).next(end))

    def catches_outside(self):
        single = self.locked(self.task("Charge")).to_single_state()
        single.add_catch(self.state("Notify"))
        return single

    # States that are written as JSON.

    def leads_nowhere(self):
        catch = {"ErrorEquals": ["States.ALL"], "Next": "Handler"}
        written = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:getItem", "Parameters": {}, "Catch": [catch]}
        read = sfn.CustomState(self.stack, "Read", state_json=written)
        return self.locked(read.next(self.state("Charge"))).next(sfn.Pass(self.stack, "Handler"))

    def leads_nowhere_in_a_map(self):
        choices = [{"Variable": "$.paid", "IsPresent": True, "Next": "Pack"}]
        way = sfn.CustomState(
            self.stack, "Paid?", state_json={"Type": "Choice", "Choices": choices, "Default": "Refuse"}
        )
        return self.locked(sfn.Map(self.stack, "EachItem").item_processor(way))

    # Query languages.

    def in_jsonata(self):
        pack = self.task("Pack")
        pack.add_catch(sfn.Fail(self.stack, "Unpacked"), result_path="$.failure")
        inner = self.locked(self.state("Charge").next(pack), "Line")
        return self.locked(inner, entity="{% $states.input.id %}", query_language=JSONATA)

    # Distributed Maps.

    def distributed(self):
        each = sfn.DistributedMap(self.stack, "EachFile", items_path="$.files")
        return each.item_processor(self.locked(self.state("Charge")))

    def distributed_by_its_mode(self):
        each, mode = sfn.Map(self.stack, "EachRow", items_path="$.rows"), sfn.ProcessorMode.DISTRIBUTED
        within = self.state("Look").next(self.locked(self.state("Charge")).to_single_state())
        return each.item_processor(within, mode=mode, execution_type=sfn.ProcessorType.STANDARD)

    def distributed_around_a_map(self):
        lines = sfn.Map(self.stack, "EachLine").item_processor(self.locked(self.state("Charge")))
        each = sfn.DistributedMap(self.stack, "EachOrder").item_processor(self.state("Look").next(lines))
        return self.state("Before").next(each)

    def beside_a_distributed_map(self):
        each = sfn.DistributedMap(self.stack, "EachPage").item_processor(self.state("Look"))
        return each.next(sfn.Map(self.stack, "Inline").item_processor(self.locked(self.state("Charge"))))


@pytest.fixture(scope="module")
def warnings(outdir):
    """What the synthesis warns of, by the machine's name."""
    made = Machines(outdir)
    names = [
        "assigns",
        "assigns_on_other_ways",
        "assigns_in_both_of_two_nested_fragments",
        "assigns_only_in_a_map_of_its_own",
        "catches_and_ends",
        "catches_and_goes_on_or_fails",
        "catches_outside",
        "beside_a_distributed_map",
    ]
    made.add(*names)
    found = Annotations.from_stack(made.stack).find_warning("*", Match.string_like_regexp("within the|ends with the"))
    return {name: [str(each.entry.data) for each in found if each.id == f"/Orders/{name}"] for name in names}


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("assigns", [("total", "assigns Charge", "assigns-Ship")]),
        (
            "assigns_on_other_ways",
            [
                ("error", "assigns_on_other_ways Charge", "assigns_on_other_ways-Ship"),
                ("way", "Way", "assigns_on_other_ways-Ship"),
            ],
        ),
        (
            "assigns_in_both_of_two_nested_fragments",
            [
                (
                    "order",
                    "assigns_in_both_of_two_nested_fragments Outer",
                    "assigns_in_both_of_two_nested_fragments-Ship",
                ),
                (
                    "line",
                    "assigns_in_both_of_two_nested_fragments Inner",
                    "assigns_in_both_of_two_nested_fragments-Line",
                ),
            ],
        ),
        ("assigns_only_in_a_map_of_its_own", []),
    ],
)
def test_a_variable_that_ends_with_its_fragment_brings_a_warning_with_its_state(name, variables, warnings):
    assert [each.partition("; to have it afterwards")[0] for each in warnings[name]] == [
        f"the variable {variable}, which the state {state} assigns, ends with the fragment {fragment}"
        for variable, state, fragment in variables
    ]


def test_a_failure_that_is_caught_within_a_fragment_and_then_ends_it_brings_a_warning(warnings):
    [warning] = warnings["catches_and_ends"]
    assert warning.startswith(
        "the failure of the state catches_and_ends Charge is caught within the fragment catches_and_ends-Ship by "
        "catches_and_ends Notify, which runs under the lock"
    )


@pytest.mark.parametrize("name", ["catches_and_goes_on_or_fails", "catches_outside", "beside_a_distributed_map"])
def test_what_does_as_it_seems_brings_no_warning(name, warnings):
    assert warnings[name] == []


def test_what_the_service_or_the_lock_cannot_do_fails_the_synthesis(outdir):
    made = Machines(outdir)
    made.add(
        "assigns_outside_too",
        "assigns_to_one_of_the_outer_fragment",
        "distributed",
        "distributed_by_its_mode",
        "distributed_around_a_map",
        "leads_nowhere",
        "leads_nowhere_in_a_map",
    )
    made.add("in_jsonata", query_language=JSONATA)
    with pytest.raises(RuntimeError, match="Distributed Map") as refused:
        made.app.synth()
    first = "[Orders/Lock] state machine Orders/"
    told = [line.strip().removeprefix(first) for line in str(refused.value).splitlines() if first in line]
    for name, variable, state, fragment in (
        ("assigns_outside_too", "total", "Charge", "Try: assigns_outside_too-Ship"),
        ("assigns_to_one_of_the_outer_fragment", "order", "Inner", "assigns_to_one_of_the_outer_fragment-Line"),
    ):
        [message] = [line for line in told if line.startswith(f"{name} ")]
        assert f"variable {variable} in the state {name} {state}, within the fragment {fragment}, and outs" in message
    for name, each in (
        ("distributed", "EachFile"),
        ("distributed_by_its_mode", "EachRow"),
        ("distributed_around_a_map", "EachOrder"),
    ):
        [message] = [line for line in told if line.startswith(f"{name} ")]
        assert message.startswith(f"{name} has the fragment {name}-Ship in the Distributed Map {each}, whose child")
    [message] = [line for line in told if line.startswith("in_jsonata ")]
    assert "is in JSONata, and has in JSONPath: in_jsonata-Line, in_jsonata Pack; the service refuses" in message
    for name, state, unknown in (
        ("leads_nowhere", "Read", ["Catch names Handler"]),
        ("leads_nowhere_in_a_map", "Paid?", ["Default names Refuse", "Choices names Pack"]),
    ):
        expected = [f"{name} has the state {state} in the fragment {name}-Ship, whose {each}" for each in unknown]
        assert [line.partition(", which is no state beside it")[0] for line in told if f"{name} " in line] == expected
    assert len(told) == 9


@pytest.mark.parametrize("heartbeat", [True, False])
def test_a_fragment_that_nobody_chains_fails_the_synthesis(heartbeat, outdir):
    app = App(outdir=outdir)
    locks, orders, bills = (Stack(app, name) for name in ("Locks", "Orders", "Bills"))
    lock = TicketLock(locks, "Lock", heartbeat=heartbeat)
    # One of two that have the same name, in other state machines.
    chained, forgotten = (lock.serialize(each, "Ship", function(each), entity="$.id") for each in (orders, bills))
    lock.attach(machine(orders, chain=chained.prefix_states("Once: ")))
    lock.attach(machine(bills))
    lock.serialize(bills, "Pack", function(bills, "Packs"), entity="$.id")
    with pytest.raises(RuntimeError, match="is in no state machine") as refused:
        app.synth()
    told = [line.strip() for line in str(refused.value).splitlines() if "is in no state machine" in line]
    assert [line.partition(" is in no ")[0] for line in told] == [
        f"[Locks/Lock] the fragment Bills/{id}" for id in (forgotten.node.id, "Pack")
    ]


def test_a_machine_that_is_attached_to_a_lock_without_its_fragments_brings_a_warning(outdir):
    stack = Stack(App(outdir=outdir), "Orders")
    locks = [TicketLock(stack, name) for name in ("Customers", "Items")]
    chains = [
        lock.serialize(stack, f"Ship{lock.node.id}", function(stack, f"Of{lock.node.id}"), entity="e") for lock in locks
    ]
    for number, fragment in enumerate([*chains, None]):
        made = machine(stack, f"Workflow{number}", chain=fragment)
        for lock in locks:
            lock.attach(made)
    found = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("has no fragment of it"))
    warned = [(each.id, str(each.entry.data).partition(" and has no")[0]) for each in found]
    assert sorted(warned) == [
        ("/Orders/Workflow0", "it is attached to Orders/Items"),
        ("/Orders/Workflow1", "it is attached to Orders/Customers"),
        ("/Orders/Workflow2", "it is attached to Orders/Customers"),
        ("/Orders/Workflow2", "it is attached to Orders/Items"),
    ]
