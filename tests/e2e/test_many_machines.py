"""A hundred state machines with one lock, deployed. The emulator does not enforce IAM's sizes; the test checks them."""

import json
from pathlib import Path

import boto3
import pytest
from e2e.cloud import Cloud
from ticketlock_local.cloud.deploy import client_arguments, deploy
from ticketlock_local.engines.emulator import Emulator

pytestmark = [
    pytest.mark.verify("a deployment of its own, of a hundred state machines"),
    # On a busy machine the CDK alone takes minutes for it.
    pytest.mark.timeout(900),
]

APP = Path(__file__).with_name("many.py")
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
INLINE, MANAGED, MOST_MANAGED = 10_240, 6_144, 10


@pytest.fixture(scope="module")
def many(emulator: Emulator) -> Cloud:
    return Cloud(emulator.endpoint, deploy(emulator, app=APP, stack="TicketlockMany"))


def size(document: object) -> int:
    return len(json.dumps(document, separators=(",", ":")))


def test_the_fullest_role_is_within_iams_sizes(many: Cloud) -> None:
    iam, role = boto3.client("iam", **client_arguments(many.endpoint)), many.outputs["CleanUpRole"]
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    inline = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
    assert sum(map(size, inline)) <= INLINE
    attached = [each["PolicyArn"] for each in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]]
    assert 1 <= len(attached) <= MOST_MANAGED
    managed = []
    for arn in attached:
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        managed.append(iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"])
    assert max(map(size, managed)) <= MANAGED
    assert json.dumps([*inline, *managed]).count(":stateMachine:") == 102


def test_the_last_machine_gets_the_lock_and_a_stopped_one_is_cleaned_up(many: Cloud, entity: str) -> None:
    assert many.ended(many.start({"entity": entity, "seconds": 0})).status == "SUCCEEDED"
    holder = many.start({"entity": entity, "seconds": 30})
    many.wait_until_held(entity)
    waiter = many.start({"entity": entity, "seconds": 0})
    many.wait_until(lambda: len(many.lock(entity).rows) == 1, f"{waiter} to queue")
    many.stop(waiter)
    many.wait_until(lambda: many.lock(entity).rows == (), f"{waiter} to leave")
    many.stop(holder)
