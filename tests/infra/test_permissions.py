"""Permissions: everything that a step uses, what each grant allows, and nothing else."""

from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # ships no types
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from kit.events import execution_arn, turn_of
from kit.pages import text
from kit.stacks import allowed, as_list, function, machine
from ticketlock_cdk import TicketLock

from ticketlock import Claim, Grant, LockName, LockTable
from ticketlock.locks._protocol import READ_TO_WAKE
from ticketlock.locks._reads import LISTED
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.workflow import Workflow

FUNCTION = "arn:aws:lambda:us-east-1:111122223333:function:work"
# Each of them may have to wake the next in line.
TO_WAKE = {"ConditionCheckItem", "GetItem", "Query", "UpdateItem"}
ON_THE_TABLE = {
    "take_ticket": TO_WAKE | {"DeleteItem", "PutItem"},
    "check_position": TO_WAKE | {"DeleteItem", "PutItem"},
    "wait_for_wake_up": TO_WAKE,
    "heartbeat": TO_WAKE,
    "release": TO_WAKE,
    "clean_up": TO_WAKE | {"BatchGetItem", "DeleteItem"},
}
ANSWERS = {
    "take_ticket": {"states:SendTaskFailure", "states:SendTaskSuccess"},
    "wait_for_wake_up": {"states:SendTaskSuccess"},
    "check_position": {"states:SendTaskSuccess"},
    "heartbeat": {"states:SendTaskFailure", "states:SendTaskSuccess"},
    "release": {"states:SendTaskFailure", "states:SendTaskSuccess"},
    "clean_up": {"states:SendTaskSuccess"},
}
CLOSE = {"release", "clean_up"}
# These have no resources that a policy could name, and so AWS demands "*":
XRAY = "https://docs.aws.amazon.com/xray/latest/devguide/security_iam_service-with-iam.html"
LOG_DELIVERY = "https://docs.aws.amazon.com/step-functions/latest/dg/cw-logs.html"
# DescribeNetworkInterfaces works only on all resources; an interface has no name before it is created.
INTERFACES = "https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions"
ON_EVERYTHING = {
    "ec2:AssignPrivateIpAddresses": INTERFACES,
    "ec2:CreateNetworkInterface": INTERFACES,
    "ec2:DeleteNetworkInterface": INTERFACES,
    "ec2:DescribeNetworkInterfaces": INTERFACES,
    "ec2:DescribeSubnets": INTERFACES,
    "ec2:UnassignPrivateIpAddresses": INTERFACES,
    "logs:CreateLogDelivery": LOG_DELIVERY,
    "logs:DeleteLogDelivery": LOG_DELIVERY,
    "logs:DescribeLogGroups": LOG_DELIVERY,
    "logs:DescribeResourcePolicies": LOG_DELIVERY,
    "logs:GetLogDelivery": LOG_DELIVERY,
    "logs:ListLogDeliveries": LOG_DELIVERY,
    "logs:PutResourcePolicy": LOG_DELIVERY,
    "logs:UpdateLogDelivery": LOG_DELIVERY,
    "xray:GetSamplingRules": XRAY,
    "xray:GetSamplingTargets": XRAY,
    "xray:PutTelemetryRecords": XRAY,
    "xray:PutTraceSegments": XRAY,
}
# The names of executions that are not started yet: those of a target, with the prefix of a TicketLock's own.
ON_A_PATTERN = {"states:DescribeExecution", "states:StopExecution"}


def actions(statements):
    return {action for statement in statements for action in as_list(statement["Action"])}


@pytest.mark.parametrize("step", ON_THE_TABLE)
def test_a_step_may_do_what_it_does_and_nothing_else(step, typical):
    """It answers tasks of its own machines only; a dead letter goes to the queue only."""
    found, lock = typical.synthesised, typical.lock
    machines = [id for id in found.of_type("AWS::StepFunctions::StateMachine") if id.startswith("Lock")]
    names = {f"<{id}>": "a machine" for id in machines}
    names |= {f"<{found.id_of(lock.table)}>": "the table", f"<{found.id_of(lock.dead_letter_queue)}>": "the queue"}
    names |= {f"<{id}>": "a log" for id in found.of_type("AWS::Logs::LogGroup")}
    may = allowed(found, typical.functions[step], names)
    # The names of nested executions; the test of wildcards below asks which.
    nested = [may.pop(resource) for resource in list(may) if ":execution:" in resource]
    assert {action for each in nested for action in each} == (ON_A_PATTERN if step in CLOSE else set())
    assert may == {
        "the table": {f"dynamodb:{action}" for action in ON_THE_TABLE[step]},
        "a log": {"logs:CreateLogStream", "logs:PutLogEvents"},
        "*": {"xray:PutTelemetryRecords", "xray:PutTraceSegments"},
        **({"a machine": ANSWERS[step]} if step in ANSWERS else {}),
        **({"the queue": {"sqs:SendMessage"}} if step == "clean_up" else {}),
    }
    answered = [one for one in found.statements(typical.functions[step]) if "SendTask" in str(one["Action"])]
    assert {found.text(each) for one in answered for each in as_list(one["Resource"])} == {
        f"<{id}>" for id in machines if step in ANSWERS
    }


def test_a_first_step_that_finds_a_crashed_waiter_has_the_permissions_that_it_needs():
    clock = ManualClock()
    memory = MemoryDynamoDB(clock=clock)
    table = LockTable("locks", client=memory.client, clocks=clock, sleep=clock.sleep)
    holder, killed = (Claim(LockName("order-42"), owner, 10_000) for owner in ("holder", "killed"))
    held = table.take_ticket(holder, None)
    assert isinstance(held, Grant)
    table.take_ticket(killed, None)
    table.release(holder, held)
    clock.advance(30)
    memory.sent.clear()
    asked = {"entity": "order-42", "task": {"functionArn": FUNCTION}}
    assert turn_of(Workflow(table), execution_arn(), asked, targets=[FUNCTION])["status"] == "granted"
    sent = {request.operation for request in memory.sent}
    assert "DeleteItem" in sent
    assert sent <= ON_THE_TABLE["take_ticket"]


@pytest.fixture(params=["typical", "everything", "ready_made"])
def whole(request):
    """Every role of a stack: the construct as it is, with all that can be asked for, and the ready-made stack."""
    fixture = request.getfixturevalue(request.param)
    return getattr(fixture, "synthesised", fixture)


def test_no_role_has_a_managed_policy_and_no_statement_allows_what_it_does_not_name(whole):
    roles = {id: role for id, role in whole.of_type("AWS::IAM::Role").items() if not id.startswith("WorkServiceRole")}
    assert len(roles) >= 5
    assert not [id for id, role in roles.items() if "ManagedPolicyArns" in role or "Policies" in role]
    assert not [action for action in actions(whole.statements()) if "*" in action]
    assert not [one for one in whole.statements() if {"NotAction", "NotResource"} & set(one)]


def test_only_actions_without_resources_are_allowed_on_everything(whole):
    on_everything = [one for one in whole.statements() if "*" in as_list(one["Resource"]) and one["Effect"] == "Allow"]
    assert on_everything
    assert actions(on_everything) - set(ON_EVERYTHING) == set()


def test_the_only_other_wildcard_is_that_of_the_nested_executions(whole):
    with_wildcards = [
        one for one in whole.statements() if "*" in str(one["Resource"]) and "*" not in as_list(one["Resource"])
    ]
    assert with_wildcards
    assert actions(with_wildcards) == ON_A_PATTERN
    patterns = {whole.text(resource) for one in with_wildcards for resource in as_list(one["Resource"])}
    for pattern in patterns:
        machine, _, names = pattern.rpartition(":")
        assert ":execution:" in machine
        assert "*" not in machine
        # Of a target only executions that a TicketLock started; of its own machines all, whose names are free.
        assert names == ("*" if "Serialize" in machine else "lock-*")


def test_the_machine_may_do_what_its_states_do_and_nothing_else(typical):
    found, lock = typical.synthesised, typical.lock
    by_action: dict[str, set[str]] = {}
    for resource, its_actions in allowed(found, lock.state_machine).items():
        for action in its_actions:
            by_action.setdefault(action, set()).add(resource)
    own = [function for step, function in typical.functions.items() if step != "clean_up"]
    invoked = {found.id_of(function) for function in [*own, typical.target_function]}
    assert by_action.pop("lambda:InvokeFunction") == {
        f"<{id}>" for id in {*invoked, *found.of_type("AWS::Lambda::Alias")}
    }
    # Its continuation, and never itself: an execution could start others without end.
    target, me = found.id_of(typical.target_machine), found.id_of(lock.state_machine)
    machines = set(found.of_type("AWS::StepFunctions::StateMachine"))
    assert by_action.pop("states:StartExecution") == {f"<{id}>" for id in machines - {me}}
    [of_the_target] = [each for each in by_action["states:StopExecution"] if f"<{target}>" in each]
    assert of_the_target.endswith(f"<part 6 of <{target}>>:lock-*")
    assert by_action.pop("states:StopExecution") == by_action.pop("states:DescribeExecution")
    for action in ("events:DescribeRule", "events:PutRule", "events:PutTargets"):
        [rule] = by_action.pop(action)
        assert rule.endswith(":rule/StepFunctionsGetEventsForStepFunctionsExecutionRule")
    assert by_action.pop("dynamodb:UpdateItem") == {f"<{found.id_of(lock.table)}>"}
    assert {action: on for action, on in by_action.items() if on != {"*"}} == {}


def test_only_the_rule_of_the_clean_up_may_invoke_a_function_beside_the_machine(typical):
    """A principal that may invoke a function may forge the turn that it passes."""
    (let_in,) = typical.synthesised.of_type("AWS::Lambda::Permission").values()
    assert let_in["Principal"] == "events.amazonaws.com"
    (rule,) = typical.synthesised.of_type("AWS::Events::Rule")
    assert let_in["SourceArn"] == {"Fn::GetAtt": [rule, "Arn"]}
    assert let_in["FunctionName"] == {"Fn::GetAtt": [typical.synthesised.id_of(typical.lock.clean_up), "Arn"]}


@pytest.mark.parametrize("name", ["StateMachine", "Continue"])
def test_a_machine_may_use_the_key_for_its_executions_those_that_it_awaits_and_its_logs(name, everything, found):
    """Not by kms:ViaService, which would let no execution start.

    https://docs.aws.amazon.com/step-functions/latest/dg/encryption-at-rest.html
    """
    machine = everything.lock.node.find_child("Serialize").node.find_child(name)
    key = {"Fn::GetAtt": [found.id_of(everything.key), "Arn"]}
    assert found.one(machine)["Properties"]["EncryptionConfiguration"] == {
        "Type": "CUSTOMER_MANAGED_KMS_KEY",
        "KmsKeyId": key,
    }
    here = "<AWS::Region>:<AWS::AccountId>"
    allowed = {
        (operator, context, found.text(value), action)
        for one in found.statements(machine)
        if one["Resource"] == key
        for operator, names in one.get("Condition", {}).items()
        for context, value in names.items()
        for action in as_list(one["Action"])
    }
    machines = f"arn:<AWS::Partition>:states:{here}:stateMachine:*"
    of_data = ("StringLike", "kms:EncryptionContext:aws:states:stateMachineArn", machines)
    of_logs = ("StringEquals", "kms:EncryptionContext:SourceArn", f"arn:<AWS::Partition>:logs:{here}:*")
    assert allowed == {
        (*of_data, "kms:Decrypt"),
        (*of_data, "kms:GenerateDataKey"),
        (*of_logs, "kms:GenerateDataKey"),
    }


def test_the_delivery_of_logs_may_decrypt_with_the_key(everything, found):
    policy = found.one(everything.key)["Properties"]["KeyPolicy"]["Statement"]
    delivery = {"Service": "delivery.logs.amazonaws.com"}
    assert [one["Action"] for one in policy if one["Principal"] == delivery] == ["kms:Decrypt"]


@pytest.mark.verify("a stack of its own, synthesised")
def test_with_a_table_of_another_key_only_those_who_answer_tasks_of_the_machines_may_use_the_key(stack, synthesise):
    key, client = kms.Key(stack, "Key"), function(stack, "Client")
    lock = TicketLock(stack, "Lock", table="locks", encryption_key=key)
    lock.grant_use(client)
    other = function(stack, "Other")
    found = synthesise(stack)
    steps = (lock.take_ticket, lock.wait_for_wake_up, lock.check_position, lock.heartbeat, lock.release, lock.clean_up)
    use = {"kms:Decrypt", "kms:GenerateDataKey"}
    for step, may in (*((step, use) for step in (*steps, client)), (other, None)):
        assert allowed(found, step).get(f"<{found.id_of(key)}>") == may, step.node.id


@pytest.mark.verify("a stack of its own, synthesised")
@pytest.mark.parametrize("table", ["its own", "given", "given with a key"])
def test_an_attached_machine_may_decrypt_what_it_awaits_whatever_key_the_table_has(table, stack, synthesise):
    key, given = kms.Key(stack, "Key"), None
    if table != "its own":
        other = kms.Key(stack, "Other") if table == "given with a key" else None
        given = dynamodb.Table.from_table_attributes(stack, "Given", table_name="locks", encryption_key=other)
    lock, workflow = TicketLock(stack, "Lock", table=given, encryption_key=key), machine(stack)
    lock.attach(workflow)
    found = synthesise(stack)
    assert "kms:Decrypt" in allowed(found, workflow)[f"<{found.id_of(key)}>"]


def test_only_machines_of_this_account_and_region_may_have_the_roles_of_machines(whole):
    """Lambda's pages document no such condition for the roles of functions.

    https://docs.aws.amazon.com/step-functions/latest/dg/procedure-create-iam-role.html#prevent-cross-service-confused-deputy
    """
    trusted: dict[str, list[Any]] = {}
    for id, role in whole.of_type("AWS::IAM::Role").items():
        if id.startswith(("Lock", "TicketLock")):
            [statement] = role["AssumeRolePolicyDocument"]["Statement"]
            trusted.setdefault(statement["Principal"]["Service"], []).append(statement.get("Condition"))
    assert set(map(str, trusted.pop("lambda.amazonaws.com"))) == {"None"}
    [(service, conditions)] = trusted.items()
    assert (service, len(conditions)) == ("states.amazonaws.com", 2)
    for condition in conditions:
        assert {operator: list(names) for operator, names in condition.items()} == {
            "ArnLike": ["aws:SourceArn"],
            "StringEquals": ["aws:SourceAccount"],
        }
        source = whole.text(condition["ArnLike"]["aws:SourceArn"])
        assert source == "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:*"
        assert condition["StringEquals"]["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}


def test_the_machine_itself_writes_sessions_and_no_locks(typical):
    [write] = [one for one in typical.synthesised.statements(typical.lock.state_machine) if "dynamodb:" in str(one)]
    assert write["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["session#*"]}}


# What each grant allows: what the principal needs, and nothing that belongs to another role.


READS_THE_KEY = {"kms:Decrypt", "kms:DescribeKey"}
USES_THE_KEY = READS_THE_KEY | {
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
}


@pytest.fixture
def found(everything):
    return everything.synthesised


def on_the_table(found, principal):
    """The actions with the conditions on them."""
    statements = [one for one in found.statements(principal) if "dynamodb:" in str(one["Action"])]
    return [(as_list(one["Action"]), one.get("Condition")) for one in statements]


@pytest.mark.parametrize(("principal", "policy"), [("client", "UseLocks"), ("operator", "ReadLocks")])
def test_a_grant_allows_on_the_table_what_the_policy_of_the_template_does(principal, policy, everything, found):
    """`tests/security` shows what that policy refuses."""
    template = yaml.safe_load(text("examples/locks.yaml"))
    written = template["Resources"][policy]["Properties"]["PolicyDocument"]["Statement"]
    expected = [(sorted(as_list(one["Action"])), one.get("Condition")) for one in written]
    granted = on_the_table(found, getattr(everything, principal))
    assert [(sorted(its_actions), condition) for its_actions, condition in granted] == expected


def test_each_grant_allows_its_principal_nothing_else(everything, found):
    lock, key = everything.lock, f"<{found.id_of(everything.key)}>"
    table, machine = f"<{found.id_of(lock.table)}>", f"<{found.id_of(lock.state_machine)}>"
    assert allowed(found, everything.starter) == {machine: {"states:StartExecution"}}
    of_client = allowed(found, everything.client)
    assert of_client.pop(key) == USES_THE_KEY
    del of_client[table]
    # It wakes the next workflow, and neither starts nor fails nor stops one.
    assert of_client == {
        f"<{id}>": {"states:SendTaskSuccess"} for id in found.of_type("AWS::StepFunctions::StateMachine")
    }
    assert allowed(found, everything.operator).keys() == {table, key}
    assert allowed(found, everything.operator)[key] == READS_THE_KEY
    assert allowed(found, everything.task) == {table: {"dynamodb:ConditionCheckItem"}, key: READS_THE_KEY}
    # A check always names its key.
    sessions = {"ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": ["session#*"]}}
    assert on_the_table(found, everything.task) == [(["dynamodb:ConditionCheckItem"], sessions)]


def test_the_attributes_that_grants_name_are_those_that_are_read_and_no_secrets(everything, found):
    to_wake, listed = (
        condition["ForAllValues:StringEquals"]["dynamodb:Attributes"]
        for principal in (everything.client, everything.operator)
        for _, condition in on_the_table(found, principal)
        if "ForAllValues:StringEquals" in condition
    )
    assert to_wake == list(READ_TO_WAKE)
    # Keys must be among them: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    assert {"pk", "sk", "shared", "leaseUntilMs", *LISTED} <= set(listed)
    assert not [name for name in listed if "task" in name.lower() or "wake" in name.lower() or "*" in name]


@pytest.mark.verify("a stack of its own, synthesised")
def test_a_table_without_a_key_of_its_own_needs_none(stack, synthesise):
    lock, client = TicketLock(stack, "Lock"), function(stack)
    lock.grant_use(client)
    lock.grant_read(client)
    lock.grant_fence(client)
    assert "kms:" not in str(list(synthesise(stack).statements(client)))


@pytest.mark.verify("a stack of its own, synthesised")
def test_an_imported_table_is_granted_too(stack, synthesise):
    lock = TicketLock(stack, "Lock", table=dynamodb.Table.from_table_name(stack, "Given", "locks"))
    client = function(stack)
    assert lock.grant_use(client).success
    assert [resource for resource in allowed(synthesise(stack), client) if resource.endswith("table/locks")]
