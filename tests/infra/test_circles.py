"""Dependencies between resources: grants create no cycle, and what must exist first is awaited."""

import pytest
from aws_cdk import App, NestedStack, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from kit.stacks import as_list, function, machine
from ticketlock_cdk import TicketLock

SEPARATE = "@aws-cdk/aws-lambda:createNewPoliciesWithAddToRolePolicy"


def may(found, principal):
    """The actions that a principal is allowed by policies of its own."""
    return {action for statement in found.statements(principal) for action in as_list(statement["Action"])}


USE = {"dynamodb:UpdateItem", "states:SendTaskSuccess"}
START = {"states:StartExecution"}
STACKS = pytest.mark.verify("stacks of its own, each synthesised")


@STACKS
@pytest.mark.parametrize("kind", [function, machine])
@pytest.mark.parametrize("of_a_fragment", [False, True], ids=["a target", "the work of a fragment"])
def test_what_runs_under_the_lock_may_use_it_and_start_the_next_execution(kind, of_a_fragment, stack, synthesise):
    work = kind(stack)
    lock = fragment_over(stack, work)[0] if of_a_fragment else TicketLock(stack, "Lock", targets=[work])
    lock.grant_use(work)
    lock.grant_start_execution(work)
    assert may(synthesise(stack), work) >= USE | START


def fragment_over(stack, work):
    lock = TicketLock(stack, "Lock")
    workflow = machine(stack, "Mine", lock.serialize(stack, "Ship", work, entity="$.id"))
    lock.attach(workflow)
    return lock, workflow


@STACKS
def test_a_workflow_with_a_fragment_may_use_the_lock_and_start_executions_of_it(stack, synthesise):
    lock, workflow = fragment_over(stack, function(stack))
    lock.grant_use(workflow)
    lock.grant_start_execution(workflow)
    assert may(synthesise(stack), workflow) >= USE | START


@pytest.mark.verify("the same templates with one of the CDK's feature flags")
@pytest.mark.parametrize("grant", ["grant_use", "grant_start_execution", "grant_read", "grant_fence"])
def test_a_target_is_granted_too_if_each_statement_of_a_function_is_a_policy(grant, outdir, synthesise):
    stack = Stack(App(outdir=outdir, context={SEPARATE: True}), "Test")
    target = function(stack)
    getattr(TicketLock(stack, "Lock", targets=[target]), grant)(target)
    assert may(synthesise(stack), target)


@STACKS
@pytest.mark.parametrize("is_target", [True, False], ids=["target", "client"])
def test_a_lock_waits_for_the_stack_of_its_target_and_that_of_its_client_for_the_lock(is_target, outdir):
    app = App(outdir=outdir)
    user = function(Stack(app, "Functions"))
    lock = TicketLock(Stack(app, "Locks"), "Lock", targets=[user] if is_target else [])
    if not is_target:
        user.add_environment("TABLE", lock.table.table_name)
    lock.grant_use(user)
    needed = {each.stack_name: {other.id for other in each.dependencies} for each in app.synth().stacks}
    assert ("Functions" in needed["Locks"], "Locks" in needed["Functions"]) == (is_target, not is_target)


def lock_over(data, own, given):
    """A lock in its own stack that is given a resource of another stack."""
    match given:
        case "a table":
            table = dynamodb.Table(
                data,
                "Given",
                partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
                sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
                time_to_live_attribute="expiresAt",
            )
            return TicketLock(own, "Lock", table=table)
        case "a topic":
            return TicketLock(own, "Lock", alarms=True, alarm_topic=sns.Topic(data, "OnCall"))
        case "a key":
            return TicketLock(own, "Lock", encryption_key=kms.Key(data, "Key"))
    return TicketLock(own, "Lock")


@STACKS
@pytest.mark.parametrize("given", ["a table", "a topic", "a key", "nothing"])
def test_a_grantee_may_be_in_a_stack_that_the_locks_stack_waits_for_for_whatever_reason(given, outdir, synthesise):
    app = App(outdir=outdir)
    data, own = Stack(app, "Data"), Stack(app, "Own")
    lock, clients = lock_over(data, own, given), [function(stack) for stack in (data, Stack(app, "Other"))]
    for client in clients:
        for grant in (lock.grant_use, lock.grant_read, lock.grant_fence, lock.grant_start_execution):
            grant(client)
    app.synth()
    # The same policies, of which each is in one stack.
    granted = {
        stack.node.id: [id for id in synthesise(stack).of_type("AWS::IAM::Policy") if "BesideGrants" in id]
        for stack in app.node.children
        if isinstance(stack, Stack)
    }
    with_the_lock = 0 if given == "nothing" else 4
    assert {id: len(policies) for id, policies in granted.items()} == {
        "Data": 4 - with_the_lock,
        "Own": with_the_lock,
        "Other": 4,
    }


@STACKS
@pytest.mark.parametrize("given", ["a table", "nothing"])
def test_what_waits_for_a_grant_waits_for_it_wherever_it_is(given, outdir, synthesise):
    app = App(outdir=outdir)
    data, own = Stack(app, "Data"), Stack(app, "Own")
    lock, client = lock_over(data, own, given), function(data)
    place = own if given == "a table" else data
    queue = sqs.Queue(place, "Queue")
    lock.grant_use(client).apply_before(queue)
    found = synthesise(place)
    assert {found.resources[id]["Type"] for id in found.one(queue)["DependsOn"]} == {"AWS::IAM::Policy"}


@STACKS
@pytest.mark.parametrize("is_target", [True, False], ids=["target", "client"])
def test_a_grantee_may_be_in_a_stack_that_is_nested_in_the_locks_stack(is_target, stack, synthesise):
    nested = NestedStack(stack, "Nested")
    user = function(nested)
    TicketLock(stack, "Lock", targets=[user] if is_target else []).grant_use(user)
    outer, inner = (str(list(synthesise(each).statements())) for each in (stack, nested))
    assert "states:SendTaskSuccess" in outer
    # Of a target the outer stack has the name, so that it cannot have the lock's.
    assert ("dynamodb:ConditionCheckItem" in inner) == (not is_target)


@STACKS
def test_a_workflow_may_wait_for_the_whole_lock_that_it_is_attached_to(stack, synthesise):
    lock, workflow = fragment_over(stack, function(stack))
    workflow.node.add_dependency(lock)
    lock.grant_use(function(stack, "Client"))
    assert synthesise(stack).one(workflow)["DependsOn"]


@STACKS
def test_machines_of_the_same_name_in_two_stacks_are_both_served(outdir, synthesise):
    app = App(outdir=outdir)
    targets = [machine(Stack(app, name)) for name in ("Sales", "Returns")]
    lock = TicketLock(Stack(app, "Locks"), "Lock", targets=targets)
    others = [Stack(app, name) for name in ("Orders", "Refunds")]
    for stack in others:
        lock.attach(machine(stack))
    for stack in others:
        actions = {action for one in synthesise(stack).statements() for action in as_list(one["Action"])}
        assert {"states:SendTaskSuccess", "states:DescribeExecution"} <= actions
    stops = [
        one for one in synthesise(Stack.of(lock)).statements(lock.release) if "StopExecution" in str(one["Action"])
    ]
    assert [len(as_list(one["Resource"])) for one in stops] == [len(targets)]


@STACKS
def test_a_grant_that_is_given_twice_is_one_policy(stack, synthesise):
    client, lock = function(stack), TicketLock(stack, "Lock")
    lock.grant_use(client)
    once = list(synthesise(stack).statements(client))
    lock.grant_use(client)
    assert list(synthesise(Stack.of(lock)).statements(client)) == once


@STACKS
@pytest.mark.parametrize("kind", [iam.User, iam.Group])
def test_users_and_groups_are_granted_too(kind, stack, synthesise):
    grantee = kind(stack, "Grantee")
    TicketLock(stack, "Lock").grant_use(grantee)
    found = synthesise(stack)
    (policy,) = [each for each in found.of_type("AWS::IAM::Policy").values() if f"{kind.__name__}s" in each]
    assert policy[f"{kind.__name__}s"] == [{"Ref": found.id_of(grantee)}]


# The clean-up's dead letters.


@STACKS
@pytest.mark.parametrize("flag", [True, False], ids=["a policy for each statement", "one policy"])
@pytest.mark.parametrize("key", [True, False], ids=["with a key", "without"])
def test_the_queue_becomes_a_destination_only_after_the_function_may_send_to_it(key, flag, outdir, synthesise):
    stack = Stack(App(outdir=outdir, context={SEPARATE: flag}), "Test")
    lock = TicketLock(stack, "Lock", encryption_key=kms.Key(stack, "Key") if key else None)
    found = synthesise(stack)
    (config,) = [each for each in found.resources.values() if each["Type"] == "AWS::Lambda::EventInvokeConfig"]
    queue = {"Fn::GetAtt": [found.id_of(lock.dead_letter_queue), "Arn"]}
    assert config["Properties"]["DestinationConfig"]["OnFailure"]["Destination"] == queue
    awaited = [found.resources[id] for id in waits_for(found.resources, config)]
    statements = [
        statement
        for each in awaited
        if each["Type"] == "AWS::IAM::Policy"
        and {"Ref": found.id_of(lock.clean_up.role)} in each["Properties"]["Roles"]
        for statement in each["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert [one["Resource"] for one in statements if one["Action"] == "sqs:SendMessage"] == [queue]
    assert bool([one for one in statements if "kms:GenerateDataKey" in one["Action"]]) == key


def waits_for(resources, resource):
    """The resources that CloudFormation creates before it, as the template says: directly or indirectly."""
    found: set[str] = set()
    left = [resource]
    while left:
        waiting = left.pop()
        new = {id for id in resources if refers_to(waiting, id)} - found
        found |= new
        left += [resources[id] for id in new]
    return found


def refers_to(value, id):
    if isinstance(value, dict):
        awaited = value.get("DependsOn", [])
        direct = value.get("Ref") == id or (value.get("Fn::GetAtt") or [None])[0] == id
        return direct or id in awaited or any(refers_to(inner, id) for inner in value.values())
    return isinstance(value, list) and any(refers_to(inner, id) for inner in value)
