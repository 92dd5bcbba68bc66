"""Templates that grow with machines and targets stay within AWS's sizes, with the longest names in any Region.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html
https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
https://docs.aws.amazon.com/lambda/latest/api/API_AddPermission.html
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
"""

import json
from collections import Counter

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from ticketlock_cdk import TicketLock, use_managed_policies

pytestmark = pytest.mark.verify("stacks with hundreds of state machines")

QUOTAS = {
    "resources of a stack": 500,
    "characters of a role's inline policies": 10_240,
    "characters of a managed policy": 6_144,
    "managed policies of a role": 10,
    "characters of a rule's pattern": 2_048,
    "characters of a function's policy": 20_480,
}
STATEMENT_ID_CHARACTERS = 100
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
# As docs/workflows.md and docs/construct.md promise: the roles of the lock have no room for one more.
MOST_MACHINES = 216
MOST_STACKS = 23
MOST_TARGETS = 200
# Those of a lock itself, whose executions serialise, or continue a wait or a hold.
OWN_MACHINES = 2


class Deployment:
    """Stacks as they are deployed with the longest names."""

    def __init__(self, *stacks):
        self.stacks = stacks
        outputs = [(found, each) for found in stacks for each in found.template.get("Outputs", {}).values()]
        self.exports = {each["Export"]["Name"]: (found, each["Value"]) for found, each in outputs if "Export" in each}

    def value(self, found, value):
        """A value of a template; for the name of a resource an upper bound, its ARN."""
        match value:
            case {"Ref": name} if name in LONGEST:
                return LONGEST[name]
            case {"Ref": name} | {"Fn::GetAtt": [name, _]}:
                return ARNS[found.resources[name]["Type"]]
            case {"Fn::ImportValue": export}:
                return self.value(*self.exports[export])
            case {"Fn::Join": [between, parts]}:
                return between.join(self.value(found, part) for part in parts)
            case {"Fn::Select": [index, {"Fn::Split": [between, whole]}]}:
                return self.value(found, whole).split(between)[int(index)]
            case dict():
                assert not any(key.startswith("Fn::") for key in value)
                return {key: self.value(found, inner) for key, inner in value.items()}
            case list():
                return [self.value(found, inner) for inner in value]
        return value

    def characters(self, found, document):
        # IAM does not count white space.
        return len(json.dumps(self.value(found, document), separators=(",", ":")))

    def resource(self, found, reference):
        """The resource that is meant, the same from every stack."""
        match reference:
            case {"Fn::ImportValue": export}:
                found, reference = self.exports[export]
        return found, str(reference)

    def sizes(self):
        """The greatest size of each kind that has a quota."""
        sizes: dict[str, Counter[object]] = {kind: Counter() for kind in QUOTAS}
        for found in self.stacks:
            sizes["resources of a stack"][found] = len(found.resources)
            for policy in found.of_type("AWS::IAM::Policy").values():
                for role in policy["Roles"]:
                    characters = self.characters(found, policy["PolicyDocument"])
                    sizes["characters of a role's inline policies"][self.resource(found, role)] += characters
            for id, policy in found.of_type("AWS::IAM::ManagedPolicy").items():
                characters = self.characters(found, policy["PolicyDocument"])
                sizes["characters of a managed policy"][found, id] = characters
                sizes["managed policies of a role"].update(self.resource(found, role) for role in policy["Roles"])
            for id, role in found.of_type("AWS::IAM::Role").items():
                given = len(role.get("ManagedPolicyArns", []))
                sizes["managed policies of a role"][self.resource(found, {"Ref": id})] += given
            for id, rule in found.of_type("AWS::Events::Rule").items():
                sizes["characters of a rule's pattern"][found, id] = self.characters(found, rule["EventPattern"])
            for permission in found.of_type("AWS::Lambda::Permission").values():
                function = self.resource(found, permission["FunctionName"])
                characters = self.characters(found, statement_of(permission))
                sizes["characters of a function's policy"][function] += characters
        return {kind: max(each.values(), default=0) for kind, each in sizes.items()}


def statement_of(permission):
    """What Lambda adds to the policy of the function."""
    return {
        "Sid": STATEMENT_ID_CHARACTERS * "s",
        "Effect": "Allow",
        "Principal": {"Service": permission["Principal"]},
        "Action": permission["Action"],
        "Resource": permission["FunctionName"],
        "Condition": {"ArnLike": {"AWS:SourceArn": permission["SourceArn"]}},
    }


def beyond_the_quotas(sizes):
    return {what: size for what, size in sizes.items() if size > QUOTAS[what]}


def attach_smallest_machine(scope, lock, number):
    role = scope.node.try_find_child("Role")
    role = role or iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
    body = sfn.DefinitionBody.from_string('{"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}')
    lock.attach(sfn.StateMachine(scope, f"Workflow{number}", role=role, definition_body=body))


def key_and_network(stack):
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["eu-west-1a"], private_subnet_ids=["subnet-1"]
    )
    return {"encryption_key": kms.Key(stack, "Key"), "vpc": vpc}


def longest_target(number):
    return HEAD.format("states", f"stateMachine:{number:m>80}")


@pytest.mark.parametrize("managed", [False, True], ids=["with inline policies", "with managed policies alone"])
def test_a_hundred_machines_and_their_client_are_within_the_quotas(managed, stack, synthesise):
    lock = TicketLock(stack, "Lock", **key_and_network(stack))
    machines = 100
    for number in range(machines):
        attach_smallest_machine(stack, lock, number)
    client = iam.Role(stack, "Client", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    lock.grant_use(client)
    if managed:
        use_managed_policies(stack)
    found = synthesise(stack)
    sizes = Deployment(found).sizes()
    assert beyond_the_quotas(sizes) == {}
    assert (sizes["characters of a role's inline policies"] == 0) == managed
    answers = "states:SendTaskSuccess"
    for user, action in ((client, answers), (lock.clean_up, answers), (lock.heartbeat, "states:SendTaskFailure")):
        statements = [one for one in found.statements(user) if action in one["Action"]]
        assert len({str(arn) for one in statements for arn in one["Resource"]}) == machines + OWN_MACHINES
    rules = found.of_type("AWS::Events::Rule").values()
    watched = [str(arn) for rule in rules for arn in rule["EventPattern"]["detail"]["stateMachineArn"]]
    # Of the lock's own, the one that users start.
    assert len(watched) == len(set(watched)) == machines + 1


def test_as_many_machines_as_are_taken_are_within_the_quotas_and_one_more_is_refused_by_name(outdir, synthesise):
    stack = Stack(App(outdir=outdir), "Test")
    lock = TicketLock(stack, "Lock")
    for number in range(MOST_MACHINES):
        attach_smallest_machine(stack, lock, number)
    message = f"machine is Test/Workflow{MOST_MACHINES}: the role Test/Lock/Functions/CleanUpRole has no room for it"
    with pytest.raises(ValueError, match=f"{message} .*; allowed: "):
        attach_smallest_machine(stack, lock, MOST_MACHINES)
    sizes = Deployment(synthesise(stack)).sizes()
    assert beyond_the_quotas(sizes) == {}
    assert sizes["managed policies of a role"] == QUOTAS["managed policies of a role"]


@pytest.mark.parametrize("flag", [True, False], ids=["minimised", "not"])
def test_as_many_targets_as_are_taken_are_within_the_quotas(flag, outdir, synthesise):
    stack = Stack(App(outdir=outdir, context={"@aws-cdk/aws-iam:minimizePolicies": flag}), "Test")
    TicketLock(stack, "Lock", targets=[longest_target(number) for number in range(MOST_TARGETS)])
    assert beyond_the_quotas(Deployment(synthesise(stack)).sizes()) == {}


def test_targets_for_which_managed_policies_alone_have_no_room_are_refused_by_name(stack, synthesise):
    TicketLock(stack, "Lock", targets=[longest_target(number) for number in range(MOST_TARGETS)])
    use_managed_policies(stack)
    with pytest.raises(RuntimeError, match=r"role Test/Lock/Serialize/StateMachine/Role has \d+ managed policies"):
        synthesise(stack)


def test_one_target_more_is_refused_by_name(stack):
    retired, *targets = map(longest_target, range(MOST_TARGETS + 1))
    message = f"targets and retired_targets are {MOST_TARGETS + 1}; allowed: at most {MOST_TARGETS}"
    with pytest.raises(ValueError, match=message):
        TicketLock(stack, "Lock", targets=targets, retired_targets=[retired])


def test_machines_in_stacks_of_their_own_are_within_the_quotas_and_one_more_is_refused_by_name(outdir, synthesise):
    app = App(outdir=outdir)
    locks, *others = (Stack(app, name) for name in ["Locks", *(f"Far{number}" for number in range(MOST_STACKS))])
    lock = TicketLock(locks, "Lock")
    for number, stack in enumerate(others):
        attach_smallest_machine(stack, lock, number)
    one_more = Stack(app, "OneMore")
    with pytest.raises(ValueError, match=rf"machine is OneMore/Workflow{MOST_STACKS}.* allowed: "):
        attach_smallest_machine(one_more, lock, MOST_STACKS)
    sizes = Deployment(*map(synthesise, [locks, *others])).sizes()
    assert beyond_the_quotas(sizes) == {}
    assert sizes["managed policies of a role"] == QUOTAS["managed policies of a role"]
