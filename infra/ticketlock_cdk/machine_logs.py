"""Log groups for state machines."""

from aws_cdk import Aws, Fn, Names, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

_LONGEST_NAME = 200


def machine_log_group(
    scope: Construct,
    id: str,
    *,
    retention: logs.RetentionDays,
    removal_policy: RemovalPolicy,
    encryption_key: kms.IKey | None = None,
) -> logs.LogGroup:
    """A log group for a state machine.

    Its name begins with ``/aws/vendedlogs/``, so that the account's resource policy for log delivery stays below its
    limit (https://docs.aws.amazon.com/step-functions/latest/dg/bp-cwl.html), and ends with the stack's own id, so that
    a retained group does not conflict with a new stack of the same name.
    """
    unique = Names.unique_resource_name(scope, max_length=_LONGEST_NAME, separator="-")
    stack_id = Fn.select(2, Fn.split("/", Aws.STACK_ID))
    return logs.LogGroup(
        scope,
        id,
        log_group_name=f"/aws/vendedlogs/states/{unique}-{id}-{stack_id}",
        retention=retention,
        removal_policy=removal_policy,
        encryption_key=encryption_key,
    )
