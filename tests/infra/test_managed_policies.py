"""Managed policies in place of inline ones: the same permissions, within IAM's quotas.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""

import json
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from kit.stacks import as_list, machine
from ticketlock_cdk import TicketLock, TransactionTables, use_managed_policies

STACKS = pytest.mark.verify("stacks of its own, synthesised")
A_POLICY, MOST_POLICIES = 6_144, 10


def role(stack: Stack, name: str = "Role") -> iam.Role:
    return iam.Role(stack, name, assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))


def text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def statement(characters: int) -> iam.PolicyStatement:
    """One that is so long as JSON."""
    empty = '{"Action":"s3:GetObject","Effect":"Allow","Resource":""}'
    return iam.PolicyStatement(actions=["s3:GetObject"], resources=[(characters - len(empty)) * "x"])


def deployed(outdir: str, synthesise: Any, *, managed: bool) -> dict[str, Any]:
    """For each role what it is allowed, and which resources wait for policies of which kind."""
    app = App(outdir=outdir)
    stack, other = Stack(app, "Here"), Stack(app, "There")
    lock = TicketLock(stack, "Lock", targets=[machine(stack)])
    units = TransactionTables(stack, "Units")
    accounts = dynamodb.Table(stack, "Accounts", partition_key=text("id"))
    for principal in (role(stack), role(other)):
        lock.grant_use(principal)
        units.grant_units(principal, accounts)
    # What it lets them query is granted at the end of the synthesis.
    accounts.add_global_secondary_index(index_name="byOwner", partition_key=text("owner"))
    if managed:
        use_managed_policies(app)
    found: dict[str, Any] = {"kinds": set(), "allowed": {}, "waits": {}}
    for each in map(synthesise, (stack, other)):
        policies = {id: one["Type"] for id, one in each.resources.items() if "Policy" in one["Type"]}
        found["kinds"] |= {kind for kind in policies.values() if kind.startswith("AWS::IAM::")}
        for id in policies:
            properties = each.resources[id]["Properties"]
            for attached in properties.get("Roles", ()):
                said = found["allowed"].setdefault(f"{each.stack.node.id} {attached}", set())
                for one in properties["PolicyDocument"]["Statement"]:
                    said |= {
                        json.dumps([action, resource, one.get("Condition")], sort_keys=True)
                        for action in as_list(one["Action"])
                        for resource in as_list(one["Resource"])
                    }
        for id, one in each.resources.items():
            roles = {
                json.dumps(attached)
                for awaited in as_list(one.get("DependsOn", []))
                if policies.get(awaited, "").startswith("AWS::IAM::")
                for attached in each.resources[awaited]["Properties"]["Roles"]
            }
            if roles and id not in policies:
                found["waits"][id] = roles
    return found


@STACKS
def test_managed_policies_allow_what_the_inline_ones_would_and_are_awaited_like_them(outdir, synthesise):
    inline, managed = (deployed(outdir, synthesise, managed=flag) for flag in (False, True))
    assert (inline["kinds"], managed["kinds"]) == ({"AWS::IAM::Policy"}, {"AWS::IAM::ManagedPolicy"})
    assert managed["allowed"] == inline["allowed"]
    assert "/index/*" in str(inline["allowed"])
    assert managed["waits"] == inline["waits"]
    assert len(inline["waits"]) > 8


@pytest.mark.parametrize(("more", "policies"), [(0, 1), (1, 2)], ids=["as much as one has room for", "one more"])
def test_a_policy_that_is_too_long_for_one_becomes_two(more, policies, stack, synthesise):
    granted = role(stack)
    around = '{"Version":"2012-10-17","Statement":[,]}'
    half = (A_POLICY - len(around)) // 2
    granted.add_to_policy(statement(half))
    granted.add_to_policy(statement(A_POLICY - len(around) - half + more))
    use_managed_policies(stack)
    made = synthesise(stack).of_type("AWS::IAM::ManagedPolicy").values()
    sizes = [len(json.dumps(each["PolicyDocument"], separators=(",", ":"))) for each in made]
    assert (len(sizes), max(sizes) <= A_POLICY) == (policies, True)


def test_a_statement_that_is_too_long_for_a_policy_is_refused_by_name(stack, synthesise):
    role(stack).add_to_policy(statement(A_POLICY))
    use_managed_policies(stack)
    with pytest.raises(RuntimeError, match=r"policy Test/Role/DefaultPolicy has a statement of up to 6,\d\d\d char"):
        synthesise(stack)


@pytest.mark.parametrize("policies", [MOST_POLICIES, MOST_POLICIES + 1])
def test_more_policies_than_a_role_may_have_are_refused_by_name(policies, stack, synthesise):
    granted = role(stack)
    for number in range(policies):
        granted.attach_inline_policy(iam.Policy(stack, f"Policy{number}", statements=[statement(100)]))
    use_managed_policies(stack)
    if policies == MOST_POLICIES:
        assert len(synthesise(stack).of_type("AWS::IAM::ManagedPolicy")) == policies
        return
    with pytest.raises(RuntimeError, match=r"role Test/Role has 11 managed policies .*; allowed: 10, so fewer"):
        synthesise(stack)


KINDS: dict[Any, dict[str, Any]] = {
    iam.Role: {"assumed_by": iam.ServicePrincipal("ecs-tasks.amazonaws.com")},
    iam.User: {},
    iam.Group: {},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policies", [MOST_POLICIES - 2, MOST_POLICIES - 1])
def test_those_that_a_role_a_user_or_a_group_has_already_count_too(policies, kind, stack, synthesise):
    given = [iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in ("ReadOnlyAccess", "AWSXRayDaemon")]
    granted = kind(stack, "Granted", managed_policies=given, **KINDS[kind])
    for number in range(policies):
        granted.attach_inline_policy(iam.Policy(stack, f"Policy{number}", statements=[statement(100)]))
    use_managed_policies(stack)
    if policies + len(given) == MOST_POLICIES:
        assert len(synthesise(stack).of_type("AWS::IAM::ManagedPolicy")) == policies
        return
    with pytest.raises(RuntimeError, match=rf"{kind.__name__.lower()} Test/Granted has 11 managed policies"):
        synthesise(stack)


def test_policies_of_yours_alone_are_not_counted_since_your_quota_may_be_higher(stack, synthesise):
    given = [iam.ManagedPolicy.from_aws_managed_policy_name(f"Given{number}") for number in range(MOST_POLICIES + 1)]
    iam.User(stack, "Theirs", managed_policies=given)
    use_managed_policies(stack)
    assert synthesise(stack).of_type("AWS::IAM::User")


@STACKS
def test_the_ready_made_stack_has_them_if_asked_for(stack_with):
    kinds = {each["Type"] for each in stack_with(managed_policies="true").resources.values()}
    assert {"AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"} & kinds == {"AWS::IAM::ManagedPolicy"}
