"""Permissions: everything that a step uses, what each grant allows, and nothing else."""

import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from kit.stacks import as_list
from ticketlock_cdk import TicketLock

from ticketlock import Claim, Grant, LockName, LockTable
from ticketlock.locks._protocol import READ_TO_WAKE
from ticketlock.locks._reads import LISTED
from ticketlock.testing import ManualClock, MemoryDynamoDB
from ticketlock.workflow import Workflow

FUNCTION = "arn:aws:lambda:us-east-1:111122223333:function:work"
ON_THE_TABLE = {
    "take_ticket": {"DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"},
    "check_position": {"DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"},
    "wait_for_wake_up": {"GetItem", "Query", "UpdateItem"},
    "heartbeat": {"GetItem", "Query", "UpdateItem"},
    "release": {"GetItem", "Query", "UpdateItem"},
    "clean_up": {"BatchGetItem", "DeleteItem", "GetItem", "Query", "UpdateItem"},
}
ANSWERS = {"states:SendTaskFailure", "states:SendTaskSuccess"}
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
def test_a_step_may_send_only_its_own_requests_to_the_table(step, typical):
    found = [one for one in typical.synthesised.statements(typical.functions[step]) if "dynamodb:" in str(one)]
    assert actions(found) == {f"dynamodb:{action}" for action in ON_THE_TABLE[step]}
    table = {"Fn::GetAtt": [typical.synthesised.id_of(typical.lock.table), "Arn"]}
    assert [one["Resource"] for one in found] == [table]


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
    taken = Workflow(table).take_ticket(
        {
            "request": {"entity": "order-42", "task": {"functionArn": FUNCTION}},
            "targets": [FUNCTION],
            "execution": "arn:aws:states:us-east-1:111122223333:execution:serialize:one",
            "defaultRecordWaitSeconds": "Infinity",
            "defaultPermits": 1,
            "leaseSeconds": 60,
            "pollSeconds": 5,
            "handOver": "poll",
            "continueMachine": "",
            "pollsAnExecution": 450,
            "beatsAnExecution": 2_000,
        }
    )
    assert taken.reply["lock"]["turn"]["status"] == "granted"
    sent = {request.operation for request in memory.sent}
    assert "DeleteItem" in sent
    assert sent <= ON_THE_TABLE["take_ticket"]


@pytest.fixture
def machines(typical):
    """The logical ids of the construct's own state machines."""
    return {id for id in typical.synthesised.of_type("AWS::StepFunctions::StateMachine") if id.startswith("Lock")}


def test_the_first_step_may_answer_no_task(typical):
    assert not actions(typical.synthesised.statements(typical.lock.take_ticket)) & ANSWERS


@pytest.mark.parametrize(
    ("step", "answers"),
    [
        ("wait_for_wake_up", {"states:SendTaskSuccess"}),
        ("check_position", {"states:SendTaskSuccess"}),
        ("heartbeat", ANSWERS),
        ("release", ANSWERS),
        ("clean_up", {"states:SendTaskSuccess"}),
    ],
)
def test_a_step_may_answer_tasks_of_its_own_machines_only(step, answers, typical, machines):
    found = [
        one for one in typical.synthesised.statements(typical.functions[step]) if ANSWERS & set(as_list(one["Action"]))
    ]
    assert actions(found) == answers
    assert {resource["Ref"] for one in found for resource in as_list(one["Resource"])} == machines


def test_a_step_may_do_nothing_else(typical):
    more = {
        "release": {"states:DescribeExecution", "states:StopExecution"},
        "clean_up": {
            "sqs:SendMessage",
            "states:DescribeExecution",
            "states:StopExecution",
        },
    }
    for step, function in typical.functions.items():
        rest = actions(typical.synthesised.statements(function)) - ANSWERS
        assert {action for action in rest if not action.startswith("dynamodb:")} == {
            "logs:CreateLogStream",
            "logs:PutLogEvents",
            "xray:PutTelemetryRecords",
            "xray:PutTraceSegments",
        } | more.get(step, set()), step


def test_the_clean_up_sends_to_the_dead_letter_queue_only(typical):
    [send] = [
        one for one in typical.synthesised.statements(typical.lock.clean_up) if "sqs:SendMessage" in one["Action"]
    ]
    assert send["Resource"] == {"Fn::GetAtt": [typical.synthesised.id_of(typical.lock.dead_letter_queue), "Arn"]}


@pytest.fixture(params=["typical", "everything", "ready_made"])
def whole(request):
    """Every role of a stack: the construct as it is, with all that can be asked for, and the ready-made stack."""
    fixture = request.getfixturevalue(request.param)
    return getattr(fixture, "synthesised", fixture)


def test_no_role_has_a_managed_policy(whole):
    roles = {id: role for id, role in whole.of_type("AWS::IAM::Role").items() if not id.startswith("WorkServiceRole")}
    assert len(roles) >= 5
    assert not [id for id, role in roles.items() if "ManagedPolicyArns" in role or "Policies" in role]


def test_no_action_is_a_wildcard(whole):
    assert not [action for action in actions(whole.statements()) if "*" in action]


def test_no_statement_uses_notaction_or_notresource(whole):
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
        assert names == "lock-*" or (names == "*" and "Serialize" in machine)


def test_the_machine_invokes_its_functions_and_the_targets_only(typical):
    found = typical.synthesised
    [invoke] = [one for one in found.statements(typical.lock.state_machine) if one["Action"] == "lambda:InvokeFunction"]
    own = [function for step, function in typical.functions.items() if step != "clean_up"]
    allowed = {found.id_of(function) for function in [*own, typical.target_function]}
    aliases = set(found.of_type("AWS::Lambda::Alias"))
    assert {found.text(resource) for resource in invoke["Resource"]} == {f"<{id}>" for id in allowed | aliases}


def test_only_the_rule_of_the_clean_up_may_invoke_a_function_beside_the_machine(typical):
    """A principal that may invoke a function may forge the turn that it passes."""
    (let_in,) = typical.synthesised.of_type("AWS::Lambda::Permission").values()
    assert let_in["Principal"] == "events.amazonaws.com"
    (rule,) = typical.synthesised.of_type("AWS::Events::Rule")
    assert let_in["SourceArn"] == {"Fn::GetAtt": [rule, "Arn"]}
    assert let_in["FunctionName"] == {"Fn::GetAtt": [typical.synthesised.id_of(typical.lock.clean_up), "Arn"]}


def test_the_machine_starts_the_target_and_its_own_continuation_only(typical, machines):
    [start] = [one for one in typical.synthesised.statements() if one["Action"] == "states:StartExecution"]
    started = {each["Ref"] for each in start["Resource"]} - machines
    assert started == {typical.synthesised.id_of(typical.target_machine)}
    # Never itself: an execution could start others without end.
    assert typical.synthesised.id_of(typical.lock.state_machine) not in {each["Ref"] for each in start["Resource"]}


def test_the_machine_follows_and_stops_only_executions_that_it_started(typical):
    [follow] = [
        one
        for one in typical.synthesised.statements(typical.lock.state_machine)
        if "states:StopExecution" in as_list(one["Action"])
    ]
    target = typical.synthesised.id_of(typical.target_machine)
    [of_the_target] = [
        pattern for pattern in map(typical.synthesised.text, follow["Resource"]) if f"<{target}>" in pattern
    ]
    assert of_the_target.endswith(f"<part 6 of <{target}>>:lock-*")


def test_the_machine_may_use_the_one_rule_that_reports_nested_executions(typical):
    [rule] = [one for one in typical.synthesised.statements() if "events:PutRule" in as_list(one["Action"])]
    assert set(rule["Action"]) == {"events:DescribeRule", "events:PutRule", "events:PutTargets"}
    assert rule["Resource"]["Fn::Join"][1][-1] == ":rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"


def test_the_machine_itself_writes_sessions_and_no_locks(typical):
    [write] = [
        one for one in typical.synthesised.statements(typical.lock.state_machine) if "dynamodb:" in str(one["Action"])
    ]
    assert write["Action"] == "dynamodb:UpdateItem"
    assert write["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["session#*"]}}
    assert write["Resource"] == {"Fn::GetAtt": [typical.synthesised.id_of(typical.lock.table), "Arn"]}


# What each grant allows: what the principal needs, and nothing that belongs to another role.


READS_THE_KEY = {"kms:Decrypt", "kms:DescribeKey"}
USES_THE_KEY = READS_THE_KEY | {
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
}


def granted(found, role):
    """Each action with the statement that allows it; the first, if there are several."""
    return {action: one for one in reversed(list(found.statements(role))) for action in as_list(one["Action"])}


@pytest.fixture
def found(everything):
    return everything.synthesised


@pytest.fixture
def table(everything, found):
    return {"Fn::GetAtt": [found.id_of(everything.lock.table), "Arn"]}


@pytest.fixture
def key(everything, found):
    return {"Fn::GetAtt": [found.id_of(everything.key), "Arn"]}


def test_a_starter_may_start_executions_and_nothing_else(everything, found):
    allowed = granted(found, everything.starter)
    assert set(allowed) == {"states:StartExecution"}
    assert allowed["states:StartExecution"]["Resource"] == {"Ref": found.id_of(everything.lock.state_machine)}


def test_a_client_may_send_the_requests_of_the_protocol(everything, found, table):
    allowed = granted(found, everything.client)
    on_the_table = {action: one for action, one in allowed.items() if action.startswith("dynamodb:")}
    assert set(on_the_table) == {
        f"dynamodb:{name}" for name in ("ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem")
    }
    assert all(one["Resource"] == table for one in on_the_table.values())


def test_a_client_cannot_read_or_write_sessions_by_their_keys(everything, found):
    allowed = granted(found, everything.client)
    conditions = [one["Condition"] for action, one in allowed.items() if action.startswith("dynamodb:")]
    assert conditions
    for condition in conditions:
        assert condition == {
            "ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": ["session#*"]},
            # ForAllValues is true for a request without keys.
            "Null": {"dynamodb:LeadingKeys": "false"},
        }


def test_a_client_reads_only_the_wake_up_token_of_a_session(everything, found, table):
    on_the_table = [one for one in found.statements(everything.client) if "dynamodb:" in str(one["Action"])]
    (of_sessions,) = [one for one in on_the_table if "ForAllValues:StringLike" in one["Condition"]]
    assert of_sessions["Action"] == "dynamodb:Query"
    assert of_sessions["Resource"] == table
    assert of_sessions["Condition"] == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["session#*"]},
        "ForAllValues:StringEquals": {"dynamodb:Attributes": ["pk", "sk", "wakeUpToken"]},
        "Null": {"dynamodb:LeadingKeys": "false", "dynamodb:Attributes": "false"},
        "StringEquals": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
    }
    assert of_sessions["Condition"]["ForAllValues:StringEquals"]["dynamodb:Attributes"] == list(READ_TO_WAKE)


def test_a_client_may_wake_the_next_workflow_of_this_lock(everything, found):
    wake = granted(found, everything.client)["states:SendTaskSuccess"]
    machines = found.of_type("AWS::StepFunctions::StateMachine")
    assert {one["Ref"] for one in as_list(wake["Resource"])} == set(machines)


def test_a_client_may_neither_start_nor_fail_nor_stop_a_workflow(everything, found):
    states = {action for action in granted(found, everything.client) if action.startswith("states:")}
    assert states == {"states:SendTaskSuccess"}


def test_a_client_may_use_the_key_of_the_table(everything, found, key):
    allowed = granted(found, everything.client)
    assert {action for action in allowed if action.startswith("kms:")} == USES_THE_KEY
    assert allowed["kms:Decrypt"]["Resource"] == key


def test_an_operator_may_read_and_list_and_write_nothing(everything, found, table):
    allowed = granted(found, everything.operator)
    on_the_table = {action: one for action, one in allowed.items() if action.startswith("dynamodb:")}
    assert set(on_the_table) == {f"dynamodb:{name}" for name in ("GetItem", "Query", "Scan")}
    assert all(one["Resource"] == table for one in on_the_table.values())
    assert set(allowed) - set(on_the_table) == READS_THE_KEY


@pytest.mark.parametrize("action", ["dynamodb:GetItem", "dynamodb:Query"])
def test_an_operator_cannot_read_sessions_by_their_keys(action, everything, found):
    assert granted(found, everything.operator)[action]["Condition"] == {
        "ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": ["session#*"]},
        # ForAllValues is true for a request without keys.
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


def test_an_operator_lists_named_attributes_without_secrets(everything, found):
    condition = granted(found, everything.operator)["dynamodb:Scan"]["Condition"]
    listed = condition.pop("ForAllValues:StringEquals")["dynamodb:Attributes"]
    # Keys must be among them: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
    assert {"pk", "sk", "shared", "leaseUntilMs", *LISTED} <= set(listed)
    assert not [name for name in listed if "task" in name.lower() or "wake" in name.lower() or "*" in name]
    assert condition == {
        "Null": {"dynamodb:Attributes": "false"},
        # Otherwise the reply has all attributes, also those that the list excludes.
        "StringEquals": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
    }


def test_a_task_may_check_that_a_lock_is_held_and_nothing_else(everything, found, table, key):
    allowed = granted(found, everything.task)
    assert set(allowed) == {"dynamodb:ConditionCheckItem"} | READS_THE_KEY
    assert allowed["dynamodb:ConditionCheckItem"] == {
        "Action": "dynamodb:ConditionCheckItem",
        "Effect": "Allow",
        "Resource": table,
        # A check always names its key.
        "Condition": {"ForAllValues:StringNotLike": {"dynamodb:LeadingKeys": ["session#*"]}},
    }
    assert allowed["kms:Decrypt"]["Resource"] == key


@pytest.mark.verify("a stack of its own, synthesised")
def test_a_table_without_a_key_of_its_own_needs_none(stack, synthesise):
    lock = TicketLock(stack, "Lock")
    role = iam.Role(stack, "Client", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    lock.grant_use(role)
    lock.grant_read(role)
    lock.grant_fence(role)
    assert "kms:" not in str(list(synthesise(stack).statements(role)))


@pytest.mark.verify("a stack of its own, synthesised")
def test_an_imported_table_is_granted_too(stack, synthesise):
    lock = TicketLock(stack, "Lock", table=dynamodb.Table.from_table_name(stack, "Given", "locks"))
    role = iam.Role(stack, "Client", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    grant = lock.grant_use(role)
    assert grant.success
    assert "table/locks" in str(granted(synthesise(stack), role)["dynamodb:GetItem"]["Resource"])
