"""What each grant allows: what the principal needs, and nothing that belongs to another role."""

import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from ticketlock_cdk import TicketLock

from ticketlock.locks._hand_over import READ_TO_WAKE
from ticketlock.locks._reads import LISTED

READS_THE_KEY = {"kms:Decrypt", "kms:DescribeKey"}
USES_THE_KEY = READS_THE_KEY | {
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
}


def as_list(value):
    return value if isinstance(value, list) else [value]


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
