"""The CDK app of the peer: its semaphore of one permit, around the same function that the other benchmarks run."""

import importlib
import sys
from pathlib import Path
from typing import Any

from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from ticketlock_cdk.examples import example_function
from ticketlock_local.cloud.deploy import STACK

sys.path.append(str(Path(__file__).parents[1]))
from peer import FOLDER, LOCK


class PeerStack(Stack):
    """A workflow that takes the lock, runs the function with the execution's input, and releases the lock."""

    def __init__(self, scope: App, id: str) -> None:
        super().__init__(scope, id)
        sys.path.append(str(FOLDER))
        package: Any = importlib.import_module("state_machine_semaphore")
        function = example_function(self, "Work", encryption_key=None)
        job = tasks.LambdaInvoke(self, "Job", lambda_function=function, output_path="$.Payload")
        done = sfn.Succeed(self, "Done")
        semaphore = package.Semaphore(self, "Semaphore", lock_name=LOCK, limit=1, job=job, next_state=done)
        machine = sfn.StateMachine(self, "Machine", definition_body=sfn.DefinitionBody.from_chainable(semaphore))
        # The construct adds its table to the stack, and has no attribute for it.
        (table,) = [child for child in self.node.children if "Table" in child.node.id]
        CfnOutput(self, "StateMachineArn", value=machine.state_machine_arn)
        CfnOutput(self, "CounterTableName", value=getattr(table, "table_name"))  # noqa: B009


if __name__ == "__main__":
    app = App()
    PeerStack(app, STACK)
    app.synth()
