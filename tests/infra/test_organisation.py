"""Requirements of organisations: boundaries on every role, tags on everything, cdk-nag without findings."""

import json
from pathlib import Path

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from cdk_nag import AwsSolutionsChecks
from kit.stacks import durable, machine
from ticketlock_cdk import TicketLock, TicketlockStack, TransactionTables
from ticketlock_cdk.nag import acknowledge_wildcard

pytestmark = pytest.mark.verify("stacks of its own, each synthesised")

CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Orders"
# None of these has tags in CloudFormation, or in the CDK:
# https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-template-resource-type-ref.html
WITHOUT_TAGS = {
    "AWS::CloudWatch::Dashboard",
    "AWS::IAM::Policy",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::Permission",
    "AWS::Lambda::Version",
    "AWS::SQS::QueuePolicy",
}


def test_no_role_or_policy_has_a_name_or_a_path_that_a_boundary_might_forbid(everything):
    found = everything.synthesised
    assert not [id for id, role in found.of_type("AWS::IAM::Role").items() if "RoleName" in role or "Path" in role]
    assert not found.of_type("AWS::IAM::ManagedPolicy")


def test_a_tag_reaches_everything_that_takes_one(everything):
    tagged = {
        id: "shipping" in json.dumps(one["Properties"].get("Tags"))
        for id, one in everything.synthesised.resources.items()
        if id.startswith("Lock") and one["Type"] not in WITHOUT_TAGS
    }
    assert tagged
    assert [id for id, reached in tagged.items() if not reached] == []


def test_every_log_group_is_a_resource_of_the_stack(everything):
    found = everything.synthesised
    assert "Custom::LogRetention" not in {one["Type"] for one in found.resources.values()}
    groups = set(found.of_type("AWS::Logs::LogGroup"))
    of_functions = [
        function["LoggingConfig"]["LogGroup"]["Ref"]
        for id, function in found.of_type("AWS::Lambda::Function").items()
        if id.startswith("Lock")
    ]
    of_machines = [
        machine["LoggingConfiguration"]["Destinations"][0]["CloudWatchLogsLogGroup"]["LogGroupArn"]["Fn::GetAtt"][0]
        for machine in found.of_type("AWS::StepFunctions::StateMachine").values()
    ]
    assert sorted([*of_functions, *of_machines]) == sorted(groups)


def nagged(outdir, **context):
    app = App(outdir=outdir, context=CONTEXT | context)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


@pytest.mark.parametrize(
    "context",
    [
        {},
        {
            "targets": MACHINE,
            "dashboard": "true",
            "dashboard_live": "true",
            "alarms": "true",
            "transactions": "true",
            "vpc_id": "vpc-0123456789abcdef0",
            "subnet_ids": "subnet-0123456789abcdef0",
        },
    ],
    ids=["default", "everything"],
)
def test_the_ready_made_stack_has_no_finding_that_is_not_acknowledged(context, tmp_path):
    app = nagged(str(tmp_path), **context)
    TicketlockStack(app, "Ticketlock")
    app.synth()


@pytest.mark.parametrize("is_construct", [True, False], ids=["a construct", "an ARN"])
def test_a_users_own_stack_has_no_finding_because_of_the_construct(is_construct, tmp_path):
    app = nagged(str(tmp_path))
    stack = Stack(app, "Own")
    target = sfn.StateMachine.from_state_machine_arn(stack, "Given", MACHINE) if is_construct else MACHINE
    TicketLock(stack, "Lock", targets=[target])
    app.synth()


def test_no_stack_of_several_has_a_finding_because_of_the_constructs(tmp_path):
    app = nagged(str(tmp_path))
    names = ("Data", "Workflows", "Constructs", "App")
    data, workflows, constructs, functions = (Stack(app, name) for name in names)
    accounts = dynamodb.TableV2(
        data,
        "Accounts",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        point_in_time_recovery_specification={"point_in_time_recovery_enabled": True},
    )
    accounts.add_global_secondary_index(
        index_name="byDay", partition_key=dynamodb.Attribute(name="day", type=dynamodb.AttributeType.STRING)
    )
    units = TransactionTables(constructs, "Units", data_tables=[accounts])
    worker = iam.Role(functions, "Worker", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    units.grant_units(worker)
    units.grant_reads(worker)
    lock = TicketLock(constructs, "Lock")
    lock.grant_use(worker)
    lock.attach_durable(durable(functions, role=worker))
    workflow = machine(
        workflows,
        logs={"destination": logs.LogGroup(workflows, "Logs"), "level": sfn.LogLevel.ALL},
        tracing_enabled=True,
    )
    acknowledge_wildcard(workflow, "services")
    units.attach(workflow)
    lock.attach(workflow)
    app.synth()


def test_a_finding_that_is_not_acknowledged_fails_the_synthesis(tmp_path):
    app = nagged(str(tmp_path))
    stack = TicketlockStack(app, "Ticketlock")
    sqs.Queue(stack, "Queue")
    with pytest.raises(RuntimeError, match="AwsSolutions-SQS3"):
        app.synth()


def test_every_acknowledgement_has_a_reason(typical):
    reasons = [
        reason
        for construct in typical.lock.node.find_all()
        for entry in construct.node.metadata
        if entry.type == Validations.ACKNOWLEDGED_RULES_METADATA_KEY
        for reason in entry.data.values()
    ]
    assert reasons
    assert all(reason.endswith(".") for reason in reasons)
