"""The stack with a TicketLock, synthesised here, without what only the CDK's own command line needs."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import App, CfnOutput, DefaultStackSynthesizer, Stack
from aws_cdk import aws_sns as sns
from ticketlock_cdk import TicketLock
from ticketlock_cdk.assets import OF_LOCKS

STACK = "Ticketlock"
# A placeholder for the topic of the alarms.
A_TOPIC = "arn:aws:sns:us-east-1:123456789012:the-one-of-the-parameter"


def synthesise(assembly: Path, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Synthesise one stack with a TicketLock and its alarms, and return its template.

    Args:
        assembly: the folder to write; it is overwritten.
        properties: the construct's, except the alarms.
    """
    shutil.rmtree(assembly, ignore_errors=True)
    app = App(outdir=str(assembly), analytics_reporting=False)
    # Without the rule that asks for the CDK's bootstrap stack.
    stack = Stack(app, STACK, synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False))
    topic = sns.Topic.from_topic_arn(stack, "AlarmTopic", A_TOPIC)
    lock = TicketLock(stack, "TicketLock", alarms=True, alarm_topic=topic, **properties)
    CfnOutput(stack, "TableName", value=lock.table.table_name)
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
