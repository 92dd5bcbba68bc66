"""Write the plain template and the folder of its functions' code into build/template."""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk import App, CfnOutput, DefaultStackSynthesizer, Duration, Stack
from aws_cdk import aws_sns as sns
from ticketlock_cdk import TicketLock
from ticketlock_cdk.assets import OF_LOCKS
from ticketlock_cdk.context import RETENTION_DAYS

from ticketlock.locks import MAX_HOLDERS
from ticketlock_local.checkout import BUILD, exclusive
from ticketlock_local.plain.parameters import (
    A_FUNCTION,
    A_MACHINE,
    CONDITIONS,
    FUNCTIONS,
    MACHINES,
    TemplateError,
    Varied,
    joined,
    with_lists,
    with_parameters,
)

STACK = "Ticketlock"
# A placeholder for the topic of the alarms.
A_TOPIC = "arn:aws:sns:us-east-1:123456789012:the-one-of-the-parameter"

FOLDER = BUILD / "template"
NAME = "ticketlock.json"
CODE = "functions"

LEASE, POLL, PERMITS, RETENTION = "LeaseSeconds", "PollSeconds", "Permits", "LogRetentionDays"
RECORD_WAIT, CLEAN_UP, TOPIC = "DefaultRecordWaitSeconds", "CleanUpConcurrency", "AlarmTopicArn"
DASHBOARD = "Dashboard"
_WAITS_FOR_EVER, _UNBOUNDED = "WaitsForEver", "CleanUpIsUnbounded"
_HAS_TOPIC, _HAS_DASHBOARD = "HasAlarmTopic", "HasDashboard"
_ALARM_OF_CLEAN_UP = "HasAlarmOfThrottledCleanUp"

# A lease of 22 s or more does not affect the time-outs of the functions: if a parameter alone changes, an alias keeps
# its function's old version.
_LEASES = (60, 30, 120, 300, 600, 1800, 3600)
_A_RECORD_WAIT, _ANOTHER = 86_400, 3_600
_DEFAULTS: Mapping[str, int] = {
    LEASE: 60,
    POLL: 5,
    PERMITS: 1,
    RETENTION: 30,
    RECORD_WAIT: _A_RECORD_WAIT,
}
# The values for which the construct is synthesised, to find a setting in the template: all, or one more if it only
# recurs.
_VALUES: Mapping[str, tuple[int, ...]] = {
    LEASE: _LEASES,
    POLL: (5, 7),
    PERMITS: (1, 3),
    RETENTION: (30, 60),
    RECORD_WAIT: (_A_RECORD_WAIT, _ANOTHER),
}
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    FUNCTIONS: {
        "Type": "CommaDelimitedList",
        "Default": "",
        "Description": "The ARNs of the Lambda functions that may run under the lock, comma-separated",
    },
    MACHINES: {
        "Type": "CommaDelimitedList",
        "Default": "",
        "Description": "The ARNs of the Standard state machines that may run under the lock, comma-separated, "
        "without versions and aliases",
        "AllowedPattern": "(arn:[^:,]+:states:[^:,]+:[0-9]{12}:stateMachine:[^:,]+)?",
    },
    LEASE: {
        "Type": "Number",
        "Default": 60,
        "AllowedValues": sorted(_LEASES),
        "Description": "How long a grant is valid unless it is renewed; it is renewed at half of this",
    },
    POLL: {
        "Type": "Number",
        "Default": 5,
        "MinValue": 1,
        "MaxValue": min(_LEASES) // 2,
        "Description": "The longest sleep between two polls of the execution that is first in line",
    },
    RECORD_WAIT: {
        "Type": "String",
        "Default": "Infinity",
        "AllowedPattern": "Infinity|[0-9]{1,8}",
        "Description": "How long an execution waits if its input has no recordWaitSeconds: seconds, or Infinity",
    },
    PERMITS: {
        "Type": "Number",
        "Default": 1,
        "MinValue": 1,
        "MaxValue": MAX_HOLDERS,
        "Description": "How many may hold a lock at once, for executions whose input has no permits",
    },
    CLEAN_UP: {
        "Type": "String",
        "Default": "none",
        "AllowedPattern": "none|[1-9][0-9]{0,2}|1000",
        "Description": "How many clean-ups run at once, reserved from the account's concurrency; none reserves nothing",
    },
    RETENTION: {
        "Type": "Number",
        "Default": 30,
        "AllowedValues": sorted(RETENTION_DAYS),
        "Description": "How many days logs are kept",
    },
    # Not an empty text as the default: the CDK's check at synth warns of one at each alarm.
    TOPIC: {
        "Type": "String",
        "Default": "none",
        "AllowedPattern": "none|arn:[^:]+:sns:[^:]+:[0-9]{12}:[^:]+",
        "Description": "The ARN of the SNS topic that the alarms notify; with none there are no alarms",
    },
    DASHBOARD: {
        "Type": "String",
        "Default": "false",
        "AllowedValues": ["false", "true"],
        "Description": "Whether to make a CloudWatch dashboard",
    },
}


def write() -> int:
    """Write both, and print where they are."""
    with exclusive("template"):
        shutil.rmtree(FOLDER, ignore_errors=True)
        write_to(FOLDER)
    print(f"{FOLDER / NAME}, and its functions' code beside it: docs/construct.md says how to deploy them")
    return 0


def write_to(folder: Path) -> None:
    """Write both into a folder, which is made.

    Raises:
        TemplateError: the construct makes something that cannot be a parameter.
    """
    with tempfile.TemporaryDirectory(prefix="ticketlock-template-") as assembly:
        template = plain_template(Path(assembly))
        shutil.copytree(functions_folder(Path(assembly)), folder / CODE)
    (folder / NAME).write_text(json.dumps(template, indent=1) + "\n")


def plain_template(assembly: Path) -> dict[str, Any]:
    """Create the template from several syntheses, one for each value of a setting.

    Args:
        assembly: the folder in which it is synthesised; afterwards it holds the functions' code.

    Raises:
        TemplateError: the construct makes something that cannot be a parameter.
    """
    base = synthesise(assembly, properties(_DEFAULTS))
    varied = []
    for parameter, values in _VALUES.items():
        others = {value: synthesise(assembly, properties({**_DEFAULTS, parameter: value})) for value in values[1:]}
        varied.append(Varied(parameter, values, {values[0]: base, **others}))
    template = _with_parameters_of_texts(with_lists(with_parameters(base, varied)))
    (clean_up,) = (name for name, resource in template["Resources"].items() if _handler(resource) == "clean_up.handler")
    bounded = {**properties(_DEFAULTS), "clean_up_concurrency": 1}
    dashboards = [
        _with_parameters_of_texts(each)["Resources"]
        for each in (synthesise(assembly, bounded), synthesise(assembly, properties(_DEFAULTS), alarms=False))
    ]
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "ticketlock: workflows that run one at a time for each entity, in arrival order",
        "Parameters": _PARAMETERS,
        "Mappings": template["Mappings"],
        "Conditions": {
            **CONDITIONS,
            _WAITS_FOR_EVER: {"Fn::Equals": [{"Ref": RECORD_WAIT}, "Infinity"]},
            _UNBOUNDED: {"Fn::Equals": [{"Ref": CLEAN_UP}, "none"]},
            _HAS_TOPIC: {"Fn::Not": [{"Fn::Equals": [{"Ref": TOPIC}, "none"]}]},
            _HAS_DASHBOARD: {"Fn::Equals": [{"Ref": DASHBOARD}, "true"]},
            _ALARM_OF_CLEAN_UP: {"Fn::And": [{"Condition": _HAS_TOPIC}, {"Condition": _UNBOUNDED}]},
        },
        "Resources": {
            name: _shown(_bounded(_plain(resource), clean_up), [each.get(name) for each in dashboards])
            for name, resource in template["Resources"].items()
        },
        "Outputs": template["Outputs"],
    }


def properties(values: Mapping[str, int]) -> dict[str, Any]:
    """The properties of the construct for the numbers of the parameters, with placeholders for the others."""
    return {
        "lease": Duration.seconds(values[LEASE]),
        "poll": Duration.seconds(values[POLL]),
        "permits": values[PERMITS],
        "log_retention": RETENTION_DAYS[values[RETENTION]],
        "default_record_wait": Duration.seconds(values[RECORD_WAIT]),
        "clean_up_concurrency": None,
        "targets": [A_FUNCTION, A_MACHINE],
    }


def _with_parameters_of_texts(template: dict[str, Any]) -> dict[str, Any]:
    """Replace the placeholders of parameters that are not numbers, and use the stack's name as the service's name."""
    service = template["Outputs"]["ServiceName"]["Value"]
    changes: Sequence[tuple[Any, Any]] = [
        (A_TOPIC, {"Ref": TOPIC}),
        # Two stacks from one template must have separate metrics.
        (service, {"Ref": "AWS::StackName"}),
        ({"Ref": RECORD_WAIT}, {"Fn::If": [_WAITS_FOR_EVER, '"Infinity"', {"Ref": RECORD_WAIT}]}),
    ]

    def changed(node: Any) -> Any:
        for old, new in changes:
            if node == old:
                return new
        if isinstance(node, dict) and node.get("Fn::Join", [None])[0] == "":
            # The dashboard's text names the service too.
            return joined([changed(part) for each in node["Fn::Join"][1] for part in _split(each, service)])
        if isinstance(node, dict):
            return {key: changed(value) for key, value in node.items()}
        return [changed(each) for each in node] if isinstance(node, list) else node

    found: dict[str, Any] = changed(template)
    for left in (A_TOPIC, service):
        if left in str(found):
            raise TemplateError(f"{left} is a part of a text, so no parameter can replace it there")
    return found


def _split(part: Any, word: str) -> Sequence[Any]:
    """A part of a text, so that the word is a part of its own."""
    return [each for each in re.split(f"({re.escape(word)})", part) if each] if isinstance(part, str) else [part]


def _plain(resource: dict[str, Any]) -> dict[str, Any]:
    """A resource without the parts of the CDK: the location of the code, and its metadata."""
    of_others = {name: value for name, value in resource.get("Metadata", {}).items() if not name.startswith("aws:cdk:")}
    plain = {name: value for name, value in resource.items() if name != "Metadata"}
    if of_others:
        plain["Metadata"] = of_others
    if resource["Type"] == "AWS::Lambda::Function":
        plain["Properties"] = {**resource["Properties"], "Code": CODE}
    if resource["Type"] == "AWS::CloudWatch::Alarm":
        plain["Condition"] = _HAS_TOPIC
    if resource["Type"] == "AWS::CloudWatch::Dashboard":
        plain["Condition"] = _HAS_DASHBOARD
    return plain


def _shown(resource: dict[str, Any], others: Sequence[Any]) -> dict[str, Any]:
    """A resource; if it is the dashboard, it names the alarms that there are.

    Args:
        resource: with all alarms.
        others: the same without the alarm of throttled clean-ups, and without any.
    """
    if resource["Type"] != "AWS::CloudWatch::Dashboard":
        return resource
    every, most, none = (each["Properties"]["DashboardBody"] for each in (resource, *others))
    body = {"Fn::If": [_ALARM_OF_CLEAN_UP, every, {"Fn::If": [_HAS_TOPIC, most, none]}]}
    return {**resource, "Properties": {**resource["Properties"], "DashboardBody": body}}


def _handler(resource: Mapping[str, Any]) -> Any:
    return resource["Properties"].get("Handler") if resource["Type"] == "AWS::Lambda::Function" else None


def _bounded(resource: dict[str, Any], clean_up: str) -> dict[str, Any]:
    """A resource with the parameter of the clean-up's concurrency: that of its function, and when it has an alarm.

    By hand: the base has none, and a property or a resource that only some values make cannot be merged.
    """
    properties = resource["Properties"]
    if _handler(resource) == "clean_up.handler":
        bound = {"Fn::If": [_UNBOUNDED, {"Ref": "AWS::NoValue"}, {"Ref": CLEAN_UP}]}
        return {**resource, "Properties": {**properties, "ReservedConcurrentExecutions": bound}}
    if properties.get("MetricName") == "Throttles" and {"Ref": clean_up} in (
        each["Value"] for each in properties["Dimensions"]
    ):
        # What is bounded is throttled as a matter of course.
        return {**resource, "Condition": _ALARM_OF_CLEAN_UP}
    return resource


def synthesise(assembly: Path, properties: Mapping[str, Any], *, alarms: bool = True) -> dict[str, Any]:
    """Synthesise one stack with a TicketLock, its dashboard and its alarms, and return its template.

    Args:
        assembly: the folder to write; it is overwritten.
        properties: the construct's, except the alarms and the dashboard.
        alarms: whether it has alarms.
    """
    shutil.rmtree(assembly, ignore_errors=True)
    app = App(outdir=str(assembly), analytics_reporting=False)
    # Without the rule that asks for the CDK's bootstrap stack.
    stack = Stack(app, STACK, synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False))
    topic = sns.Topic.from_topic_arn(stack, "AlarmTopic", A_TOPIC)
    watched: dict[str, Any] = {"alarms": True, "alarm_topic": topic} if alarms else {}
    lock = TicketLock(stack, "TicketLock", dashboard=True, **watched, **properties)
    CfnOutput(stack, "TableName", value=lock.table.table_name)
    CfnOutput(stack, "ListLocks", value=lock.list_command)
    CfnOutput(stack, "TableArn", value=lock.table.table_arn)
    CfnOutput(stack, "StateMachineArn", value=lock.state_machine.state_machine_arn)
    CfnOutput(stack, "DeadLetterQueueUrl", value=lock.dead_letter_queue.queue_url)
    CfnOutput(stack, "ServiceName", value=lock.service_name)
    app.synth()
    template: dict[str, Any] = json.loads((assembly / f"{STACK}.template.json").read_text())
    return template


def functions_folder(assembly: Path) -> Path:
    """The folder of the functions' code in an assembly that ``synthesise`` wrote."""
    (folder,) = assembly.glob(f"{OF_LOCKS.name}-*")
    return folder
