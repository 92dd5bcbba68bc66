"""Functions in a network of the user's."""

import pytest
from aws_cdk import aws_ec2 as ec2
from ticketlock_cdk import TicketLock

pytestmark = pytest.mark.verify("stacks of its own, each synthesised")


@pytest.fixture
def vpc(stack):
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["eu-west-1a"],
        private_subnet_ids=["subnet-0123456789abcdef0"],
        isolated_subnet_ids=["subnet-0123456789abcdef1"],
    )


def networks(found):
    return [one.get("VpcConfig") for id, one in found.of_type("AWS::Lambda::Function").items() if id.startswith("Lock")]


def test_without_one_the_functions_are_in_none(typical):
    assert set(networks(typical.synthesised)) == {None}
    assert "ec2:" not in str(list(typical.synthesised.statements()))


def test_every_function_is_in_it_with_one_security_group_without_inbound_rules(everything):
    found = everything.synthesised
    [(id, group)] = found.of_type("AWS::EC2::SecurityGroup").items()
    assert "SecurityGroupIngress" not in group
    assert all(one["SecurityGroupIds"] == [{"Fn::GetAtt": [id, "GroupId"]}] for one in networks(found))


def test_subnets_and_security_groups_can_be_chosen(stack, vpc, synthesise):
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    TicketLock(
        stack,
        "Lock",
        vpc=vpc,
        vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
        security_groups=[group],
    )
    found = synthesise(stack)
    assert all(
        one == {"SubnetIds": ["subnet-0123456789abcdef1"], "SecurityGroupIds": ["sg-0123456789abcdef0"]}
        for one in networks(found)
    )
    assert not found.of_type("AWS::EC2::SecurityGroup")


def test_lambda_may_make_network_interfaces_without_a_managed_policy(everything):
    for function in everything.functions:
        [allowed] = [
            one
            for one in everything.synthesised.statements(function)
            if "ec2:CreateNetworkInterface" in one["Action"] and one["Effect"] == "Allow"
        ]
        # https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html#configuration-vpc-permissions
        assert set(allowed["Action"]) == {
            f"ec2:{name}"
            for name in (
                "AssignPrivateIpAddresses",
                "CreateNetworkInterface",
                "DeleteNetworkInterface",
                "DescribeNetworkInterfaces",
                "DescribeSubnets",
                "UnassignPrivateIpAddresses",
            )
        }
    assert "AWSLambdaVPCAccessExecutionRole" not in str(everything.synthesised.template)


def test_a_functions_own_code_may_not(everything):
    for function in everything.functions:
        [denied] = [one for one in everything.synthesised.statements(function) if one["Effect"] == "Deny"]
        assert {"ec2:CreateNetworkInterface", "ec2:DetachNetworkInterface"} <= set(denied["Action"])
        assert list(denied["Condition"]["ArnLike"]) == ["lambda:SourceFunctionArn"]


def test_a_choice_of_subnets_without_a_network_is_refused(stack):
    subnets = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
    with pytest.raises(ValueError, match=r"vpc_subnets is .* and vpc is None; allowed: vpc_subnets together with"):
        TicketLock(stack, "Lock", vpc_subnets=subnets)


def test_security_groups_without_a_network_are_refused(stack):
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    with pytest.raises(ValueError, match=r"security_groups is .* and vpc is None"):
        TicketLock(stack, "Lock", security_groups=[group])
