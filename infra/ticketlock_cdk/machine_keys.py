"""The user's KMS key for what Step Functions keeps of state machines: definitions, and histories of executions; and for
the state of durable executions.

https://docs.aws.amazon.com/step-functions/latest/dg/encryption-at-rest.html
https://docs.aws.amazon.com/lambda/latest/dg/durable-configuration.html
"""

from aws_cdk import Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.tables import let_service_use


def encrypt(machine: sfn.StateMachine, key: kms.IKey) -> None:
    """Encrypt a machine with a key, which its role needs, also for the executions that it runs and waits for.

    By hand: the CDK's option names the machine in the role's policy, and so works only for machines with a name of
    their own.
    """
    stack = Stack.of(machine)
    resource = machine.node.default_child
    assert isinstance(resource, sfn.CfnStateMachine)
    resource.encryption_configuration = sfn.CfnStateMachine.EncryptionConfigurationProperty(
        type="CUSTOMER_MANAGED_KMS_KEY", kms_key_id=key.key_arn
    )
    place = f"{stack.region}:{stack.account}"
    machines, logs = f"arn:{stack.partition}:states:{place}:stateMachine:*", f"arn:{stack.partition}:logs:{place}:*"
    for actions, conditions in (
        (
            ["kms:Decrypt", "kms:GenerateDataKey"],
            {"StringLike": {"kms:EncryptionContext:aws:states:stateMachineArn": machines}},
        ),
        (["kms:GenerateDataKey"], {"StringEquals": {"kms:EncryptionContext:SourceArn": logs}}),
    ):
        machine.add_to_role_policy(iam.PolicyStatement(actions=actions, resources=[key.key_arn], conditions=conditions))


def key_arn_of(machine: sfn.StateMachine) -> str | None:
    """The ARN of the key with which a user's machine is encrypted; None if it has none, or only an alias is known."""
    resource = machine.node.default_child
    assert isinstance(resource, sfn.CfnStateMachine)
    return _known(getattr(resource.encryption_configuration, "kms_key_id", None))


def key_arn_of_durable(function: lambda_.Function) -> str | None:
    """The ARN of the key with which a durable function's executions are encrypted; None likewise."""
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    return _known(getattr(resource.durable_config, "kms_key_arn", None))


def _known(arn: object) -> str | None:
    return arn if isinstance(arn, str) and (Token.is_unresolved(arn) or ":key/" in arn) else None


def let_log_delivery_decrypt(key: kms.IKey, scope: Construct) -> None:
    """Let the delivery of logs read what machines with this key log."""
    service = "delivery.logs.amazonaws.com"
    let_service_use(key, scope, name="the delivery of logs", service=service, actions=["kms:Decrypt"])
