"""The template of `make template`: with its parameters it equals the construct's template for the settings."""

import copy
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from aws_cdk.cloudformation_include import CfnInclude
from kit.aws_cli import run_script
from kit.pages import blocks
from ticketlock_local.cloud.deploy import client_environment
from ticketlock_local.engines.emulator import Emulator
from ticketlock_local.plain.parameters import (
    A_FUNCTION,
    LONGEST_LIST,
    TemplateError,
    Varied,
    _longest,
    joined,
    with_lists,
    with_parameters,
)
from ticketlock_local.plain.template import A_TOPIC, _plain, synthesise, write_to

PAGE = "docs/construct.md"
FUNCTIONS = [f"arn:aws:lambda:eu-west-1:123456789012:function:work-{number}" for number in range(2)]
MACHINES = [f"arn:aws:states:eu-west-1:123456789012:stateMachine:work-{number}" for number in range(2)]
STACK_NAME = "the-name-of-the-stack"

many = pytest.mark.verify("a dozen syntheses; check lints what the construct makes, and its tests ask it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that `make template` writes."""
    written = tmp_path_factory.mktemp("plain") / "template"
    write_to(written)
    return written


@pytest.fixture(scope="module")
def template(folder: Path) -> Any:
    return json.loads((folder / "ticketlock.json").read_text())


@pytest.fixture(scope="module")
def packaged(folder: Path) -> Path:
    """The template after `aws cloudformation package`, and a nested stack of the page beside it."""
    (folder / "nested.yaml").write_text(blocks(PAGE, "yaml")[0])
    (folder / "orders.asl.json").write_text(blocks("docs/workflows.md", "json")[0])
    package = "aws cloudformation package --s3-bucket artifacts --use-json --template-file"
    script = f"""
        aws s3 mb s3://artifacts
        {package} ticketlock.json --output-template-file packaged.json
        {package} nested.yaml --output-template-file packaged-nested.json
    """
    with Emulator() as emulator:
        run_script(script, env=client_environment(emulator.endpoint), folder=folder)
    return folder / "packaged.json"


class Resolved:
    """A template as CloudFormation resolves it, except values that only a deployment knows."""

    def __init__(self, template: Mapping[str, Any], **given: str) -> None:
        self._template = template
        known = {name: str(parameter["Default"]) for name, parameter in template["Parameters"].items()} | given
        assert known.keys() == template["Parameters"].keys()
        lists = [
            name for name, parameter in template["Parameters"].items() if parameter["Type"] == "CommaDelimitedList"
        ]
        self._values: dict[str, Any] = {"AWS::StackName": STACK_NAME, **known}
        self._values |= {name: known[name].split(",") for name in lists}
        self.resources = {
            name: self._of({key: value for key, value in resource.items() if key != "Condition"})
            for name, resource in template["Resources"].items()
            if "Condition" not in resource or self._holds(resource["Condition"])
        }

    def _holds(self, name: str) -> bool:
        return bool(self._of(self._template["Conditions"][name]))

    def _of(self, node: Any) -> Any:
        if isinstance(node, list):
            return [found for each in node if (found := self._of(each)) is not None]
        if not isinstance(node, dict):
            return node
        (function, argument), *more = node.items() if node else [("", None)]
        if more or not (function in ("Ref", "Condition") or function.startswith("Fn::")):
            return {key: found for key, value in node.items() if (found := self._of(value)) is not None}
        return self._call(function, argument)

    def _call(self, function: str, argument: Any) -> Any:
        if function == "Ref":
            if argument == "AWS::NoValue":
                return None
            return self._values.get(argument, {"Ref": argument})
        if function == "Condition":
            # In a policy's statement it is no condition of the template.
            return self._holds(argument) if isinstance(argument, str) else {"Condition": self._of(argument)}
        if function == "Fn::If":
            condition, then, otherwise = argument
            return self._of(then if self._holds(condition) else otherwise)
        found = self._of(argument)
        match function, found:
            case "Fn::FindInMap", [str(name), str(row), str(column)]:
                return self._template["Mappings"][name][row][column]
            case "Fn::Equals", [left, right]:
                return left == right
            case "Fn::Not", [bool(holds)]:
                return not holds
            case "Fn::And", list(all_of_them):
                return all(all_of_them)
            case "Fn::Select", [int(at), list(texts)] if all(isinstance(text, str) for text in texts):
                return texts[at]
            case "Fn::Split", [str(by), str(whole)]:
                return whole.split(by)
            case "Fn::Join", [str(by), list(texts)] if all(isinstance(text, str) for text in texts):
                return by.join(texts)
            case "Fn::Join", ["", list(parts)]:
                return joined(parts)
        return {function: found}


POLICIES = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")


def comparable(resources: Mapping[str, Any]) -> Any:
    """Resources with definitions parsed and numbers as texts; for each role its statements, of any of its policies, and
    of those alike one with the resources of all.
    """
    allowed: dict[str, dict[str, set[str]]] = {}
    compared = {}
    for name, resource in copy.deepcopy(dict(resources)).items():
        properties = resource.get("Properties", {})
        if "DefinitionString" in properties:
            properties["DefinitionString"] = json.loads(properties["DefinitionString"])
        if resource["Type"] not in POLICIES:
            compared[name] = resource
            continue
        for role in properties["Roles"]:
            alike = allowed.setdefault(json.dumps(role), {})
            for statement in properties["PolicyDocument"]["Statement"]:
                key = json.dumps({**statement, "Resource": None}, sort_keys=True)
                of_it = statement.get("Resource", [])
                listed = of_it if isinstance(of_it, list) else [of_it]
                alike.setdefault(key, set()).update(json.dumps(each, sort_keys=True) for each in listed)
    return texts({**compared, **allowed})


def texts(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: texts(value) for key, value in node.items()}
    if isinstance(node, list):
        return [texts(each) for each in node]
    is_number = isinstance(node, int | float) and not isinstance(node, bool)
    return str(float(node)) if is_number or (isinstance(node, str) and node.isdecimal()) else node


WATCHED = {"AlarmTopicArn": A_TOPIC, "Dashboard": "true"}
OTHER_PARAMETERS = {
    "TargetFunctionArns": ",".join(FUNCTIONS),
    "TargetStateMachineArns": ",".join(MACHINES),
    "LeaseSeconds": "300",
    "PollSeconds": "15",
    "DefaultRecordWaitSeconds": "90",
    "Permits": "7",
    "CleanUpConcurrency": "25",
    "LogRetentionDays": "365",
    **WATCHED,
}
OTHER_SETTINGS = {
    "targets": [*FUNCTIONS, *MACHINES],
    "lease": Duration.seconds(300),
    "poll": Duration.seconds(15),
    "default_record_wait": Duration.seconds(90),
    "permits": 7,
    "clean_up_concurrency": 25,
    "log_retention": logs.RetentionDays.ONE_YEAR,
}


@many
@pytest.mark.parametrize(
    ("parameters", "settings"),
    [
        (WATCHED, {}),
        (OTHER_PARAMETERS, OTHER_SETTINGS),
        ({**OTHER_PARAMETERS, "TargetFunctionArns": ""}, {**OTHER_SETTINGS, "targets": MACHINES}),
        ({**OTHER_PARAMETERS, "TargetStateMachineArns": ""}, {**OTHER_SETTINGS, "targets": FUNCTIONS}),
        *(({**WATCHED, "LeaseSeconds": str(lease)}, {"lease": Duration.seconds(lease)}) for lease in (30, 3600)),
    ],
    ids=["defaults", "others", "no functions", "no machines", "a lease of 30 s", "a lease of an hour"],
)
def test_with_its_parameters_it_equals_the_constructs_template(
    parameters: Mapping[str, str], settings: Mapping[str, Any], template: Any, tmp_path: Path
) -> None:
    expected = of_the_construct(tmp_path / "it", settings)
    # Its targets are parameters: so its definition has the states for both kinds of work.
    both = of_the_construct(tmp_path / "both", {**settings, "targets": [*FUNCTIONS, *MACHINES]})
    for name, resource in expected.items():
        if "DefinitionString" in resource.get("Properties", {}):
            definition, own = (json.loads(each[name]["Properties"]["DefinitionString"]) for each in (both, expected))
            for state in definition["States"].keys() & own["States"].keys():
                told, meant = (each["States"][state].get("Parameters", {}) for each in (definition, own))
                payload = told.get("Payload", {})
                payload.update({key: value for key, value in meant.get("Payload", {}).items() if key != "goesOn"})
            resource["Properties"]["DefinitionString"] = json.dumps(definition)
    assert comparable(Resolved(template, **parameters).resources) == comparable(expected)


def of_the_construct(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of the construct with these settings, in a stack of the template's name."""
    folder.mkdir()
    made = synthesise(folder, settings)
    service = made["Outputs"]["ServiceName"]["Value"]
    resources = json.loads(json.dumps(made["Resources"]).replace(service, STACK_NAME))
    return {
        name: {key: value for key, value in _plain(resource).items() if key != "Condition"}
        for name, resource in resources.items()
    }


@many
def test_alarms_and_the_dashboard_are_made_if_asked_for_and_without_alarms_it_shows_none(template: Any) -> None:
    kinds, shown = [], []
    for given in ({}, {"AlarmTopicArn": A_TOPIC}, {"Dashboard": "true"}, WATCHED):
        made = Resolved(template, **given).resources.values()
        kinds.append({each["Type"] for each in made if "CloudWatch" in each["Type"]})
        bodies = [each["Properties"]["DashboardBody"] for each in made if "Dashboard" in each["Type"]]
        shown += ['"type":"alarm"' in str(body).replace("\\", "") for body in bodies]
    alarms, dashboard = "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard"
    assert kinds == [set(), {alarms}, {dashboard}, {alarms, dashboard}]
    assert shown == [False, True]


@many
@pytest.mark.parametrize(("given", "expected"), [({}, []), ({"CleanUpConcurrency": "10"}, ["10"])], ids=str)
def test_clean_ups_reserve_concurrency_if_they_are_bounded(given: Any, expected: list[str], template: Any) -> None:
    properties = [each["Properties"] for each in Resolved(template, **given).resources.values()]
    reserved = "ReservedConcurrentExecutions"
    assert [each[reserved] for each in properties if each.get(reserved) is not None] == expected


def characters(policy: Any) -> int:
    """Without white space, which IAM does not count; an ARN that only a deployment knows has up to 150."""
    if isinstance(policy, list):
        return 2 + sum(characters(each) + 1 for each in policy)
    if not isinstance(policy, dict):
        return len(json.dumps(policy))
    if any(key == "Ref" or key.startswith("Fn::") for key in policy):
        return 150
    return 2 + sum(len(key) + 4 + characters(value) for key, value in policy.items())


@many
@pytest.mark.parametrize("left", [1, 0], ids=["one character less", "the longest list"])
@pytest.mark.parametrize("name", [1, 40, 80])
def test_the_policies_have_room_for_any_targets_that_the_parameters_have_room_for(
    name: int, left: int, template: Any
) -> None:
    def longest(arn: str) -> str:
        arn = f"{arn.rpartition(':')[0]}:{name * 'n'}"
        found = ",".join((LONGEST_LIST // (len(arn) + 1)) * [arn])
        return found + (LONGEST_LIST - left - len(found)) * "n"

    given = {"TargetFunctionArns": longest(FUNCTIONS[0]), "TargetStateMachineArns": longest(MACHINES[0])}
    inline: Counter[str] = Counter()
    managed = []
    for resource in Resolved(template, **given).resources.values():
        if resource["Type"] in POLICIES:
            size = characters(resource["Properties"]["PolicyDocument"])
            managed += [size] if resource["Type"] == "AWS::IAM::ManagedPolicy" else []
            if resource["Type"] == "AWS::IAM::Policy":
                inline.update({json.dumps(role): size for role in resource["Properties"]["Roles"]})
    assert max(managed) <= 6_144
    # The inline policies of one role alone would have no room for all lists.
    assert max(inline.values()) <= 10_240 < max(inline.values()) + sum(managed)


@many
def test_nothing_in_it_is_of_the_cdk(template: Any) -> None:
    assert "cdk" not in json.dumps(template).lower()
    assert "BootstrapVersion" not in template["Parameters"]


@many
def test_the_packaged_template_has_no_fault(packaged: Path) -> None:
    # W3005: the CDK itself adds DependsOn entries that a GetAtt already implies.
    lint = [str(Path(sys.executable).with_name("cfn-lint")), "--ignore-checks", "W3005", "--", str(packaged)]
    done = subprocess.run(lint, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


@many
def test_it_can_be_nested_in_another_template(packaged: Path) -> None:
    nested = json.loads(packaged.with_name("packaged-nested.json").read_text())["Resources"]
    assert "artifacts" in nested["Locks"]["Properties"]["TemplateURL"]
    assert nested["Orders"]["Properties"]["DefinitionUri"]["Bucket"] == "artifacts"


@many
def test_a_stack_of_the_cdk_includes_it_and_lets_a_caller_start_it(packaged: Path) -> None:
    stack = Stack(App(), "Mine")
    included = CfnInclude(
        stack,
        "Ticketlock",
        template_file=str(packaged),
        parameters={"LeaseSeconds": 60, "TargetFunctionArns": FUNCTIONS},
    )
    arn = Token.as_string(included.get_output("StateMachineArn").value)
    caller = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    sfn.StateMachine.from_state_machine_arn(stack, "Lock", arn).grant_start_execution(caller)

    made, plain = Template.from_stack(stack), json.loads(packaged.read_text())
    assert made.to_json()["Resources"].keys() > plain["Resources"].keys()
    start = {"Action": "states:StartExecution", "Effect": "Allow"}
    start["Resource"] = plain["Outputs"]["StateMachineArn"]["Value"]
    of_caller = {"Roles": [stack.resolve(caller.role_name)]}
    made.has_resource_properties("AWS::IAM::Policy", {**of_caller, "PolicyDocument": {"Statement": [start]}})


def two_templates(one: Any, other: Any) -> tuple[dict[str, Any], list[Varied]]:
    version = {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "Function"}}}

    def template(machine: Any, of_function: Any) -> dict[str, Any]:
        function = {"Type": "AWS::Lambda::Function", "Properties": {}, "Timeout": of_function}
        return {"Resources": {"Function": function, "Version": version, "Machine": {"Type": machine}}}

    made = [template(*each) for each in (one, other)]
    return made[0], [Varied("LeaseSeconds", (60, 120), {60: made[0], 120: made[1]})]


def test_a_derived_number_is_in_a_mapping() -> None:
    made = with_parameters(*two_templates(('{"wait": 30, "lease": 60.0}', 1), ('{"wait": 60, "lease": 120.0}', 1)))
    lookup = {"Fn::FindInMap": ["LeaseSeconds", {"Ref": "LeaseSeconds"}, "Of60Is30Or60"]}
    lease = {"Ref": "LeaseSeconds"}
    assert made["Resources"]["Machine"]["Type"] == {"Fn::Join": ["", ['{"wait": ', lookup, ', "lease": ', lease, "}"]]}
    assert made["Mappings"] == {"LeaseSeconds": {"60": {"Of60Is30Or60": "30"}, "120": {"Of60Is30Or60": "60"}}}


def test_two_numbers_that_are_the_same_by_one_value_alone_are_two_in_the_mapping() -> None:
    made = with_parameters(*two_templates(("30 30", 1), ("60 90", 1)))
    columns = {"Of60Is30Or60", "Of60Is30Or90"}
    assert {row: {*found} for row, found in made["Mappings"]["LeaseSeconds"].items()} == {"60": columns, "120": columns}


def with_a_list(kind: str, filling: int) -> dict[str, Any]:
    statement = {"Action": "lambda:InvokeFunction", "Effect": "Allow", "Resource": [A_FUNCTION, filling * "x"]}
    properties = {"PolicyDocument": {"Statement": [statement]}, "Roles": [{"Ref": "Role"}]}
    return {"Resources": {"Let": {"Type": f"AWS::IAM::{kind}", "Properties": properties}}}


@pytest.mark.parametrize(
    ("kind", "most", "what"),
    [("ManagedPolicy", 6_144, "Let"), ("Policy", 10_240, "the inline policies of Role")],
    ids=["managed", "inline"],
)
def test_a_policy_without_room_for_the_longest_list_is_refused_by_name(kind: str, most: int, what: str) -> None:
    made = with_lists(with_a_list(kind, 0))["Resources"]["Let"]["Properties"]["PolicyDocument"]
    room = most - _longest(made)
    with_lists(with_a_list(kind, room))
    with pytest.raises(TemplateError, match=f"^{what} may have {most + 1:,} characters, .*; allowed: {most:,}$"):
        with_lists(with_a_list(kind, room + 1))


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (("a", 1), ("b", 1), "/Resources/Machine/Type differs by LeaseSeconds in more than numbers"),
        ((["a"], 1), ([], 1), "/Resources/Machine/Type differs by .'LeaseSeconds'. in more than numbers"),
        (("a", 30), ("a", 60), "Function depends on a parameter, and Version would not be published again"),
    ],
    ids=["a text", "a list", "a function with a version"],
)
def test_a_setting_that_cannot_be_a_parameter_is_refused(one: Any, other: Any, what: str) -> None:
    with pytest.raises(TemplateError, match=what):
        with_parameters(*two_templates(one, other))
