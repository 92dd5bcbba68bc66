"""Units of work in the stacks that people have: tables with their data, functions in an app, workflows beside them."""

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions_tasks as tasks
from kit.stacks import as_list, function, machine
from ticketlock_cdk import TransactionTables
from ticketlock_cdk.units.access import FINISH_ITEMS

ID = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)


class Layout:
    """Encrypted tables of data, a worker that changes them in units, and a workflow that runs it or that it starts.

    The construct knows the first table and the workflow before anything tells that the worker waits for the units.
    """

    def __init__(self, outdir, *, units_in, worker_in, workflow_in, runs_the_worker):
        app = App(outdir=outdir)
        self.stacks = {name: Stack(app, name) for name in dict.fromkeys(["Data", units_in, worker_in, workflow_in])}
        data, of_workflow = self.stacks["Data"], self.stacks[workflow_in]
        key = kms.Key(data, "Key")
        self.tables = [
            dynamodb.Table(data, name, partition_key=ID, encryption_key=key) for name in ("Accounts", "Orders")
        ]
        self.units = TransactionTables(
            self.stacks[units_in],
            "Units",
            data_tables=self.tables[:1],
            # Where the data wait for the units table, that cannot wait for a key among the data.
            encryption_key=None if worker_in == "Data" else key,
            alarms=True,
            dashboard=True,
        )
        worker = function(self.stacks[worker_in])
        chain = tasks.LambdaInvoke(of_workflow, "Run", lambda_function=worker) if runs_the_worker else None
        workflow = machine(of_workflow, chain=chain)
        self.units.attach(workflow)
        for table in (self.units.table, *self.tables):
            worker.add_environment(table.node.id, table.table_name)
        self.units.grant_units(worker, *self.tables)
        if not runs_the_worker:
            workflow.grant_start_execution(worker)
            worker.add_environment("Workflow", workflow.state_machine_arn)

    def waits(self):
        """Which stacks each stack waits for."""
        return {name: {each.node.id for each in stack.dependencies} for name, stack in self.stacks.items()}


# Where the units, the worker and the workflow are, whether the workflow runs the worker; and who waits for whom then.
LAYOUTS = [
    ("Data", "App", "App", True, {"App": {"Data"}}),
    ("Data", "App", "Workflows", True, {"App": {"Data"}, "Workflows": {"App", "Data"}}),
    ("Data", "App", "Workflows", False, {"Data": {"Workflows"}, "App": {"Data", "Workflows"}}),
    ("App", "App", "App", True, {"App": {"Data"}}),
    ("App", "App", "Workflows", True, {"App": {"Data"}, "Workflows": {"App"}}),
    ("App", "App", "Workflows", False, {"App": {"Data", "Workflows"}}),
    ("Units", "App", "App", True, {"Units": {"Data"}, "App": {"Data", "Units"}}),
    (
        *("Units", "App", "Workflows", True),
        {"Units": {"Data"}, "App": {"Data", "Units"}, "Workflows": {"App", "Units"}},
    ),
    (
        *("Units", "App", "Workflows", False),
        {"Units": {"Data", "Workflows"}, "App": {"Data", "Units", "Workflows"}},
    ),
    # The service's tables, worker and workflow together, and the units of many services.
    ("Units", "Data", "Data", True, {"Data": {"Units"}}),
]


@pytest.mark.verify("stacks of its own, synthesised")
def test_a_grantee_may_be_beside_the_topic_that_the_alarms_notify(outdir, synthesise):
    app = App(outdir=outdir)
    data, own = Stack(app, "Data"), Stack(app, "Own")
    table = dynamodb.Table(data, "Accounts", partition_key=ID)
    worker = function(data)
    units = TransactionTables(own, "Units", alarms=True, alarm_topic=sns.Topic(data, "OnCall"))
    units.grant_units(worker, table)
    units.grant_reads(worker, table)
    # What it lets the worker query is granted at the end of the synthesis.
    table.add_global_secondary_index(index_name="byOwner", partition_key=ID)
    app.synth()
    assert [own.dependencies, data.dependencies] == [[data], []]
    statements = [one for one in synthesise(own).statements() if "/index/*" in str(one["Resource"])]
    assert {one["Action"] for one in statements} == {"dynamodb:Query"}


@pytest.mark.parametrize(
    ("units_in", "worker_in", "workflow_in", "runs_the_worker", "waits"),
    [
        pytest.param(*layout, marks=() if layout[0] == layout[1] else pytest.mark.verify("another layout"))
        for layout in LAYOUTS
    ],
)
def test_data_units_workers_and_workflows_may_each_be_in_a_stack_of_their_own(
    units_in, worker_in, workflow_in, runs_the_worker, waits, outdir, synthesise
):
    layout = Layout(
        outdir, units_in=units_in, worker_in=worker_in, workflow_in=workflow_in, runs_the_worker=runs_the_worker
    )
    found = [synthesise(stack) for stack in layout.stacks.values()]
    assert layout.waits() == {name: waits.get(name, set()) for name in layout.stacks}
    finished = [
        resource
        for each in found
        for one in each.statements()
        if one["Action"] == list(FINISH_ITEMS)
        for resource in as_list(one["Resource"])
    ]
    assert len(finished) == len(layout.tables)
    rules = [rule for each in found for rule in each.of_type("AWS::Events::Rule").values()]
    assert ["EventPattern" in rule for rule in rules].count(True) == 1
