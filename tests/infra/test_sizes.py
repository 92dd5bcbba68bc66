"""Templates that grow with machines and targets stay within AWS's sizes, with the longest names in any Region.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html
https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
"""

import json
from collections import Counter

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from ticketlock_cdk import TicketLock

pytestmark = pytest.mark.verify("stacks with hundreds of state machines")

INLINE, MANAGED, MOST_MANAGED = 10_240, 6_144, 10
PATTERN, FUNCTION_POLICY, RESOURCES = 2_048, 20_480, 500
# The longest of each: a partition with its Region, an account, a name that CloudFormation makes.
LONGEST = {"AWS::Partition": "aws-iso-f", "AWS::Region": "us-isof-south-1", "AWS::AccountId": "123456789012"}
HEAD = "arn:aws-iso-f:{}:us-isof-south-1:123456789012:{}"
ARNS = {
    "AWS::StepFunctions::StateMachine": HEAD.format("states", f"stateMachine:{80 * 'm'}"),
    "AWS::Lambda::Function": HEAD.format("lambda", f"function:{64 * 'f'}"),
    "AWS::Lambda::Alias": HEAD.format("lambda", f"function:{64 * 'f'}:live"),
    "AWS::DynamoDB::Table": HEAD.format("dynamodb", f"table/{255 * 't'}"),
    "AWS::KMS::Key": HEAD.format("kms", f"key/mrk-{32 * 'k'}"),
    "AWS::SQS::Queue": HEAD.format("sqs", 80 * "q"),
    "AWS::Logs::LogGroup": HEAD.format("logs", f"log-group:{128 * 'l'}:*"),
    "AWS::Events::Rule": HEAD.format("events", f"rule/{64 * 'r'}"),
}
# docs/workflows.md and docs/construct.md say so.
MOST_MACHINES = 216
MOST_STACKS = 22
MOST_TARGETS = 200
# Those of a lock itself, whose executions serialise, or continue a wait or a hold.
OWN_MACHINES = 2


def deployed(found, value):
    """A value of the template as it is at the longest when it is deployed."""
    match value:
        case {"Ref": name} if name in LONGEST:
            return LONGEST[name]
        case {"Ref": name} | {"Fn::GetAtt": [name, _]}:
            return ARNS[found.resources[name]["Type"]]
        case {"Fn::Join": [between, parts]}:
            return between.join(deployed(found, part) for part in parts)
        case {"Fn::Select": [index, {"Fn::Split": [between, whole]}]}:
            return deployed(found, whole).split(between)[int(index)]
        case {"Fn::ImportValue": _} | {"Fn::GetStackOutput": _}:
            return ARNS["AWS::StepFunctions::StateMachine"]
        case dict():
            return {key: deployed(found, inner) for key, inner in value.items()}
        case list():
            return [deployed(found, inner) for inner in value]
    return value


def size(found, document):
    # IAM does not count white space.
    return len(json.dumps(deployed(found, document), separators=(",", ":")))


def assert_within_the_quotas(*stacks):
    """The sizes of every role, rule and function; returns how many managed policies the fullest role has."""
    inline: Counter[str] = Counter()
    managed: Counter[str] = Counter()
    let_in: Counter[str] = Counter()
    for found in stacks:
        assert len(found.resources) <= RESOURCES
        for policy in found.of_type("AWS::IAM::Policy").values():
            for role in policy["Roles"]:
                inline[str(role)] += size(found, policy["PolicyDocument"])
        for policy in found.of_type("AWS::IAM::ManagedPolicy").values():
            assert size(found, policy["PolicyDocument"]) <= MANAGED
            for role in policy["Roles"]:
                managed[str(role)] += 1
        for role, properties in found.of_type("AWS::IAM::Role").items():
            managed[str({"Ref": role})] += len(properties.get("ManagedPolicyArns", []))
        for rule in found.of_type("AWS::Events::Rule").values():
            assert size(found, rule["EventPattern"]) <= PATTERN
        for permission in found.of_type("AWS::Lambda::Permission").values():
            arns = ARNS["AWS::Lambda::Function"], ARNS["AWS::Events::Rule"]
            # The name of the statement, and the document around the statements.
            let_in[str(permission["FunctionName"])] += sum(map(len, arns)) + 100 + 160
    assert {role: characters for role, characters in inline.items() if characters > INLINE} == {}
    assert max(let_in.values()) <= FUNCTION_POLICY
    assert max(managed.values()) <= MOST_MANAGED
    return max(managed.values())


def bare(scope, lock, number):
    """The smallest machine that can be attached."""
    role = scope.node.try_find_child("Role")
    role = role or iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
    body = sfn.DefinitionBody.from_string('{"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}')
    lock.attach(sfn.StateMachine(scope, f"Workflow{number}", role=role.without_policy_updates(), definition_body=body))


@pytest.mark.parametrize("more", [True, False], ids=["with a key and a network", "without"])
def test_a_hundred_machines_and_their_client_are_within_the_quotas(more, stack, synthesise):
    lock = TicketLock(stack, "Lock", **(key_and_network(stack) if more else {}))
    machines = 100
    for number in range(machines):
        bare(stack, lock, number)
    client = iam.Role(stack, "Client", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    lock.grant_use(client)
    found = synthesise(stack)
    assert assert_within_the_quotas(found) >= 1
    answers = "states:SendTaskSuccess"
    for user, action in ((client, answers), (lock.clean_up, answers), (lock.heartbeat, "states:SendTaskFailure")):
        statements = [one for one in found.statements(user) if action in one["Action"]]
        assert len({str(arn) for one in statements for arn in one["Resource"]}) == machines + OWN_MACHINES
    rules = found.of_type("AWS::Events::Rule").values()
    watched = [str(arn) for rule in rules for arn in rule["EventPattern"]["detail"]["stateMachineArn"]]
    # Of the lock's own, the one that users start.
    assert len(watched) == len(set(watched)) == machines + 1


def key_and_network(stack):
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["eu-west-1a"], private_subnet_ids=["subnet-1"]
    )
    return {"encryption_key": kms.Key(stack, "Key"), "vpc": vpc}


def test_as_many_machines_as_are_taken_are_within_the_quotas_and_one_more_is_refused_by_name(outdir, synthesise):
    stack = Stack(App(outdir=outdir), "Test")
    lock = TicketLock(stack, "Lock")
    for number in range(MOST_MACHINES):
        bare(stack, lock, number)
    message = f"machine is Test/Workflow{MOST_MACHINES}: the role Test/Lock/Functions/CleanUpRole has no room for it"
    with pytest.raises(ValueError, match=f"{message} .*; allowed: "):
        bare(stack, lock, MOST_MACHINES)
    assert assert_within_the_quotas(synthesise(stack)) == MOST_MANAGED


def longest(number):
    return HEAD.format("states", f"stateMachine:{number:m>80}")


@pytest.mark.parametrize("flag", [True, False], ids=["minimised", "not"])
def test_as_many_targets_as_are_taken_are_within_the_quotas(flag, outdir, synthesise):
    stack = Stack(App(outdir=outdir, context={"@aws-cdk/aws-iam:minimizePolicies": flag}), "Test")
    TicketLock(stack, "Lock", targets=[longest(number) for number in range(MOST_TARGETS)])
    assert 1 <= assert_within_the_quotas(synthesise(stack)) <= MOST_MANAGED


def test_one_target_more_is_refused_by_name(stack):
    retired, *targets = map(longest, range(MOST_TARGETS + 1))
    message = f"targets and retired_targets are {MOST_TARGETS + 1}; allowed: at most {MOST_TARGETS}"
    with pytest.raises(ValueError, match=message):
        TicketLock(stack, "Lock", targets=targets, retired_targets=[retired])


def test_machines_in_stacks_of_their_own_are_refused_by_name_where_nothing_has_room(outdir):
    app = App(outdir=outdir)
    lock = TicketLock(Stack(app, "Locks"), "Lock")
    for number in range(MOST_STACKS):
        bare(Stack(app, f"Far{number}"), lock, number)
    one_more = Stack(app, "OneMore")
    with pytest.raises(ValueError, match=rf"machine is OneMore/Workflow{MOST_STACKS}.* allowed: "):
        bare(one_more, lock, MOST_STACKS)
