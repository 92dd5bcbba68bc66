"""The CDK app of `make aws`: a lock and units as users deploy them, work that ends in every way, and roles with grants.

The CDK runs it with the context `stack`, `bucket` and `run`. The stack's files go into the run's own bucket, so the
account need not be bootstrapped, and no file stays in another bucket.
"""

from aws_cdk import (
    App,
    CfnOutput,
    CliCredentialsStackSynthesizer,
    Duration,
    RemovalPolicy,
    Stack,
)
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from ticketlock_cdk import TicketLock, TransactionTables
from ticketlock_cdk.examples import example_function, example_workflow

# As in the modules beside this one, which it cannot import: the CDK runs it as a script.
RUN_TAG = "ticketlock:run"
LEASE_S = 40
ERROR = "OutOfPaint"

_FAILS = f"""\
class {ERROR}(Exception):
    pass


def handler(event, _context):
    raise {ERROR}("there is no more paint")
"""


class CheckedStack(Stack):
    """The resources that the checks use; deleting the stack deletes all of them."""

    def __init__(self, scope: App, name: str, *, bucket: str, run: str) -> None:
        super().__init__(
            scope,
            "Checked",
            stack_name=name,
            description="The checklist of ticketlock; made by `make aws`, which deletes it",
            tags={RUN_TAG: run},
            synthesizer=CliCredentialsStackSynthesizer(file_assets_bucket_name=bucket),
        )
        waits = example_workflow(self, "Example", encryption_key=None)
        sleeps = example_function(self, "ExampleFunction", encryption_key=None)
        raises = self._failing_function()
        fails = sfn.StateMachine(
            self, "Fails", definition_body=_of(sfn.Fail(self, "Fail", error=ERROR, cause="there is no more paint"))
        )
        times_out = sfn.StateMachine(
            self,
            "TimesOut",
            timeout=Duration.seconds(2),
            definition_body=_of(sfn.Wait(self, "WaitTooLong", time=sfn.WaitTime.duration(Duration.seconds(20)))),
        )
        lock = TicketLock(
            self,
            "Lock",
            lease=Duration.seconds(LEASE_S),
            poll=Duration.seconds(1),
            targets=[waits, sleeps, raises, fails, times_out],
            # A new account's quota may leave nothing to reserve:
            # https://docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html
            clean_up_concurrency=None,
            removal_policy=RemovalPolicy.DESTROY,
        )
        accounts = dynamodb.Table(
            self,
            "Accounts",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=RemovalPolicy.DESTROY,
        )
        units = TransactionTables(
            self,
            "Units",
            data_tables=[accounts],
            # The checks call the sweeper.
            sweep_every=Duration.days(1),
            removal_policy=RemovalPolicy.DESTROY,
        )
        saves = self._waits_and_fails()
        units.attach(saves)
        for table in (lock.table, units.table):
            _without_backups(table)
        encrypted = self._encrypted(lock)
        outputs = {
            "TableName": lock.table.table_name,
            "StateMachineArn": lock.state_machine.state_machine_arn,
            "DeadLetterQueueUrl": lock.dead_letter_queue.queue_url,
            "EndsQueueUrl": self._ends_of(lock.state_machine, saves).queue_url,
            "ExampleTargetArn": waits.state_machine_arn,
            "ExampleFunctionArn": sleeps.function_arn,
            "RaisesArn": raises.function_arn,
            "FailsArn": fails.state_machine_arn,
            "TimesOutArn": times_out.state_machine_arn,
            "StartsManyArn": self._starts_many(waits).state_machine_arn,
            "AccountsTableName": accounts.table_name,
            "UnitsTableName": units.table.table_name,
            "SweeperName": units.sweeper.function_name,
            "SavesArn": saves.state_machine_arn,
            "EncryptedArn": encrypted.state_machine_arn,
        }
        grants = {"Operator": lock.grant_read, "Client": lock.grant_use, "Units": units.grant_units}
        for name, grant in grants.items():
            # Only the caller of the checklist can assume it, who alone knows the run's id.
            role = iam.Role(self, f"{name}Role", assumed_by=iam.AccountRootPrincipal(), external_ids=[run])
            grant(role)
            outputs[f"{name}RoleArn"] = role.role_arn
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)

    def _failing_function(self) -> lambda_.Function:
        # Its own log group and role: the CDK's log group would remain, and its role may write to every log group.
        log_group = logs.LogGroup(self, "RaisesLogs", removal_policy=RemovalPolicy.DESTROY)
        role = iam.Role(self, "RaisesRole", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        return lambda_.Function(
            self,
            "Raises",
            code=lambda_.Code.from_inline(_FAILS),
            handler="index.handler",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            log_group=log_group,
            role=role,
        )

    def _waits_and_fails(self) -> sfn.StateMachine:
        """Fails after its input's seconds; the units that its executions save are rolled back then."""
        wait = sfn.Wait(self, "WaitForTheSave", time=sfn.WaitTime.seconds_path("$.seconds"))
        fail = sfn.Fail(self, "FailAfterTheSave", error=ERROR, cause="there is no more paint")
        return sfn.StateMachine(self, "Saves", definition_body=_of(wait.next(fail)))

    def _encrypted(self, lock: TicketLock) -> sfn.StateMachine:
        """A user's machine with a key of its own; a part of it waits under the lock for its input's seconds."""
        work = sfn.Wait(self, "WaitUnderTheLock", time=sfn.WaitTime.seconds_path("$.seconds"))
        machine = sfn.StateMachine(
            self,
            "Encrypted",
            # The CDK's policy for the key names the machine.
            state_machine_name=f"{self.stack_name}-encrypted",
            encryption_configuration=sfn.CustomerManagedEncryptionConfiguration(
                kms.Key(self, "Key", removal_policy=RemovalPolicy.DESTROY, pending_window=Duration.days(7))
            ),
            definition_body=_of(lock.serialize(self, "Part", work, entity="$.entity")),
        )
        lock.attach(machine)
        return machine

    def _ends_of(self, *machines: sfn.StateMachine) -> sqs.Queue:
        """A queue for EventBridge's events of executions that have ended, as the clean-up gets them."""
        queue = sqs.Queue(self, "Ends", removal_policy=RemovalPolicy.DESTROY)
        events.Rule(
            self,
            "EndsRule",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "status": ["FAILED", "TIMED_OUT", "ABORTED"],
                    "stateMachineArn": [machine.state_machine_arn for machine in machines],
                },
            ),
            targets=[targets.SqsQueue(queue)],
        )
        return queue

    def _starts_many(self, nested: sfn.StateMachine) -> sfn.StateMachine:
        """Starts an execution for each of its items, at once and without a retry, and returns the errors' names."""
        start = tasks.StepFunctionsStartExecution(
            self,
            "StartOne",
            state_machine=nested,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            input=sfn.TaskInput.from_object({"seconds": 1}),
            result_selector={"error": ""},
        )
        refused = sfn.Pass(self, "Refused", parameters={"error.$": "$.Error"})
        each = sfn.Map(self, "StartAll", items_path="$.items")
        each.item_processor(start.add_catch(refused))
        return sfn.StateMachine(self, "StartsMany", definition_body=_of(each))


def _of(state: sfn.IChainable) -> sfn.DefinitionBody:
    return sfn.DefinitionBody.from_chainable(state)


def _without_backups(made: dynamodb.ITable) -> None:
    # Deleting a table with backups leaves one for 35 days:
    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/PointInTimeRecovery_Howitworks.html
    table = made.node.default_child
    assert isinstance(table, dynamodb.CfnTable)
    table.point_in_time_recovery_specification = None


def main() -> None:
    """Synthesise."""
    app = App()
    given = {name: app.node.try_get_context(name) for name in ("stack", "bucket", "run")}
    CheckedStack(app, given["stack"], bucket=given["bucket"], run=given["run"])
    app.synth()


if __name__ == "__main__":
    main()
