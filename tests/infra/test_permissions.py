"""Who may do what: everything a step uses, and nothing else."""

import pytest
from aws_cdk import aws_iam as iam
from ticketlock_cdk import TicketLock

ON_THE_TABLE = {
    "take_ticket": {"GetItem", "PutItem", "Query", "UpdateItem"},
    "check_position": {"DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"},
    "heartbeat": {"GetItem", "UpdateItem"},
    "release": {"GetItem", "UpdateItem"},
}
ANSWERS = {"states:SendTaskFailure", "states:SendTaskSuccess"}
# These have no resources that a policy could name:
# https://docs.aws.amazon.com/xray/latest/devguide/security_iam_service-with-iam.html
# https://docs.aws.amazon.com/step-functions/latest/dg/cw-logs.html
ON_EVERYTHING = {
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}


def as_list(value):
    return value if isinstance(value, list) else [value]


def actions(statements):
    return {action for statement in statements for action in as_list(statement["Action"])}


@pytest.mark.parametrize("step", ON_THE_TABLE)
def test_a_step_may_send_the_table_only_what_it_sends(step, typical):
    found = [one for one in typical.synthesised.statements(typical.functions[step]) if "dynamodb:" in str(one)]
    assert actions(found) == {f"dynamodb:{action}" for action in ON_THE_TABLE[step]}
    table = {"Fn::GetAtt": [typical.synthesised.id_of(typical.lock.table), "Arn"]}
    assert [one["Resource"] for one in found] == [table]


@pytest.mark.parametrize("step", ["take_ticket", "check_position"])
def test_a_step_of_a_waiter_may_answer_no_task(step, typical):
    assert not actions(typical.synthesised.statements(typical.functions[step])) & ANSWERS


@pytest.mark.parametrize("step", ["heartbeat", "release"])
def test_a_step_of_a_holder_may_answer_tasks_of_this_machine_only(step, typical):
    found = [one for one in typical.synthesised.statements(typical.functions[step]) if "states:" in str(one["Action"])]
    assert actions(found) == ANSWERS
    assert [one["Resource"] for one in found] == [{"Ref": typical.synthesised.id_of(typical.lock.state_machine)}]


def test_a_step_may_do_nothing_else(typical):
    for step, function in typical.functions.items():
        rest = actions(typical.synthesised.statements(function)) - ANSWERS
        assert {action for action in rest if not action.startswith("dynamodb:")} == {
            "logs:CreateLogStream",
            "logs:PutLogEvents",
            "xray:PutTelemetryRecords",
            "xray:PutTraceSegments",
        }, step


def test_no_role_of_the_construct_has_a_managed_policy(typical):
    roles = typical.synthesised.of_type("AWS::IAM::Role")
    assert not [id for id, role in roles.items() if id.startswith("Lock") and "ManagedPolicyArns" in role]


def test_no_action_is_a_wildcard(typical):
    assert not [action for action in actions(typical.synthesised.statements()) if "*" in action]


def test_only_tracing_and_the_delivery_of_logs_are_allowed_on_everything(typical):
    on_everything = [one for one in typical.synthesised.statements() if "*" in as_list(one["Resource"])]
    assert actions(on_everything) <= ON_EVERYTHING


def test_the_only_other_wildcard_is_that_of_the_nested_executions(typical):
    with_wildcards = [
        one for one in typical.synthesised.statements() if "*" in str(one["Resource"]) and one["Resource"] != "*"
    ]
    assert [set(one["Action"]) for one in with_wildcards] == [{"states:DescribeExecution", "states:StopExecution"}]


def test_the_machine_invokes_its_functions_and_the_targets_only(typical):
    [invoke] = [
        one
        for one in typical.synthesised.statements(typical.lock.state_machine)
        if one["Action"] == "lambda:InvokeFunction"
    ]
    allowed = [*typical.functions.values(), typical.target_function]
    assert sorted(resource["Fn::GetAtt"][0] for resource in invoke["Resource"]) == sorted(
        typical.synthesised.id_of(function) for function in allowed
    )


def test_the_machine_starts_the_target_only(typical):
    [start] = [one for one in typical.synthesised.statements() if one["Action"] == "states:StartExecution"]
    assert start["Resource"] == {"Ref": typical.synthesised.id_of(typical.target_machine)}


def test_the_machine_follows_and_stops_only_executions_that_it_started(typical):
    [follow] = [one for one in typical.synthesised.statements() if "states:StopExecution" in as_list(one["Action"])]
    assert follow["Resource"]["Fn::Join"][1][-2:] == [
        {"Fn::Select": [6, {"Fn::Split": [":", {"Ref": typical.synthesised.id_of(typical.target_machine)}]}]},
        ":lock-*",
    ]


def test_the_machine_may_use_the_one_rule_that_tells_of_nested_executions(typical):
    [rule] = [one for one in typical.synthesised.statements() if "events:PutRule" in as_list(one["Action"])]
    assert set(rule["Action"]) == {"events:DescribeRule", "events:PutRule", "events:PutTargets"}
    assert rule["Resource"]["Fn::Join"][1][-1] == ":rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"


def test_the_machine_itself_writes_sessions_and_no_locks(typical):
    [write] = [
        one for one in typical.synthesised.statements(typical.lock.state_machine) if "dynamodb:" in str(one["Action"])
    ]
    assert write["Action"] == "dynamodb:UpdateItem"
    assert write["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["session#*"]}}
    assert write["Resource"] == {"Fn::GetAtt": [typical.synthesised.id_of(typical.lock.table), "Arn"]}


def test_a_principal_can_be_let_start_executions(stack, synthesise):
    lock = TicketLock(stack, "Lock")
    role = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("events.amazonaws.com"))
    lock.grant_start_execution(role)
    found = synthesise(stack)
    [policy] = [
        each for each in found.of_type("AWS::IAM::Policy").values() if {"Ref": found.id_of(role)} in each["Roles"]
    ]
    [statement] = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == "states:StartExecution"
    assert statement["Resource"] == {"Ref": found.id_of(lock.state_machine)}
