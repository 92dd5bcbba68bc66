"""The clean-up's dead letters."""

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_kms as kms
from ticketlock_cdk import TicketLock

pytestmark = pytest.mark.verify("stacks of its own, each synthesised")

SEPARATE = "@aws-cdk/aws-lambda:createNewPoliciesWithAddToRolePolicy"


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
        new = {id for id in resources if names(waiting, id)} - found
        found |= new
        left += [resources[id] for id in new]
    return found


def names(value, id):
    if isinstance(value, dict):
        awaited = value.get("DependsOn", [])
        direct = value.get("Ref") == id or (value.get("Fn::GetAtt") or [None])[0] == id
        return direct or id in awaited or any(names(inner, id) for inner in value.values())
    return isinstance(value, list) and any(names(inner, id) for inner in value)
