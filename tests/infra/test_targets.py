"""The targets that may run under the lock, and settings; what cannot work is refused by name when it is synthesised."""

from typing import Any

import pytest
from aws_cdk import App, Aws, CfnParameter, Duration, Environment, Fn, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Annotations, Match
from kit.stacks import allowed as granted_on
from kit.stacks import as_list, function, machine
from ticketlock_cdk import TicketLock
from ticketlock_cdk.lock.settings import LockSettings

STACKS = pytest.mark.verify("stacks of its own, each synthesised")

FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:pay"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Orders"
OF_A_FUNCTION = [FUNCTION, f"{FUNCTION}:live", f"{FUNCTION}:3"]
IN_CHINA = "arn:aws-cn:states:cn-north-1:123456789012:stateMachine:Orders"


def allowed(found, lock):
    """The targets that the definition allows, and those that the machine's role may invoke and start."""
    targets = found.definition(lock.state_machine)["States"]["TakeTicket"]["Parameters"]["Payload"]["targets"]
    granted = {
        action: [
            resource
            for statement in found.statements(lock.state_machine)
            if statement["Action"] == action
            for resource in as_list(statement["Resource"])
            if isinstance(resource, str)
        ]
        for action in ("lambda:InvokeFunction", "states:StartExecution")
    }
    return targets, *granted.values()


@STACKS
@pytest.mark.parametrize(
    ("targets", "functions", "machines"),
    [
        ([], [], []),
        (OF_A_FUNCTION, OF_A_FUNCTION, []),
        ([IN_CHINA], [], [IN_CHINA]),
        # An alias or a version of a state machine is granted by the machine's ARN.
        *(([f"{MACHINE}:{qualifier}"], [], [MACHINE]) for qualifier in ("PROD", "3")),
        ([MACHINE, MACHINE], [], [MACHINE]),
    ],
    ids=str,
)
def test_the_given_targets_are_allowed_by_exactly_their_arns(targets, functions, machines, stack, synthesise):
    lock = TicketLock(stack, "Lock", targets=targets)
    found = synthesise(stack)
    assert allowed(found, lock) == (list(dict.fromkeys(targets)), functions, machines)
    for user in (lock.state_machine, lock.clean_up, lock.release):
        stopped = [
            resource
            for one in found.statements(user)
            if "states:StopExecution" in as_list(one["Action"])
            for resource in as_list(one["Resource"])
        ]
        assert {each.replace(":stateMachine:", ":execution:") + ":lock-*" for each in machines} <= set(
            map(str, stopped)
        )


@STACKS
def test_imported_targets_are_allowed(stack, synthesise):
    function = lambda_.Function.from_function_arn(stack, "Function", FUNCTION)
    workflow = sfn.StateMachine.from_state_machine_arn(stack, "Workflow", MACHINE)
    lock = TicketLock(stack, "Lock", targets=[function, workflow])
    assert allowed(synthesise(stack), lock) == ([FUNCTION, MACHINE], [FUNCTION], [MACHINE])


def live_alias(stack):
    """The alias of a state machine of the app, by an ARN that is known only at deploy time."""
    version = sfn.CfnStateMachineVersion(stack, "Version", state_machine_arn=machine(stack).state_machine_arn)
    all_of_it = {"stateMachineVersionArn": version.attr_arn, "weight": 100}
    return sfn.CfnStateMachineAlias(stack, "Live", name="live", routing_configuration=[all_of_it]).attr_arn


@STACKS
@pytest.mark.parametrize(
    ("arn", "begins", "name"),
    [
        (
            lambda stack: f"arn:aws:states:{stack.region}:{stack.account}:stateMachine:Orders:PROD",
            "arn:aws:states:<AWS::Region>:<AWS::AccountId>",
            "Orders",
        ),
        (live_alias, "arn:<part 1 of <Live>>:states:<part 3 of <Live>>:<part 4 of <Live>>", "<part 6 of <Live>>"),
    ],
    ids=["known but for its place", "known only at deploy time"],
)
def test_an_imported_alias_of_a_state_machine_is_granted_by_the_machines_own_arn(arn, begins, name, stack, synthesise):
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Imported", arn(stack))
    lock = TicketLock(stack, "Lock", targets=[imported])
    found = synthesise(stack)
    targets = found.definition(lock.state_machine)["States"]["TakeTicket"]["Parameters"]["Payload"]["targets"]
    assert targets == [found.text(stack.resolve(imported.state_machine_arn))]
    started, stopped = f"{begins}:stateMachine:{name}", f"{begins}:execution:{name}:lock-*"
    assert granted_on(found, lock.state_machine)[started] == {"states:StartExecution"}
    for user in (lock.state_machine, lock.clean_up, lock.release):
        assert granted_on(found, user)[stopped] == {"states:DescribeExecution", "states:StopExecution"}


@STACKS
def test_a_version_or_an_alias_of_a_state_machine_as_protected_work_brings_a_warning(stack):
    lock = TicketLock(stack, "Lock")
    for name in ("Ship", "Live"):
        qualifier = ":PROD" if name == "Live" else ""
        work = sfn.StateMachine.from_state_machine_arn(stack, f"Of{name}", f"{MACHINE}{qualifier}")
        lock.attach(machine(stack, f"{name}Workflow", chain=lock.serialize(stack, name, work, entity="e")))
    warned = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("a version or an alias"))
    assert [each.id for each in warned] == ["/Test/Live"]
    assert f"protected is '{MACHINE}:PROD', a version or an alias" in str(warned[0].entry.data)


@STACKS
def test_a_functions_alias_is_allowed_by_its_own_arn(stack, synthesise):
    work = function(stack)
    alias = lambda_.Alias(stack, "Live", alias_name="live", version=work.current_version)
    lock = TicketLock(stack, "Lock", targets=[alias])
    found = synthesise(stack)
    assert allowed(found, lock)[0] == [f"<{found.id_of(alias)}>"]
    [invoke] = [one for one in found.statements(lock.state_machine) if one["Action"] == "lambda:InvokeFunction"]
    assert {"Ref": found.id_of(alias)} in invoke["Resource"]
    assert {"Fn::GetAtt": [found.id_of(work), "Arn"]} not in invoke["Resource"]


@STACKS
@pytest.mark.parametrize("arn", [None, FUNCTION, f"{FUNCTION}:live", MACHINE, f"{MACHINE}:3"])
def test_synth_tells_that_an_alias_or_a_version_is_a_target_by_its_own_arn(arn, stack):
    target: Any = arn
    if arn is None:
        target = lambda_.Alias(stack, "Live", alias_name="live", version=function(stack).current_version)
    TicketLock(stack, "Lock", targets=[target])
    told = Annotations.from_stack(stack).find_info("/Test/Lock", Match.any_value())
    shown = repr(arn) if arn else "Test/Live"
    expected = f"target {shown} is a version or an alias: executions name it by exactly that ARN"
    is_plain = arn in (FUNCTION, MACHINE)
    assert [expected in str(each.entry.data) for each in told] == ([] if is_plain else [True])


@STACKS
def test_an_arn_may_leave_the_account_to_the_deployment(stack, synthesise):
    arn = f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{Aws.ACCOUNT_ID}:function:pay"
    lock = TicketLock(stack, "Lock", targets=[arn])
    assert allowed(synthesise(stack), lock)[0] == [
        "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:pay"
    ]


@STACKS
def test_a_target_of_another_stack_is_allowed(stack, synthesise):
    other = machine(Stack(stack.node.root, "Other"))
    lock = TicketLock(stack, "Lock", targets=[other])
    assert len(allowed(synthesise(stack), lock)[0]) == 1


@STACKS
@pytest.mark.parametrize("how", ["by its properties", "behind the construct's back"])
def test_an_express_state_machine_is_refused(how, stack):
    kind = sfn.StateMachineType.EXPRESS if how == "by its properties" else sfn.StateMachineType.STANDARD
    workflow = machine(stack, state_machine_type=kind)
    resource: Any = workflow.node.default_child
    resource.state_machine_type = "EXPRESS"
    with pytest.raises(ValueError, match=r"targets\[0\] is Test/Workflow, an Express state machine"):
        TicketLock(stack, "Lock", targets=[workflow])


@STACKS
def test_the_state_machine_of_a_lock_is_refused_since_it_takes_no_input_of_a_target(stack):
    inner = TicketLock(stack, "Inner")
    with pytest.raises(ValueError, match="allowed: work under both locks by fragments") as refused:
        TicketLock(stack, "Outer", targets=[FUNCTION, inner.state_machine])
    said = "targets[1] is Test/Inner/Serialize/StateMachine, the state machine of a TicketLock, which refuses the field"
    assert str(refused.value).startswith(said)


@STACKS
@pytest.mark.parametrize(
    ("arn", "message"),
    [
        ("arn:aws:states:eu-west-1:123456789012:express:Orders:a:b", "an execution of an Express state machine"),
        ("arn:aws:states:eu-west-1:123456789012:execution:Orders:a", "which is states execution"),
        ("arn:aws:states:eu-west-1:123456789012:activity:Orders", "which is states activity"),
        ("arn:aws:lambda:eu-west-1:123456789012:layer:pay:1", "which is lambda layer"),
        ("arn:aws:sqs:eu-west-1:123456789012:queue", "which is sqs queue"),
        ("arn:aws:lambda:eu-west-1:123456789012:function:", "which is lambda function"),
        ("arn:aws:lambda:::function:pay", "which is lambda function"),
        ("arn:aws:s3:::bucket", "which is s3 bucket"),
        (FUNCTION.replace("pay", "*"), "* is in none"),
        (FUNCTION.replace("pay", "{name}"), "{ is in none"),
        (MACHINE.replace("Orders", "<Orders>"), "< is in none"),
        (FUNCTION.replace("123456789012", "${AWS::AccountId}"), "allowed: "),
        ("pay", "targets[0] is 'pay'"),
        ("", "targets[0] is ''"),
    ],
)
def test_an_arn_of_another_kind_is_refused(arn, message, stack):
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TicketLock(stack, "Lock", targets=[arn])
    assert str(refused.value).startswith("targets[0] is ")
    assert message in str(refused.value)


@STACKS
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([FUNCTION, "pay"], r"targets\[1\] is 'pay'; allowed: a Lambda function or a Standard state"),
        ([Fn.import_value("TheFunction")], r"known only at deploy time; .*import it by from_function_arn"),
        (sqs.Queue, r"targets\[0\] is .*Queue.*; allowed: a Lambda function"),
        (FUNCTION, r"targets is 'arn.*allowed: a list"),
        (None, r"targets is None; allowed: a list"),
        (function, r"targets is <.*Function.*allowed: a list"),
    ],
    ids=["the second", "known only at deploy time", "another construct", "without its list", "none", "a construct"],
)
def test_what_is_no_target_is_refused(targets, message, stack):
    given: Any = [targets(stack, "Queue")] if targets is sqs.Queue else targets
    given = given(stack) if given is function else given
    with pytest.raises(ValueError, match=message):
        TicketLock(stack, "Lock", targets=given)


# Resources of another account or Region are refused by name: no nested execution is observed or stopped there.


HERE = {"account": "123456789012", "region": "eu-west-1"}
ELSEWHERE = [
    ({**HERE, "region": "us-east-1"}, "in the Region us-east-1; allowed: the stack's own, eu-west-1"),
    ({**HERE, "account": "210987654321"}, "in the account 210987654321; allowed: the stack's own, 123456789012"),
]


def stack_in(app, id, environment):
    return Stack(app, id, env=Environment(**environment))


def arn(kind, environment, name="theirs"):
    service = "lambda" if kind == "function" else "states"
    return f"arn:aws:{service}:{environment['region']}:{environment['account']}:{kind}:{name}"


@pytest.fixture
def app(outdir):
    return App(outdir=outdir)


@pytest.fixture
def here(app):
    return stack_in(app, "Here", HERE)


@STACKS
@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
@pytest.mark.parametrize("kind", ["function", "stateMachine"])
@pytest.mark.parametrize("name", ["targets", "retired_targets"])
def test_an_arn_of_another_account_or_region_is_refused(name, kind, environment, message, here):
    theirs = arn(kind, environment)
    given: dict[str, Any] = {name: [arn(kind, HERE), theirs]}
    with pytest.raises(ValueError, match="allowed: ") as refused:
        TicketLock(here, "Lock", **given)
    assert str(refused.value) == f"{name}[1] is {theirs!r}, {message}"


@STACKS
@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
def test_a_construct_of_another_account_or_region_is_refused_in_every_role(environment, message, app, here):
    theirs = machine(stack_in(app, "There", environment))
    imported = lambda_.Function.from_function_arn(here, "Theirs", arn("function", environment))
    lock = TicketLock(here, "Lock")
    for refuses, said in (
        (lambda: TicketLock(here, "Other", targets=[theirs]), f"targets[0] is There/Workflow, {message}"),
        (lambda: lock.attach(theirs), f"machine is There/Workflow, {message}"),
        (lambda: lock.serialize(here, "Ship", imported, entity="e"), "protected is "),
    ):
        with pytest.raises(ValueError, match="allowed: ") as refused:
            refuses()
        assert str(refused.value).startswith(said)
        assert message in str(refused.value)


@STACKS
def test_targets_of_the_same_account_and_region_are_accepted(app, here, synthesise):
    targets = [arn("function", HERE), machine(stack_in(app, "Beside", HERE)), machine(here)]
    unknown = f"arn:aws:lambda:{Aws.REGION}:{Aws.ACCOUNT_ID}:function:pay"
    lock = TicketLock(here, "Lock", targets=[*targets, unknown])
    payload = synthesise(here).definition(lock.state_machine)["States"]["TakeTicket"]["Parameters"]["Payload"]
    assert len(payload["targets"]) == 4


@STACKS
@pytest.mark.parametrize(("environment", "message"), ELSEWHERE)
def test_in_an_environment_agnostic_stack_all_targets_must_be_in_one_environment(environment, message, stack):
    part, _, _ = message.partition("; ")
    with pytest.raises(ValueError, match=r"allowed: that of targets\[0\]") as refused:
        TicketLock(stack, "Lock", targets=[arn("function", HERE), arn("function", environment)])
    assert part in str(refused.value)


# Settings that cannot work are refused when the template is synthesised, by name.


SECONDS = Duration.seconds


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lease": SECONDS(8)}, "lease is 8 seconds; allowed: whole, even seconds from 10 to 604,800"),
        ({"lease": SECONDS(15)}, "lease is 15 seconds; allowed: whole, even seconds"),
        ({"lease": Duration.millis(10_500)}, "lease is 10.5 seconds; allowed: whole, even seconds"),
        ({"lease": Duration.days(8)}, "lease is 691200 seconds; allowed: whole, even seconds"),
        ({"lease": 60}, "lease is 60; allowed: a Duration"),
        (
            {"row_lease": SECONDS(58)},
            "row_lease is 58 seconds; allowed: whole, even seconds from the lease, 60, to 604,800",
        ),
        ({"row_lease": SECONDS(61)}, "row_lease is 61 seconds; allowed: whole, even seconds"),
        ({"row_lease": SECONDS(604_802)}, "row_lease is 604802 seconds; allowed: whole, even seconds"),
        ({"row_lease": 600}, "row_lease is 600; allowed: a Duration"),
        ({"poll": Duration.millis(1_500)}, "poll is 1.5 seconds; allowed: whole seconds from 1"),
        ({"poll": SECONDS(0)}, "poll is 0 seconds; allowed: whole seconds from 1"),
        ({"poll": SECONDS(31)}, "poll is 31 seconds; allowed: whole seconds from 1 to half the lease, which is 30"),
        ({"default_record_wait": "never"}, "default_record_wait is 'never'; allowed: a Duration or \"Infinity\""),
        ({"default_record_wait": -1}, 'default_record_wait is -1; allowed: a Duration or "Infinity"'),
        ({"permits": 0}, "permits is 0; allowed: a whole number from 1 to 100"),
        ({"permits": 101}, "permits is 101; allowed: a whole number from 1 to 100"),
        ({"permits": 1.5}, "permits is 1.5; allowed: a whole number"),
        ({"permits": True}, "permits is True; allowed: a whole number"),
        ({"permits": "2"}, "permits is '2'; allowed: a whole number"),
        *(
            ({name: value}, f"{name} is {value!r}; allowed: True or False")
            for name in ("heartbeat", "dashboard", "alarms")
            for value in ("false", 0, None)
        ),
        ({"default_record_wait": None}, 'default_record_wait is None; allowed: a Duration or "Infinity"'),
        (
            {"heartbeat": False, "work_timeout": SECONDS(41)},
            "work_timeout is 41 seconds; allowed: whole seconds from 1 to 40, which is three quarters of the lease",
        ),
        ({"heartbeat": False, "work_timeout": SECONDS(0)}, "work_timeout is 0 seconds; allowed: whole"),
        ({"heartbeat": False, "work_timeout": Duration.millis(1_500)}, "work_timeout is 1.5 seconds; allowed: whole"),
        ({"work_timeout": SECONDS(30)}, "work_timeout is given; allowed: with heartbeat=False"),
    ],
)
def test_a_bad_setting_is_refused(settings, message, stack):
    with pytest.raises((TypeError, ValueError)) as refused:
        TicketLock(stack, "Lock", **settings)
    assert message in str(refused.value)


def test_a_setting_that_is_known_only_at_deploy_time_is_refused(stack):
    lease = SECONDS(CfnParameter(stack, "LeaseSeconds", type="Number").value_as_number)
    with pytest.raises(ValueError, match="lease is known only at deploy time"):
        TicketLock(stack, "Lock", lease=lease)


@pytest.mark.parametrize(
    ("lease_s", "row_lease_s", "is_s"),
    [(60, None, 600), (600, None, 600), (602, None, 602), (60, 60, 60), (60, 62, 62), (60, 604_800, 604_800)],
)
def test_a_row_far_behind_lasts_ten_minutes_or_as_long_as_it_is_told_and_never_less_than_the_lease(
    lease_s, row_lease_s, is_s
):
    row_lease = None if row_lease_s is None else SECONDS(row_lease_s)
    settings = LockSettings.of(
        lease=SECONDS(lease_s), row_lease=row_lease, poll=SECONDS(5), default_record_wait="Infinity"
    )
    assert settings.row_lease_s == is_s


@pytest.mark.parametrize(("lease_s", "longest_s"), [(10, 2), (60, 40)])
def test_without_a_heartbeat_work_may_take_three_quarters_of_the_lease_less_5_seconds(lease_s, longest_s):
    settings = LockSettings.of(lease=SECONDS(lease_s), poll=SECONDS(5), default_record_wait="Infinity", heartbeat=False)
    assert settings.work_timeout_s == longest_s
