"""The user's network in which the functions run, if one is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

# https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions
_INTERFACES = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network for functions.

    Attributes:
        vpc: the network.
        subnets: which of its subnets; None for the choice of Lambda's construct.
        security_groups: those of every function.
    """

    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection | None
    security_groups: Sequence[ec2.ISecurityGroup]

    @classmethod
    def of(
        cls,
        scope: Construct,
        *,
        vpc: ec2.IVpc | None,
        vpc_subnets: ec2.SubnetSelection | None,
        security_groups: Sequence[ec2.ISecurityGroup],
        whose: str = "a TicketLock",
    ) -> "Network | None":
        """Read the construct's properties; if no security group is given, make one without inbound rules.

        Raises:
            ValueError: subnets or security groups without a network.
        """
        if vpc is None:
            for name, given in (("vpc_subnets", vpc_subnets), ("security_groups", security_groups)):
                if given:
                    raise ValueError(f"{name} is {given!r} and vpc is None; allowed: {name} together with a vpc")
            return None
        groups = security_groups or [
            ec2.SecurityGroup(scope, "SecurityGroup", vpc=vpc, description=f"The functions of {whose}")
        ]
        return cls(vpc=vpc, subnets=vpc_subnets, security_groups=groups)

    @property
    def function_properties(self) -> Mapping[str, Any]:
        """The network as properties of a function."""
        return {"vpc": self.vpc, "vpc_subnets": self.subnets, "security_groups": list(self.security_groups)}


def let_join(role: iam.Role) -> None:
    """Let Lambda make a function's network interfaces with its role, but not the function's code.

    The managed policy would let a function write to every log group. AWS advises to deny the code these actions; the
    pattern names all functions, since the function waits for this policy.
    https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-best-practice
    """
    stack = Stack.of(role)
    role.add_to_policy(iam.PolicyStatement(actions=list(_INTERFACES), resources=["*"]))
    role.add_to_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=[*_INTERFACES, "ec2:DetachNetworkInterface"],
            resources=["*"],
            conditions={
                "ArnLike": {
                    "lambda:SourceFunctionArn": (
                        f"arn:{stack.partition}:lambda:{stack.region}:{stack.account}:function:*"
                    )
                }
            },
        )
    )
