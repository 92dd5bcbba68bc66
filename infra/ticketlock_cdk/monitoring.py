"""What our metrics, alarms and dashboards have in common: two tables make the alarms and the dashboard."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from aws_cdk import Duration, Names
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from ticketlock_cdk.assets import OF_DASHBOARDS
from ticketlock_cdk.checks import check_bound, check_flag
from ticketlock_cdk.functions import Hosting, code_of, new_function
from ticketlock_cdk.nag import acknowledge

NAMESPACE = "ticketlock"
MINUTE = Duration.minutes(1)
"""The period in which AWS's services emit their metrics."""
PERIOD = Duration.minutes(5)
"""The period of the other metrics, unless one says otherwise."""

_DEAD_LETTERS = 'docs/operations.md, "A message in a dead-letter queue"'

_SPAN = Duration.hours(3)
# A reading is bounded; DynamoDB may throttle it.
_LIVE_TIMEOUT = Duration.seconds(30)
_WIDTH, _STATUS_HEIGHT, _LIVE_HEIGHT = 24, 4, 14
# A dimension's value may be longer, but should be readable.
_LONGEST_SERVICE_NAME = 200


class Metrics:
    """The metrics that the functions of one construct emit; a dimension distinguishes the constructs of an account.

    Each method takes the options of ``aws_cloudwatch.Metric``, such as ``period`` and ``statistic``.

    Attributes:
        service_name: the value of their dimension ``service``.
    """

    service_name: str

    def metric(self, name: str, **options: Any) -> cloudwatch.Metric:
        """A metric of this name; by default the sum over five minutes."""
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self.service_name},
            **{"statistic": cloudwatch.Stats.SUM, **options},
        )


def service_name_of(construct: Construct) -> str:
    """The name that distinguishes the metrics of one construct from others': it is unique in an account's Region."""
    return Names.unique_resource_name(construct, max_length=_LONGEST_SERVICE_NAME, separator="-")


@dataclass(frozen=True, slots=True)
class Datapoints:
    """When an alarm fires: in how many of the last periods its metric is at the threshold or beyond."""

    needed: int
    periods: int


ONE = Datapoints(1, 1)
"""For what one period proves: an event that must not occur, an age, or what stays until somebody acts."""

MOST = Datapoints(3, 5)
"""For what is tried again by itself, so that nobody is needed if it fails in one period."""

ALL = Datapoints(3, 3)
"""For what the next pass makes up for, so that somebody is needed only if none does."""


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """A row of a table of alarms: what an alarm watches, and what it tells those whom it wakes.

    Attributes:
        metric: the metric.
        threshold: from which value on it counts.
        says: what has happened, as a sentence.
        page: the page, and the heading of its section, that say what to do.
        datapoints: how often it must count.
        command: what to type first; None for the ``list_command``.
        is_silence: whether it counts if there is no data, or less than the threshold. Otherwise missing data is good:
            without traffic nothing is emitted.
    """

    metric: cloudwatch.IMetric
    threshold: float
    says: str
    page: str
    datapoints: Datapoints = ONE
    command: str | None = None
    is_silence: bool = False


@dataclass(eq=False, kw_only=True)
class Monitoring:
    """The alarms and the dashboard of one construct, if it asks for them, also of what is added to it later.

    Args:
        construct: the construct; descriptions of alarms begin with its path.
        metrics: its metrics.
        table, dead_letter_queue: its table and queue.
        hosting: what functions run on.
        has_dashboard, has_live, has_alarms: whether it asks for them; ``has_live`` is for what is busy or open now.
        alarm_actions: what the alarms do when they fire. When they are over they notify the SNS topics among these;
            another action, such as to open an incident, would begin something new then.
        alarm_topic: one more topic that they notify.

    Raises:
        ValueError: a flag is no bool; the topic is no construct; actions without alarms, or live without a dashboard.

    Attributes:
        live_report: the function whose HTML the dashboard shows; it still needs the permission to read the table.
        alarms: each alarm by the name of what it watches, such as ``LostLeases``; empty without alarms.
        dashboard: the dashboard; None without one.
    """

    construct: Construct
    metrics: Metrics
    shows: ClassVar[Literal["locks", "units"]]
    table: dynamodb.ITable
    dead_letter_queue: sqs.IQueue
    hosting: Hosting
    has_dashboard: bool
    has_live: bool
    has_alarms: bool
    alarm_actions: Sequence[cloudwatch.IAlarmAction]
    alarm_topic: sns.ITopic | None
    alarms: dict[str, cloudwatch.Alarm] = field(init=False, default_factory=dict)
    dashboard: cloudwatch.Dashboard | None = field(init=False, default=None)
    live_report: lambda_.Function | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        check_flag("dashboard", self.has_dashboard)
        check_flag("dashboard_live", self.has_live)
        if self.has_live and not self.has_dashboard:
            raise ValueError("dashboard_live is True and dashboard is False; allowed: together with dashboard=True")
        check_flag("alarms", self.has_alarms)
        self._actions = self._all_actions()
        if self.has_alarms:
            self.scope = Construct(self.construct, "Alarms")
            for name, row in self.alarm_rows().items():
                self.add(name, row)
        if self.has_dashboard:
            widgets: list[list[cloudwatch.IWidget]] = [[self.log_query()], *map(_graphs, self.graphs())]
            if self.has_live:
                widgets.insert(0, [self._live()])
            if self.has_alarms:
                widgets.insert(0, [_Status(self.alarms)])
            self.dashboard = cloudwatch.Dashboard(self.construct, "Dashboard", default_interval=_SPAN, widgets=widgets)

    def _all_actions(self) -> Sequence[cloudwatch.IAlarmAction]:
        topic, given = self.alarm_topic, self.alarm_actions
        if topic is not None and not hasattr(topic, "topic_arn"):
            raise ValueError(
                f"alarm_topic is {topic!r}; allowed: a topic as a construct, imported ones by Topic.from_topic_arn"
            )
        if not self.has_alarms and (given or topic is not None):
            name = "alarm_actions" if given else "alarm_topic"
            raise ValueError(f"{name} is given and alarms is False; allowed: {name} together with alarms=True")
        return (*given, *(() if topic is None else (actions.SnsAction(topic),)))

    def _live(self) -> cloudwatch.IWidget:
        """What a function returns: it is called for each viewer who lets it run, at each refresh.

        https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_custom_widget_dashboard.html
        """
        self.live_report = function = new_function(
            self.construct,
            "LiveReport",
            code=code_of(self.construct, OF_DASHBOARDS),
            handler="live_report",
            timeout=_LIVE_TIMEOUT,
            service_name=self.metrics.service_name,
            table=self.table,
            hosting=self.hosting,
        )
        function.add_environment("SHOWS", self.shows)
        acknowledge(function, "LambdaDLQ")
        return cloudwatch.CustomWidget(
            title="Now",
            function_arn=function.function_arn,
            width=_WIDTH,
            height=_LIVE_HEIGHT,
            update_on_resize=False,
            update_on_time_range_change=False,
        )

    @property
    def list_command(self) -> str:
        """The command that lists what the table has, the most urgent first."""
        raise NotImplementedError

    def alarm_rows(self) -> Mapping[str, AlarmRow]:
        """The table of the alarms, by what they watch."""
        raise NotImplementedError

    def log_query(self) -> cloudwatch.LogQueryWidget:
        """What the dashboard shows below the alarms."""
        raise NotImplementedError

    def graphs(self) -> Sequence[Mapping[str, Sequence[cloudwatch.IMetric]]]:
        """The table of the graphs below it: rows of at most three, by title."""
        raise NotImplementedError

    def command(self, words: str) -> str:
        """What to type: these words, the last of which is the option for the table, and the table's name."""
        return f"ticketlock {words} {self.table.table_name} --region {self.table.env.region}"

    def add(self, name: str, row: AlarmRow) -> None:
        """Make an alarm of this name."""
        self.alarms[name] = self.add_in(self.scope, name, row)

    def add_in(self, scope: Construct, id: str, row: AlarmRow) -> cloudwatch.Alarm:
        """Make an alarm in another scope; ``alarms`` does not have it."""
        comparison, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        what_to_do = f"Type: {row.command or self.list_command} - and read {row.page}"
        alarm = cloudwatch.Alarm(
            scope,
            id,
            metric=row.metric,
            threshold=row.threshold,
            evaluation_periods=row.datapoints.periods,
            datapoints_to_alarm=row.datapoints.needed,
            comparison_operator=comparison.LESS_THAN_THRESHOLD
            if row.is_silence
            else comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=missing.BREACHING if row.is_silence else missing.NOT_BREACHING,
            alarm_description=f"{self.construct.node.path}: {row.says} {what_to_do}",
        )
        alarm.add_alarm_action(*self._actions)
        alarm.add_ok_action(*(each for each in self._actions if isinstance(each, actions.SnsAction)))
        return alarm

    def dead_letters(self, threshold: int, says: str) -> AlarmRow:
        """The row of the dead-letter queue."""
        queue, longest = self.dead_letter_queue, cloudwatch.Stats.MAXIMUM
        metric = queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic=longest)
        return AlarmRow(metric, threshold, says, _DEAD_LETTERS)

    def throttle_rows(self, threshold: int, page: str, command: str | None = None) -> Iterator[tuple[str, AlarmRow]]:
        """The rows of the reads and the writes of the table that DynamoDB throttles, which are retried."""
        for what in ("Read", "Write"):
            metric = self.table.metric(f"{what}ThrottleEvents", period=MINUTE, statistic=cloudwatch.Stats.SUM)
            says = f"DynamoDB throttles {what.lower()}s of the table: a hot item, or a table that is not yet warm."
            yield f"Table{what}Throttles", AlarmRow(metric, threshold, says, page, MOST, command)

    def throttle_metrics(self, reads: str, writes: str) -> Sequence[cloudwatch.Metric]:
        """The reads and the writes of the table that DynamoDB throttles, for a graph, with these labels."""
        labels = {"ReadThrottleEvents": reads, "WriteThrottleEvents": writes}
        total = cloudwatch.Stats.SUM
        return [self.table.metric(name, statistic=total, label=label) for name, label in labels.items()]

    def capacity(self) -> Sequence[cloudwatch.Metric]:
        """What the table's requests cost, for a graph."""
        return [self.table.metric_consumed_read_capacity_units(), self.table.metric_consumed_write_capacity_units()]


def errors_of(function: lambda_.IFunction, name: str, percent: int, page: str, command: str | None = None) -> AlarmRow:
    """Too many calls of a function fail. Each is retried; the rate does not depend on the traffic."""
    says = f"Calls of the function {name} fail, {percent}% of them or more."
    return AlarmRow(error_rate(function), percent, says, page, MOST, command)


def error_rate(function: lambda_.IFunction) -> cloudwatch.MathExpression:
    """How many of a function's invocations fail in a minute, in percent.

    https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
    """
    # Ids that one graph of several functions may have together.
    errors, invocations = f"errorsOf{function.node.id}", f"callsOf{function.node.id}"
    counts = {
        errors: function.metric_errors(period=MINUTE),
        invocations: function.metric_invocations(period=MINUTE),
    }
    return cloudwatch.MathExpression(
        expression=f"100 * {errors} / {invocations}", using_metrics=counts, period=MINUTE, label=function.node.id
    )


def check_thresholds(thresholds: Any) -> None:
    """Check the fields of a dataclass of thresholds: durations, percentages and counts.

    Raises:
        ValueError: names the first that is none.
    """
    for each in fields(thresholds):
        name, value = f"alarm_thresholds.{each.name}", getattr(thresholds, each.name)
        if each.type is not Duration:
            check_bound(name, value, 1, 100 if each.name.endswith("_percent") else None)
        elif not isinstance(value, Duration) or value.is_unresolved() or value.to_milliseconds() < 1:
            raise ValueError(f"{name} is {value!r}; allowed: a Duration above 0")


class _Status(cloudwatch.ConcreteWidget):
    """The alarms that there are when the app is synthesised; the CDK's own widget knows those of its construction."""

    def __init__(self, alarms: Mapping[str, cloudwatch.Alarm]) -> None:
        super().__init__(_WIDTH, _STATUS_HEIGHT)
        self._alarms = alarms

    def to_json(self) -> list[Any]:
        alarms = list(self._alarms.values())
        widget = cloudwatch.AlarmStatusWidget(alarms=alarms, width=_WIDTH, height=_STATUS_HEIGHT)
        widget.position(self._x or 0, self._y or 0)
        return widget.to_json()


def _graphs(row: Mapping[str, Sequence[cloudwatch.IMetric]]) -> list[cloudwatch.IWidget]:
    axis, width = cloudwatch.YAxisProps(min=0, show_units=False), _WIDTH // 3
    graph = cloudwatch.GraphWidget
    return [graph(title=title, left=list(row[title]), width=width, left_y_axis=axis) for title in row]


def logged(title: str, functions: Sequence[lambda_.Function], query: str) -> cloudwatch.LogQueryWidget:
    """A table of what a query of CloudWatch Logs Insights finds in the logs of functions; a dashboard's whole row.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CWL_QuerySyntax.html
    """
    return cloudwatch.LogQueryWidget(
        title=title,
        log_group_names=[function.log_group.log_group_name for function in functions],
        query_string=query,
        view=cloudwatch.LogQueryVisualizationType.TABLE,
        width=_WIDTH,
    )
