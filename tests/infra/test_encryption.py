"""A key of the user's: it encrypts everything that is stored, and all principals that need it may use it."""

import pytest
from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match
from ticketlock_cdk import TicketLock

pytestmark = pytest.mark.verify("stacks of its own, each synthesised")

KEY_ARN = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000"


@pytest.fixture
def key_arn(everything):
    return {"Fn::GetAtt": [everything.synthesised.id_of(everything.key), "Arn"]}


@pytest.fixture
def of_service(everything):
    """The key policy's statements for services."""
    policy = everything.synthesised.one(everything.key)["Properties"]["KeyPolicy"]
    return [one for one in policy["Statement"] if "Service" in one["Principal"]]


def test_it_encrypts_the_table(everything, key_arn):
    table = everything.synthesised.one(everything.lock.table)["Properties"]
    assert table["SSESpecification"] == {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key_arn}


def test_it_encrypts_every_log_group(everything, key_arn):
    groups = everything.synthesised.of_type("AWS::Logs::LogGroup")
    assert groups
    assert all(group["KmsKeyId"] == key_arn for group in groups.values())


def test_every_step_and_every_machine_may_use_it(everything):
    for user in (*everything.functions, everything.lock.state_machine):
        actions = {
            action
            for one in everything.synthesised.statements(user)
            for action in one["Action"]
            if action.startswith("kms:")
        }
        assert {"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"} <= actions
        assert not [action for action in actions if "*" in action]


def test_it_encrypts_every_queue(everything, key_arn):
    queues = everything.synthesised.of_type("AWS::SQS::Queue")
    assert queues
    assert all(queue["KmsMasterKeyId"] == key_arn for queue in queues.values())


def test_the_clean_up_may_use_it_to_send_a_dead_letter(everything, key_arn):
    [sends] = [
        one
        for one in everything.synthesised.statements(everything.lock.clean_up)
        if len(one["Action"]) == 2 and one["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    ]
    assert sends["Resource"] == key_arn


def test_its_policy_lets_the_rules_of_this_account_use_it(of_service):
    [events] = [one for one in of_service if one["Principal"]["Service"] == "events.amazonaws.com"]
    assert events["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    [pattern] = events["Condition"]["ArnLike"].values()
    assert list(events["Condition"]["ArnLike"]) == ["aws:SourceArn"]
    assert pattern["Fn::Join"][1][-2:] == [{"Ref": "AWS::AccountId"}, ":rule/*"]


def test_its_policy_lets_no_other_principal_use_it(of_service):
    assert len(of_service) == 2


def test_its_policy_lets_the_logs_of_this_account_and_region_use_it(of_service):
    [logs] = [one for one in of_service if one["Principal"]["Service"] != "events.amazonaws.com"]
    assert logs["Principal"]["Service"]["Fn::Join"][1] == ["logs.", {"Ref": "AWS::Region"}, ".amazonaws.com"]
    [pattern] = logs["Condition"]["ArnLike"].values()
    assert list(logs["Condition"]["ArnLike"]) == ["kms:EncryptionContext:aws:logs:arn"]
    assert {"Ref": "AWS::AccountId"} in pattern["Fn::Join"][1]
    assert {"Ref": "AWS::Region"} in pattern["Fn::Join"][1]
    assert not [action for action in logs["Action"] if "*" in action]


def test_without_one_nothing_names_a_key(typical):
    assert "KmsKeyId" not in str(typical.synthesised.template)
    assert "kms:" not in str(typical.synthesised.template)


def test_an_imported_key_brings_a_warning_since_its_policy_is_not_ours(stack: Stack):
    TicketLock(stack, "Lock", encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))
    for user, path in (("CloudWatch Logs", "/Test/Lock"), ("EventBridge", "/Test/Lock/CleanUp")):
        message = Match.string_like_regexp(f"its policy must let {user} use it")
        Annotations.from_stack(stack).has_warning(path, message)


def test_an_imported_key_is_used_all_the_same(stack, synthesise):
    lock = TicketLock(stack, "Lock", encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))
    found = synthesise(stack)
    assert found.one(lock.table)["Properties"]["SSESpecification"]["KMSMasterKeyId"] == KEY_ARN
    assert {group["KmsKeyId"] for group in found.of_type("AWS::Logs::LogGroup").values()} == {KEY_ARN}
