"""The construct: the table that units of work need, its sweeper, and grants for those who run units or read beside."""

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
from constructs import Construct

from ticketlock.units._marks import Marks
from ticketlock.units._rows import KEY
from ticketlock_cdk.encryption import let_logs_use
from ticketlock_cdk.functions import MEMORY_MB, Hosting
from ticketlock_cdk.lock.environment import Environment, environment_of
from ticketlock_cdk.lock.grants import Grantee
from ticketlock_cdk.lock.settings import check_flag
from ticketlock_cdk.monitoring import alarm_actions_of, service_name_of
from ticketlock_cdk.network import Network
from ticketlock_cdk.tables import check_table, given_table, has_replicas, new_table
from ticketlock_cdk.units import access
from ticketlock_cdk.units.alarms import UnitsAlarms, UnitsAlarmThresholds
from ticketlock_cdk.units.dashboard import units_dashboard
from ticketlock_cdk.units.metrics import UnitsMetrics
from ticketlock_cdk.units.sweeper import Sweeper, check_sweep_every

DEFAULT_PREFIX = "_tlu"
_SWEEP_EVERY = Duration.minutes(5)
_THRESHOLDS = UnitsAlarmThresholds()
_ARM = lambda_.Architecture.ARM_64


class TransactionTables(UnitsMetrics, Construct):
    """What units of work need on AWS: their own table, and a function that sweeps it on a schedule.

    Args:
        data_tables: your tables, whose items units write: as constructs, by name or by ARN. The sweeper may finish
            items of these, and of those that ``grant_units`` names. Of a table by name or ARN no key of yours is known
            here: grant the sweeper's function to use it.
        prefix: as of ``Units``: all that write the same items have the same.
        sweep_every: how long plain readers may see an old value of what a killed process has left: whole minutes, from
            1 minute to 1 day. A pass takes no longer than that, nor than 15 minutes; the next one goes on there.
        removal_policy: what happens to the table and to the logs when they leave the stack.
        log_retention: how long logs are kept.
        encryption_key: a key of yours for the table, the logs and the dead letters.
        vpc: a network for the sweeper. It needs DynamoDB from there.
        vpc_subnets: which of its subnets.
        security_groups: of the sweeper; a new one, which lets nobody in, otherwise.
        memory_size: of the sweeper, in MB: 256 to 10,240.
        architecture: of its processor.
        reserve_concurrency: whether one call of the sweeper is reserved of the account's concurrency, so that no two
            run at once; False where the quota leaves nothing to reserve: two do no harm.
        dashboard: make a CloudWatch dashboard.
        alarms: make CloudWatch alarms.
        alarm_thresholds: when they fire.
        alarm_actions: what they do then.
        alarm_topic: whom they tell then.

    Raises:
        ValueError: a setting is out of its bounds; names it, its value and what is allowed.

    Attributes:
        table: the units' own table: its name is what ``Units`` takes.
        sweeper: the function.
        dead_letter_queue: the events of passes that failed, or were not begun.
        service_name: the dimension ``service`` of its metrics, and its name in the logs.
        alarms: its alarms by what they watch, such as ``OldestOpenUnit``; none unless asked for.
        dashboard: its dashboard; None unless asked for.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        data_tables: Sequence[dynamodb.ITable | str] = (),
        prefix: str = DEFAULT_PREFIX,
        sweep_every: Duration = _SWEEP_EVERY,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
        encryption_key: kms.IKey | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        memory_size: int = MEMORY_MB,
        architecture: lambda_.Architecture = _ARM,
        reserve_concurrency: bool = True,
        dashboard: bool = False,
        alarms: bool = False,
        alarm_thresholds: UnitsAlarmThresholds = _THRESHOLDS,
        alarm_actions: Sequence[cloudwatch.IAlarmAction] = (),
        alarm_topic: sns.ITopic | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.service_name = service_name_of(self)
        for name, flag in (
            ("reserve_concurrency", reserve_concurrency),
            ("dashboard", dashboard),
            ("alarms", alarms),
        ):
            check_flag(name, flag)
        check_sweep_every(sweep_every)
        Marks(prefix)  # refuses what can be none
        self._environment = Environment(Stack.of(self))
        actions = alarm_actions_of(alarms=alarms, alarm_actions=alarm_actions, alarm_topic=alarm_topic)
        hosting = Hosting(
            memory_mb=memory_size,
            architecture=architecture,
            network=Network.of(
                self, vpc=vpc, vpc_subnets=vpc_subnets, security_groups=security_groups, whose="a TransactionTables"
            ),
            log_retention=log_retention,
            removal_policy=removal_policy,
            encryption_key=encryption_key,
        )
        table = new_table(self, "Table", keys=KEY, removal_policy=removal_policy, encryption_key=encryption_key)
        if encryption_key is not None:
            let_logs_use(encryption_key, self)
        sweeper = Sweeper(
            self,
            "Sweeper",
            table=table,
            prefix=prefix,
            sweep_every=sweep_every,
            hosting=hosting,
            service_name=self.service_name,
            reserve_concurrency=reserve_concurrency,
        )
        self.table: dynamodb.ITable = table
        self.sweeper: lambda_.Function = sweeper.function
        self.dead_letter_queue: sqs.IQueue = sweeper.dead_letter_queue
        self._swept: dict[str, dynamodb.ITable] = {}
        for number, given in enumerate(data_tables):
            self._sweeps(given_table(self, f"Data{number}", given, f"data_tables[{number}]"), f"data_tables[{number}]")
        self.alarms: Mapping[str, cloudwatch.Alarm] = {}
        if alarms:
            self.alarms = UnitsAlarms(
                self,
                "Alarms",
                metrics=self,
                sweeper=sweeper.function,
                dead_letter_queue=sweeper.dead_letter_queue,
                sweep_every=sweep_every,
                thresholds=alarm_thresholds,
                alarm_actions=actions,
            ).by_name
        self.dashboard: cloudwatch.Dashboard | None = None
        if dashboard:
            self.dashboard = units_dashboard(
                self,
                "Dashboard",
                metrics=self,
                sweeper=sweeper.function,
                table=table,
                dead_letter_queue=sweeper.dead_letter_queue,
                alarms=list(self.alarms.values()),
            )

    def grant_units(self, grantee: iam.IGrantable, *tables: dynamodb.ITable) -> iam.Grant:
        """Let a principal run units over tables of yours, and the sweeper finish their items.

        Args:
            grantee: the principal.
            tables: which; all of ``data_tables``, and those of grants before, if none is named.

        Raises:
            ValueError: one is in another Region or account, or is no table.
        """
        for number, table in enumerate(tables):
            check_table(table, f"tables[{number}]")
            self._sweeps(table, f"tables[{number}]")
        return access.grant_units(self._grantee(grantee, "Units"), self._with_own(tables))

    def grant_reads(self, grantee: iam.IGrantable, *tables: dynamodb.ITable) -> iam.Grant:
        """Let a principal read beside units, past their marks, by ``Units.get`` and ``Units.get_all``.

        Args:
            grantee: the principal.
            tables: as of ``grant_units``.

        Raises:
            ValueError: one is no table.
        """
        for number, table in enumerate(tables):
            check_table(table, f"tables[{number}]")
        return access.grant_reads(self._grantee(grantee, "Reads"), self._with_own(tables))

    def _sweeps(self, table: dynamodb.ITable, name: str) -> None:
        """Let the sweeper finish the items of a table; once more changes nothing."""
        if table.node.path in self._swept:
            return
        self._environment.check(name, table.node.path, environment_of(table))
        if has_replicas(table):
            Annotations.of(self).add_warning_v2(
                "ticketlock:dataTableWithReplicas",
                f"table {table.node.path} has replicas: marks are judged in each Region apart, so run units in one "
                "Region only",
            )
        self._swept[table.node.path] = table
        assert self.sweeper.role is not None
        access.let_finish(self, self.sweeper.role, table)

    def _with_own(self, tables: Sequence[dynamodb.ITable]) -> Sequence[dynamodb.ITable]:
        return [self.table, *(tables or self._swept.values())]

    def _grantee(self, grantee: iam.IGrantable, grant: str) -> Grantee:
        return Grantee(grantee, lock=self, grant=grant, environment=self._environment, needed=())
