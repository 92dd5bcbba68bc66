"""State machines whose executions save units: what rolls those back, with least permissions, and nothing else."""

import pytest
from aws_cdk import App, Aws, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from kit.stacks import as_list, machine, on_table
from ticketlock_cdk import TransactionTables
from ticketlock_cdk.units.access import ROLL_BACK_SAVED

STACKS = pytest.mark.verify("a stack of its own, synthesised")
ARN = "arn:aws:states:eu-west-1:123456789012:stateMachine:Booking"
MACHINES_A_RULE, MOST_RULES = 12, 40


class Attached:
    """One state machine, whose units are encrypted with a key of the user's."""

    def __init__(self, outdir, synthesise):
        stack = Stack(App(outdir=outdir), "Attached")
        self.key = kms.Key(stack, "Key")
        self.units = TransactionTables(stack, "Units", encryption_key=self.key, reserve_concurrency=True)
        self.machine = machine(stack)
        for _ in range(2):
            self.units.attach(self.machine)
        self.found = synthesise(stack)
        self.function = self.found.function(self.units.roll_back)
        [self.rule] = [rule for rule in self.found.of_type("AWS::Events::Rule").values() if "EventPattern" in rule]


@pytest.fixture(scope="module")
def attached(outdir, synthesise):
    return Attached(outdir, synthesise)


def test_the_rule_is_of_executions_that_fail_time_out_or_are_stopped_and_of_none_that_succeed(attached):
    assert attached.rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "status": ["FAILED", "TIMED_OUT", "ABORTED"],
            "stateMachineArn": [{"Ref": attached.found.id_of(attached.machine)}],
        },
    }


def test_what_fails_is_repeated_and_kept_and_five_run_at_once_over_the_units_table(attached):
    queue = {"Fn::GetAtt": [attached.found.id_of(attached.units.dead_letter_queue), "Arn"]}
    [target] = attached.rule["Targets"]
    assert target["DeadLetterConfig"] == {"Arn": queue}
    [config] = [
        each
        for each in attached.found.of_type("AWS::Lambda::EventInvokeConfig").values()
        if each["FunctionName"] == {"Ref": attached.found.id_of(attached.units.roll_back)}
    ]
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (2, 6 * 3_600)
    assert config["DestinationConfig"] == {"OnFailure": {"Destination": queue}}
    assert attached.function["ReservedConcurrentExecutions"] == 5
    assert attached.function["Environment"]["Variables"] == {
        "TABLE_NAME": {"Ref": attached.found.id_of(attached.units.table)},
        "POWERTOOLS_SERVICE_NAME": attached.units.service_name,
    }


def test_the_function_may_do_to_the_units_table_what_rolling_back_needs_and_touch_nothing_else(attached):
    of_function = attached.units.roll_back
    assert on_table(attached.found, of_function, attached.units.table) == set(ROLL_BACK_SAVED)
    assert "kms:Decrypt" in on_table(attached.found, of_function, attached.key)
    statements = list(attached.found.statements(of_function))
    services = {action.partition(":")[0] for one in statements for action in as_list(one["Action"])}
    assert services == {"dynamodb", "kms", "logs", "sqs", "states", "xray"}
    # An event may not say after how many redrives an execution ended.
    [describes] = [one for one in statements if "states:" in str(one["Action"])]
    assert describes["Action"] == "states:DescribeExecution"
    machine = attached.found.id_of(attached.machine)
    assert attached.found.text(describes["Resource"]).endswith(f":execution:<part 6 of <{machine}>>:*")


@STACKS
def test_nothing_changes_where_nothing_is_attached(outdir, synthesise):
    def found(*, attaches):
        stack = Stack(App(outdir=outdir), "Same")
        units, workflow = TransactionTables(stack, "Units"), machine(stack)
        if attaches:
            units.attach(workflow)
        return units, synthesise(stack).resources

    (without, before), (_, after) = found(attaches=False), found(attaches=True)
    assert without.roll_back is None
    assert before.items() <= after.items()
    assert {each["Type"] for id, each in after.items() if id not in before} == {
        "AWS::Events::Rule",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::Lambda::EventInvokeConfig",
        "AWS::Lambda::Function",
        "AWS::Lambda::Permission",
        "AWS::Logs::LogGroup",
    }


@STACKS
def test_many_machines_share_rules_and_one_too_many_is_refused_by_name(stack, synthesise):
    units = TransactionTables(stack, "Units")
    for number in range(MACHINES_A_RULE * MOST_RULES):
        units.attach(sfn.StateMachine.from_state_machine_arn(stack, f"Machine{number}", f"{ARN}{number}"))
    with pytest.raises(ValueError, match=f"Extra, whose rollback would need one rule more than {MOST_RULES}; allowed"):
        units.attach(sfn.StateMachine.from_state_machine_arn(stack, "Extra", f"{ARN}Extra"))
    assert len(synthesise(stack).of_type("AWS::Events::Rule")) == MOST_RULES


def test_an_express_machine_is_refused(stack):
    units = TransactionTables(stack, "Units")
    express = machine(stack, state_machine_type=sfn.StateMachineType.EXPRESS)
    with pytest.raises(ValueError, match="an Express state machine; allowed: a Standard one, since no event"):
        units.attach(express)


@pytest.mark.parametrize(
    "arn",
    [
        f"{ARN}:prod",
        f"{ARN}:1",
        f"{ARN}/label",
        ARN.replace("stateMachine", "execution"),
        ARN.replace("states", "lambda"),
        f"arn:{Aws.PARTITION}:states:{Aws.REGION}:{Aws.ACCOUNT_ID}:stateMachine:Booking:prod",
    ],
)
def test_an_arn_that_no_event_names_is_refused(stack, arn):
    """An event names the machine, whether the execution was started by a version, an alias or neither."""
    units = TransactionTables(stack, "Units")
    with pytest.raises(ValueError, match=r"machine is .*; allowed: the ARN of a state machine, without"):
        units.attach(sfn.StateMachine.from_state_machine_arn(stack, "Imported", arn))
    assert units.roll_back is None


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_a_machine_may_have_any_name_and_be_in_any_partition(stack, partition):
    units = TransactionTables(stack, "Units")
    arn = ARN.replace(":aws:", f":{partition}:").replace("Booking", "Book.it+now@(v2)!")
    units.attach(sfn.StateMachine.from_state_machine_arn(stack, "Imported", arn))
    assert units.roll_back is not None


@pytest.mark.parametrize("given", [ARN, None, 7], ids=["an ARN", "None", "a number"])
def test_what_is_no_construct_is_refused_with_the_way_to_import_one(stack, given):
    units = TransactionTables(stack, "Units")
    with pytest.raises(ValueError, match=r"^machine is .*; allowed: .*StateMachine\.from_state_machine_arn"):
        units.attach(given)


def test_a_machine_of_another_region_is_refused(outdir):
    app = App(outdir=outdir)
    here, there = (
        Stack(app, name, env={"region": region, "account": "123456789012"})
        for name, region in (("Here", "eu-west-1"), ("There", "us-east-1"))
    )
    units = TransactionTables(here, "Units")
    with pytest.raises(ValueError, match="machine is There/Workflow, in the Region us-east-1; allowed: "):
        units.attach(machine(there))


@STACKS
def test_the_ready_made_stack_rolls_back_after_the_workflows_that_are_named(stack_with):
    found = stack_with(transactions="true", workflows=f"{ARN},{ARN}.2")
    [watched] = [
        rule["EventPattern"]["detail"]["stateMachineArn"]
        for rule in found.of_type("AWS::Events::Rule").values()
        if ARN in rule.get("EventPattern", {}).get("detail", {}).get("stateMachineArn", [])
    ]
    assert watched == [ARN, f"{ARN}.2"]
    [function] = [
        each for each in found.of_type("AWS::Lambda::Function").values() if each["Handler"] == "roll_back.handler"
    ]
    assert "ReservedConcurrentExecutions" not in function


def test_the_ready_made_stack_refuses_what_is_no_state_machine(stack_with):
    with pytest.raises(ValueError, match=r"workflows\[0\] is .*; allowed: the ARN of a state machine, without"):
        stack_with(transactions="true", workflows="Booking")
