"""The functions of the lock, and the network that they may be in."""

from typing import Any

import clean_up
import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Annotations, Match
from kit.events import tasks_of
from ticketlock_cdk import TicketLock

STEPS = ["take_ticket", "wait_for_wake_up", "check_position", "heartbeat", "release", "clean_up"]


@pytest.mark.parametrize("step", STEPS)
def test_each_function_has_its_handler_its_table_its_names_and_logs_that_end(step, typical):
    found = typical.synthesised
    function = found.function(typical.functions[step])
    assert function["Handler"] == f"{step}.handler"
    assert (function["Runtime"], function["Architectures"]) == ("python3.14", ["arm64"])
    # The memory that was measured.
    assert function["MemorySize"] == 512
    assert function["TracingConfig"] == {"Mode": "Active"}
    assert function["Environment"]["Variables"] == {
        "TABLE_NAME": {"Ref": found.id_of(typical.lock.table)},
        "POWERTOOLS_SERVICE_NAME": typical.lock.service_name,
        **(of_clean_up(typical) if step == "clean_up" else {}),
    }
    log_group = found.resources[function["LoggingConfig"]["LogGroup"]["Ref"]]
    assert log_group["Properties"]["RetentionInDays"] == 30


def of_clean_up(typical):
    machine = {"Ref": typical.synthesised.id_of(typical.lock.state_machine)}
    return {"STATE_MACHINE_ARN": machine, "LEASE_SECONDS": "60"}


@pytest.mark.parametrize("step", STEPS[:-1])
def test_no_function_outlives_its_state(step, typical):
    """Not before a brief parking ends: a cold start may take longer than that, and a late copy would park in vain."""
    tasks = dict(tasks_of(typical.definition["States"]))
    state = "".join(part.title() for part in step.split("_"))
    assert typical.synthesised.function(typical.functions[step])["Timeout"] < tasks[state]["TimeoutSeconds"]


def test_a_clean_up_may_run_for_longer_than_its_patience(typical):
    timeout_s = typical.synthesised.function(typical.lock.clean_up)["Timeout"]
    assert clean_up.PATIENCE_MS / 1_000 + 60 <= timeout_s <= 900


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize(("lease_s", "timeout_s"), [(10, 4), (12, 5), (20, 9), (22, 10), (60, 10)])
def test_a_beat_ends_before_the_next_one_begins(lease_s, timeout_s, stack, synthesise):
    lock = TicketLock(stack, "Lock", lease=Duration.seconds(lease_s), poll=Duration.seconds(1))
    assert synthesise(stack).function(lock.heartbeat)["Timeout"] == timeout_s


def test_memory_processors_and_concurrency_can_be_chosen(stack, synthesise):
    lock = TicketLock(
        stack, "Lock", memory_size=1_024, architecture=lambda_.Architecture.X86_64, clean_up_concurrency=25
    )
    found = synthesise(stack).function(lock.clean_up)
    assert (found["MemorySize"], found["Architectures"]) == (1_024, ["x86_64"])
    assert found["ReservedConcurrentExecutions"] == 25


@pytest.mark.parametrize(
    ("name", "value"),
    [("memory_size", 128), ("memory_size", 10_241), ("memory_size", True), ("clean_up_concurrency", 0)],
)
def test_a_number_out_of_its_bounds_is_refused_by_name(name, value, stack):
    with pytest.raises(ValueError, match=rf"{name} is {value}; allowed: a whole number from "):
        TicketLock(stack, "Lock", **{name: value})


class Called:
    """A lock with or without snapshots, and what its definitions call."""

    def __init__(self, outdir, synthesise, *, snap_start):
        stack = Stack(App(outdir=outdir), "Called")
        self.lock = TicketLock(stack, "Lock", snap_start=snap_start)
        self.found = synthesise(stack)
        self.stepping = [
            self.lock.take_ticket,
            self.lock.wait_for_wake_up,
            self.lock.check_position,
            self.lock.heartbeat,
            self.lock.release,
        ]
        self.aliases = self.found.of_type("AWS::Lambda::Alias")

    def invoked(self, machine):
        """As ``<logical id>``: a function by its own ARN, and an alias, have different ones."""
        return {
            self.found.text(arn)
            for one in self.found.statements(machine)
            if one["Action"] == "lambda:InvokeFunction"
            for arn in one["Resource"]
        }


@pytest.fixture(scope="module", params=[False, True], ids=["no snapshots", "snap_start"])
def called(request, outdir, synthesise):
    return Called(outdir, synthesise, snap_start=request.param)


def test_synth_warns_of_nothing(called):
    assert Annotations.from_stack(called.found.stack).find_warning("*", Match.any_value()) == []


@pytest.mark.verify("a stack of its own, synthesised")
def test_the_machine_calls_the_newest_versions_by_aliases_with_snapshots_and_without(called):
    assert {each["Name"] for each in called.aliases.values()} == {"live"}
    task = called.found.definition(called.lock.state_machine)["States"]["TakeTicket"]["Parameters"]
    assert task["FunctionName"] == "${TakeTicketArn}"
    substituted = called.found.one(called.lock.state_machine)["Properties"]["DefinitionSubstitutions"]
    arns = [arn["Ref"] for name, arn in substituted.items() if name.endswith("Arn") and name != "ContinueArn"]
    assert sorted(arns) == sorted(called.aliases)
    assert len(arns) == len(called.stepping)


@pytest.mark.verify("a stack of its own, synthesised")
def test_the_machines_may_call_aliases_and_what_older_definitions_call(called):
    own = {called.found.id_of(function) for function in called.stepping}
    assert called.invoked(called.lock.state_machine) == {f"<{id}>" for id in own | set(called.aliases)}
    continues = called.lock.node.find_child("Serialize").node.find_child("Continue")
    later_steps = [called.lock.wait_for_wake_up, called.lock.check_position, called.lock.heartbeat]
    own = {called.found.id_of(function) for function in later_steps}
    of_them = {id for id, each in called.aliases.items() if each["FunctionName"]["Ref"] in own}
    assert called.invoked(continues) == {f"<{id}>" for id in own | of_them}


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("called", [True], indirect=True, ids=["snap_start"])
def test_all_but_the_clean_up_start_from_snapshots(called):
    for function in called.stepping:
        assert called.found.function(function)["SnapStart"] == {"ApplyOn": "PublishedVersions"}
    # No one waits for it.
    assert "SnapStart" not in called.found.function(called.lock.clean_up)


# Functions in a network of the user's.


def networks(found):
    return [one.get("VpcConfig") for id, one in found.of_type("AWS::Lambda::Function").items() if id.startswith("Lock")]


@pytest.mark.verify("stacks of its own, each synthesised")
def test_every_function_is_in_the_network_with_one_security_group_without_inbound_rules(typical, everything):
    found = everything.synthesised
    [(id, group)] = found.of_type("AWS::EC2::SecurityGroup").items()
    assert "SecurityGroupIngress" not in group
    assert [one["SecurityGroupIds"] for one in networks(found)] == len(STEPS) * [[{"Fn::GetAtt": [id, "GroupId"]}]]
    # Without a network they are in none.
    assert set(networks(typical.synthesised)) == {None}
    assert "ec2:" not in str(list(typical.synthesised.statements()))


@pytest.mark.verify("stacks of its own, each synthesised")
def test_subnets_and_security_groups_can_be_chosen(stack, synthesise):
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["eu-west-1a"],
        private_subnet_ids=["subnet-0123456789abcdef0"],
        isolated_subnet_ids=["subnet-0123456789abcdef1"],
    )
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    TicketLock(
        stack,
        "Lock",
        vpc=vpc,
        vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
        security_groups=[group],
    )
    found = synthesise(stack)
    chosen = {"SubnetIds": ["subnet-0123456789abcdef1"], "SecurityGroupIds": ["sg-0123456789abcdef0"]}
    assert networks(found) == len(STEPS) * [chosen]
    assert not found.of_type("AWS::EC2::SecurityGroup")


@pytest.mark.verify("stacks of its own, each synthesised")
def test_lambda_may_make_network_interfaces_and_the_functions_own_code_may_not(everything):
    """https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions"""
    for function in everything.functions:
        statements = list(everything.synthesised.statements(function))
        [allowed] = [
            one for one in statements if one["Effect"] == "Allow" and "ec2:CreateNetworkInterface" in one["Action"]
        ]
        # test_permissions.py says which others may be.
        assert all(action.startswith("ec2:") for action in allowed["Action"])
        [denied] = [one for one in statements if one["Effect"] == "Deny"]
        assert {"ec2:CreateNetworkInterface", "ec2:DetachNetworkInterface"} <= set(denied["Action"])
        assert list(denied["Condition"]["ArnLike"]) == ["lambda:SourceFunctionArn"]


@pytest.mark.verify("stacks of its own, each synthesised")
@pytest.mark.parametrize("name", ["vpc_subnets", "security_groups"])
def test_a_choice_in_a_network_without_a_network_is_refused(name, stack):
    given: dict[str, Any] = {
        "vpc_subnets": ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
        "security_groups": [ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")],
    }
    with pytest.raises(ValueError, match=rf"{name} is .* and vpc is None; allowed: {name} together with"):
        TicketLock(stack, "Lock", **{name: given[name]})
