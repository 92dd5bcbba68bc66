"""The construct: the units table, its sweeper, and grants for processes that run units or read beside them."""

from collections.abc import Mapping, Sequence

from aws_cdk import Annotations, Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock_cdk.checks import check_construct, check_flag
from ticketlock_cdk.either_stack import either_stack
from ticketlock_cdk.ended_executions import UNQUALIFIED, is_named_by_events
from ticketlock_cdk.environment import Environment, environment_of
from ticketlock_cdk.functions import MEMORY_MB, Hosting
from ticketlock_cdk.lock import Grantees, beside, is_express
from ticketlock_cdk.monitoring import service_name_of
from ticketlock_cdk.network import Network
from ticketlock_cdk.tables import (
    UNITS,
    check_has_transactions,
    check_table,
    given_table,
    has_replicas,
    let_logs_use,
    new_or_given,
)
from ticketlock_cdk.units import access
from ticketlock_cdk.units.monitoring import UnitsAlarmThresholds, UnitsMetrics, UnitsMonitoring
from ticketlock_cdk.units.unit_functions import RollBack, Sweeper, check_sweep_every

_SWEEP_EVERY = Duration.minutes(5)
_THRESHOLDS = UnitsAlarmThresholds()
_ARM = lambda_.Architecture.ARM_64


class TransactionTables(UnitsMetrics, Construct):
    """The units table, a function that sweeps it on a schedule, and what ends the units of your workflows.

    Args:
        table: an existing units table, for example a restored one, as a construct, by its name or by its ARN; a new one
            otherwise. The keys, the time to live and the index of a table by name or ARN, and of an imported table,
            cannot be checked here: ``create_units_table`` adds what a restore leaves out.
        data_tables: your tables, whose items units write: as constructs, by name or by ARN. The sweeper may finish
            items of these, and of those that ``grant_units`` names. If a table by name or ARN has a KMS key of yours,
            the construct does not know it: grant the sweeper's function to use the key.
        sweep_every: how often the sweeper runs, and how long plain readers may see an old value after a process was
            killed: whole minutes, 1 minute to 1 day. A pass takes at most that long, and at most 15 minutes; the
            next one continues it.
        removal_policy: what happens to a new table, the logs and the dead letters when they are removed from the stack.
            By default they stay, and if the deployment that makes them is rolled back, all but the table are deleted
            again. With ``RETAIN`` they stay then, too; the table is protected from deletion unless it is ``DESTROY``.
        log_retention: how long logs are kept.
        tracing: whether X-Ray traces the functions, which it bills.
        encryption_key: your KMS key for a new table, the logs and the dead letters. An existing table keeps its own.
        vpc: a network for the functions, from which they must reach DynamoDB, and Step Functions if machines are
            attached.
        vpc_subnets: which of its subnets.
        security_groups: those of the functions; by default a new one without inbound rules.
        memory_size: the functions' memory, in MB: 256 to 10,240.
        architecture: that of their processor.
        reserve_concurrency: reserve one concurrent invocation for the sweeper, and five for the function that
            ``attach`` adds. So no two passes run at once, which would do no harm, and a mass failure takes no more from
            other functions. Lambda refuses a reservation that leaves less than 100 to these.
        dashboard: make a CloudWatch dashboard.
        dashboard_live: show on it, at each refresh, the open units and what to type next: by a function that only reads
            the units table. Who is to see it must be allowed to invoke the function.
        alarms: make CloudWatch alarms.
        alarm_thresholds: when the alarms fire.
        alarm_actions: what the alarms do when they fire; SNS topics are notified when they are over, too.
        alarm_topic: an SNS topic that the alarms notify, when they fire and when they are over.

    Raises:
        ValueError: a setting is out of its bounds; the message names it, its value and what is allowed.

    Attributes:
        table: the units table; ``Units`` takes its name.
        list_command: what to type to see the open units: the ticketlock command, with the table's name, for an output.
        sweeper: the function.
        dead_letter_queue: the passes that the Scheduler could not start, and the events of ended executions that
            failed.
        service_name: the dimension ``service`` of its metrics, and its name in the logs.
        alarms: its alarms by what they watch, such as ``OldestOpenUnit``; empty unless ``alarms`` is True.
        dashboard: its dashboard; None unless ``dashboard`` is True.
        live_report: the function of ``dashboard_live``; None without it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable | str | None = None,
        data_tables: Sequence[dynamodb.ITable | str] = (),
        sweep_every: Duration = _SWEEP_EVERY,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
        encryption_key: kms.IKey | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        memory_size: int = MEMORY_MB,
        architecture: lambda_.Architecture = _ARM,
        reserve_concurrency: bool = False,
        tracing: bool = True,
        dashboard: bool = False,
        dashboard_live: bool = False,
        alarms: bool = False,
        alarm_thresholds: UnitsAlarmThresholds = _THRESHOLDS,
        alarm_actions: Sequence[cloudwatch.IAlarmAction] = (),
        alarm_topic: sns.ITopic | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.service_name = service_name_of(self)
        check_flag("reserve_concurrency", reserve_concurrency)
        check_sweep_every(sweep_every)
        self._environment = Environment(Stack.of(self))
        self._reserve_concurrency = reserve_concurrency
        hosting = self._hosting = Hosting(
            memory_mb=memory_size,
            architecture=architecture,
            network=Network.of(
                self, vpc=vpc, vpc_subnets=vpc_subnets, security_groups=security_groups, whose="a TransactionTables"
            ),
            log_retention=log_retention,
            removal_policy=removal_policy,
            encryption_key=encryption_key,
            tracing=tracing,
        )
        self.table: dynamodb.ITable = new_or_given(
            self,
            "Table",
            UNITS,
            table,
            environment=self._environment,
            removal_policy=removal_policy,
            encryption_key=encryption_key,
        )
        if encryption_key is not None:
            let_logs_use(encryption_key, self)
        sweeper = Sweeper(
            self,
            "Sweeper",
            table=self.table,
            sweep_every=sweep_every,
            hosting=hosting,
            service_name=self.service_name,
            reserve_concurrency=reserve_concurrency,
        )
        access.let_list_open(sweeper.function, self.table)
        self.sweeper: lambda_.Function = sweeper.function
        self.dead_letter_queue: sqs.IQueue = sweeper.dead_letter_queue
        self._roll_back_function: RollBack | None = None
        self._attached: list[sfn.IStateMachine] = []
        assert sweeper.function.role is not None
        self._finishing = access.Finishing(self, sweeper.function.role)
        self._granting = access.Granting(self, self.table)
        self._grantees = Grantees(self, self._environment)
        self._swept: dict[str, dynamodb.ITable] = {}
        self._monitoring = UnitsMonitoring(
            construct=self,
            metrics=self,
            sweeper=sweeper.function,
            table=self.table,
            dead_letter_queue=sweeper.dead_letter_queue,
            sweep_every=sweep_every,
            hosting=hosting,
            has_dashboard=dashboard,
            has_live=dashboard_live,
            has_alarms=alarms,
            thresholds=alarm_thresholds,
            alarm_actions=alarm_actions,
            alarm_topic=alarm_topic,
        )
        self.list_command: str = self._monitoring.list_command
        self.alarms: Mapping[str, cloudwatch.Alarm] = self._monitoring.alarms
        self.dashboard: cloudwatch.Dashboard | None = self._monitoring.dashboard
        self.live_report: lambda_.Function | None = self._monitoring.live_report
        if self.live_report is not None:
            access.let_show_open(self.live_report, self.table)
            self.live_report.add_environment("SWEEP_SECONDS", f"{int(sweep_every.to_seconds())}")
        listed: dict[str, str] = {}
        for number, given in enumerate(data_tables):
            name = f"data_tables[{number}]"
            data = given_table(self, f"Data{number}", given, name, self._environment)
            first = listed.setdefault(data.table_name, name)
            if first != name:
                shown = repr(given) if isinstance(given, str) else data.node.path
                raise ValueError(f"{name} is {shown}, which {first} is, too; allowed: each table once")
            self._let_sweeper_finish(data, name)

    @property
    def roll_back(self) -> lambda_.Function | None:
        """The function that ends the units of ended executions; None until ``attach`` adds it."""
        return None if self._roll_back_function is None else self._roll_back_function.function

    def attach(self, machine: sfn.IStateMachine) -> None:
        """Roll back the units that an execution of your machine has saved, when it fails, times out or is stopped.

        Those that were saved with ``owner=unit_owner(...)``. Attaching it again changes nothing.

        Args:
            machine: a Standard one, also of another stack, or imported.

        Raises:
            ValueError: it is no construct, an Express machine, for whose end no event is sent, imported as a version or
                an alias, or in another Region or account; or there is no room for one more.
        """
        allowed = "a state machine as a construct, imported ones by StateMachine.from_state_machine_arn"
        check_construct("machine", machine, "state_machine_arn", allowed)
        if is_express(machine):
            raise ValueError(
                f"machine is {machine.node.path}, an Express state machine; allowed: a Standard one, since no event "
                "is sent when an Express execution ends"
            )
        if not is_named_by_events(machine.state_machine_arn):
            raise ValueError(
                f"machine is {machine.node.path}, imported as {machine.state_machine_arn}; allowed: {UNQUALIFIED}"
            )
        self._environment.check("machine", machine.node.path, environment_of(machine))
        if machine in self._attached:
            return
        if self._roll_back_function is None:
            self._roll_back_function = RollBack(
                self,
                "RollBack",
                table=self.table,
                dead_letter_queue=self.dead_letter_queue,
                hosting=self._hosting,
                service_name=self.service_name,
                reserve_concurrency=self._reserve_concurrency,
            )
            self._monitoring.watch_roll_back(self._roll_back_function.function)
        # Here, where functions may start it, unless its stack waits for this one, whose table its functions use.
        place = either_stack(beside(self, Stack.of(self)), "Watch", beside(self, Stack.of(machine)))
        self._roll_back_function.watch(place, machine)
        self._attached.append(machine)

    def grant_units(self, grantee: iam.IGrantable, *tables: dynamodb.ITable) -> iam.Grant:
        """Let a principal run units over your tables, and the sweeper finish their items.

        Args:
            grantee: the principal.
            tables: your tables; by default all of ``data_tables``, and the tables of earlier grants.

        Raises:
            ValueError: one is in another Region or account, or is not a table.
        """
        for number, table in enumerate(tables):
            check_table(table, f"tables[{number}]", self._environment)
            self._let_sweeper_finish(table, f"tables[{number}]")
        return self._granting.units(self._grantees.of(grantee, "Units"), tables or list(self._swept.values()))

    def grant_reads(self, grantee: iam.IGrantable, *tables: dynamodb.ITable) -> iam.Grant:
        """Let a principal read items beside units, despite their marks, by ``Units.get`` and ``Units.get_all``.

        Args:
            grantee: the principal.
            tables: as for ``grant_units``.

        Raises:
            ValueError: one is in another Region or account, or is not a table.
        """
        for number, table in enumerate(tables):
            check_table(table, f"tables[{number}]", self._environment)
        return self._granting.reads(self._grantees.of(grantee, "Reads"), tables or list(self._swept.values()))

    def _let_sweeper_finish(self, table: dynamodb.ITable, name: str) -> None:
        """Let the sweeper finish the items of a table; a second call changes nothing."""
        if table.node.path in self._swept:
            return
        check_has_transactions(table)
        if has_replicas(table):
            Annotations.of(self).add_warning_v2(
                "ticketlock:dataTableWithReplicas",
                f"table {table.node.path} has replicas: each Region judges marks by itself, so run units in one "
                "Region only",
            )
        self._finishing.let(table, name)
        self._monitoring.watch_table(table)
        self._swept[table.node.path] = table
