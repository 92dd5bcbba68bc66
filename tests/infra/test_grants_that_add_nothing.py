"""A grant to a principal whose policies the app cannot change would add nothing: it is an error."""

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from kit.stacks import function, machine
from ticketlock_cdk import TicketLock, TransactionTables

HERE, ELSEWHERE = "123456789012", "999999999999"
ENVIRONMENT = Environment(account=HERE, region="eu-west-1")
ECS = iam.ServicePrincipal("ecs-tasks.amazonaws.com")
FUNCTION = f"arn:aws:lambda:eu-west-1:{HERE}:function:theirs"
CANNOT_CHANGE, HAS_NONE = "whose policies this app cannot change", "has no policies here"
WRAPS = "which hides whether its policies can be changed; allowed: the role, user or group in it"


def role_arn(name, account=HERE):
    return f"arn:aws:iam::{account}:role/{name}"


def fixed(stack):
    return iam.Role.from_role_arn(stack, "Fixed", role_arn("fixed"), mutable=False)


class Constructs:
    """A lock and units in one stack, and all that they grant."""

    def __init__(self, outdir):
        self.app = App(outdir=outdir)
        self.stack = Stack(self.app, "Test", env=ENVIRONMENT)
        self.lock = TicketLock(self.stack, "Lock")
        units = TransactionTables(self.stack, "Units")
        key = dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING)
        table = dynamodb.Table(self.stack, "Data", partition_key=key)
        self.grants = [
            self.lock.grant_use,
            self.lock.grant_read,
            self.lock.grant_fence,
            self.lock.grant_start_execution,
            lambda to: units.grant_units(to, table),
            lambda to: units.grant_reads(to, table),
        ]


@pytest.fixture(scope="module")
def constructs(outdir):
    return Constructs(outdir)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (fixed, CANNOT_CHANGE),
        (lambda scope: iam.Role(scope, "Kept", assumed_by=ECS).without_policy_updates(), CANNOT_CHANGE),
        (lambda scope: iam.Role.from_role_arn(scope, "Far", role_arn("far", ELSEWHERE)), CANNOT_CHANGE),
        (lambda scope: function(scope, "WithFixed", role=fixed(scope)), CANNOT_CHANGE),
        (
            lambda scope: lambda_.Function.from_function_attributes(
                scope, "ImportedWithFixed", function_arn=FUNCTION, role=fixed(scope)
            ),
            CANNOT_CHANGE,
        ),
        (lambda scope: machine(scope, "MachineWithFixed", role=fixed(scope)), CANNOT_CHANGE),
        (lambda scope: lambda_.Function.from_function_arn(scope, "Imported", FUNCTION), HAS_NONE),
        (
            lambda scope: sfn.StateMachine.from_state_machine_arn(
                scope, "ImportedMachine", f"arn:aws:states:eu-west-1:{HERE}:stateMachine:theirs"
            ),
            HAS_NONE,
        ),
        (lambda scope: iam.PrincipalWithConditions(fixed(scope), {"Bool": {"aws:SecureTransport": "true"}}), WRAPS),
        (lambda scope: iam.SessionTagsPrincipal(fixed(scope)), WRAPS),
        (lambda scope: iam.PrincipalWithConditions(iam.SessionTagsPrincipal(fixed(scope)), {}), WRAPS),
        (lambda scope: iam.CompositePrincipal(fixed(scope)), HAS_NONE),
        (lambda _: ECS, HAS_NONE),
        (lambda _: iam.AccountPrincipal(HERE), HAS_NONE),
    ],
    ids=[
        "imported to stay as it is",
        "not to be updated",
        "of another account",
        "of a function",
        "of an imported function",
        "of a state machine",
        "imported function",
        "imported state machine",
        "with conditions",
        "with session tags",
        "with conditions and session tags",
        "one of several",
        "a service",
        "an account",
    ],
)
def test_a_grant_that_would_add_nothing_is_an_error(make, why, constructs, request):
    scope = Stack(constructs.app, request.node.callspec.id.title().replace(" ", ""), env=ENVIRONMENT)
    grantee = make(scope)
    for grant in constructs.grants:
        with pytest.raises(ValueError, match=why):
            grant(grantee)


def test_a_machine_whose_role_cannot_be_changed_is_not_attached(constructs):
    mine = machine(constructs.stack, "Mine", role=fixed(constructs.stack))
    with pytest.raises(ValueError, match="machine is Test/Mine, with the role Test/Fixed, whose policies") as refused:
        constructs.lock.attach(mine)
    # Without attach there is no synthesis.
    assert str(refused.value).endswith("; allowed: one whose policies it can change")


def test_imported_roles_users_and_groups_that_may_be_changed_are_granted(outdir, synthesise):
    made = Constructs(outdir)
    stack = made.stack
    grantees = [
        iam.Role.from_role_arn(stack, "Role", role_arn("theirs")),
        iam.Role.from_role_name(stack, "Named", "named"),
        iam.User.from_user_name(stack, "User", "ann"),
        iam.Group.from_group_arn(stack, "Group", f"arn:aws:iam::{HERE}:group/ops"),
    ]
    attached = iam.Role.from_role_arn(stack, "OfMachine", role_arn("of-machine"))
    made.lock.attach(machine(stack, "Mine", role=attached))
    for grantee in grantees:
        for grant in made.grants:
            grant(grantee)
    policies = str(list(synthesise(stack).of_type("AWS::IAM::Policy").values()))
    assert [name for name in ("theirs", "named", "ann", "ops", "of-machine") if f"['{name}']" not in policies] == []
