"""What our metrics, alarms and dashboards have in common."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from aws_cdk import Duration, Names
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from constructs import Construct

NAMESPACE = "ticketlock"
MINUTE = Duration.minutes(1)
"""The period in which AWS's services emit their metrics."""

_SPAN = Duration.hours(3)
_WIDTH, _STATUS_HEIGHT = 24, 4
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


def alarm_actions_of(
    *, alarms: bool, alarm_actions: Sequence[cloudwatch.IAlarmAction], alarm_topic: sns.ITopic | None
) -> Sequence[cloudwatch.IAlarmAction]:
    """The actions of the alarms, from a construct's properties.

    Raises:
        ValueError: the topic is no construct; or actions are given, but alarms are off.
    """
    if alarm_topic is not None and not hasattr(alarm_topic, "topic_arn"):
        raise ValueError(
            f"alarm_topic is {alarm_topic!r}; allowed: a topic as a construct, imported ones by Topic.from_topic_arn"
        )
    topics = () if alarm_topic is None else (actions.SnsAction(alarm_topic),)
    if not alarms and (alarm_actions or topics):
        name = "alarm_actions" if alarm_actions else "alarm_topic"
        raise ValueError(f"{name} is given and alarms is False; allowed: {name} together with alarms=True")
    return (*alarm_actions, *topics)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSettings:
    """What an alarm watches, and what it tells those whom it wakes.

    Attributes:
        metric: the metric.
        threshold: from which value on it counts.
        says: what has happened, as a sentence.
        command: what to type first.
        page: the page, and the heading of its section, that say what to do.
        datapoints: how often it must count.
        is_silence: whether it counts if there is no data, or less than the threshold. Otherwise missing data is good:
            without traffic nothing is emitted.
    """

    metric: cloudwatch.IMetric
    threshold: float
    says: str
    command: str
    page: str
    datapoints: Datapoints = ONE
    is_silence: bool = False


class Alarms(Construct):
    """The alarms of one construct.

    Args:
        scope, id: those of the alarms' own scope; descriptions begin with the path of the construct that it is in.
        alarm_actions: what they do when they fire. When they are over they notify the SNS topics among these; another
            action, such as to open an incident, would begin something new then.

    Attributes:
        by_name: each alarm by the name of what it watches, such as ``LostLeases`` or ``SweeperErrors``.
    """

    def __init__(self, scope: Construct, id: str, *, alarm_actions: Sequence[cloudwatch.IAlarmAction]) -> None:
        super().__init__(scope, id)
        self._whose = scope.node.path
        self._actions = alarm_actions
        self._notified = [each for each in alarm_actions if isinstance(each, actions.SnsAction)]
        self.by_name: dict[str, cloudwatch.Alarm] = {}

    def add(self, name: str, settings: AlarmSettings) -> None:
        """Make an alarm of this name."""
        self.by_name[name] = self.add_in(self, name, settings)

    def add_in(self, scope: Construct, id: str, settings: AlarmSettings) -> cloudwatch.Alarm:
        """Make an alarm in another scope; ``by_name`` does not have it."""
        comparison, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            scope,
            id,
            metric=settings.metric,
            threshold=settings.threshold,
            evaluation_periods=settings.datapoints.periods,
            datapoints_to_alarm=settings.datapoints.needed,
            comparison_operator=comparison.LESS_THAN_THRESHOLD
            if settings.is_silence
            else comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=missing.BREACHING if settings.is_silence else missing.NOT_BREACHING,
            alarm_description=f"{self._whose}: {settings.says} Type: {settings.command} - and read {settings.page}",
        )
        alarm.add_alarm_action(*self._actions)
        alarm.add_ok_action(*self._notified)
        return alarm


def errors_of(function: lambda_.IFunction, name: str, percent: int, *, command: str, page: str) -> AlarmSettings:
    """Too many calls of a function fail. Each is retried; the rate does not depend on the traffic."""
    return AlarmSettings(
        metric=error_rate(function),
        threshold=percent,
        says=f"Calls of the function {name} fail, {percent}% of them or more.",
        command=command,
        page=page,
        datapoints=MOST,
    )


def throttles_of(
    table: dynamodb.ITable, what: Literal["Read", "Write"], threshold: int, *, command: str, page: str
) -> AlarmSettings:
    """DynamoDB throttles requests to a table, which are retried."""
    return AlarmSettings(
        metric=table.metric(f"{what}ThrottleEvents", period=MINUTE, statistic=cloudwatch.Stats.SUM),
        threshold=threshold,
        says=f"DynamoDB throttles {what.lower()}s of the table: a hot item, or a table that is not yet warm.",
        command=command,
        page=page,
        datapoints=MOST,
    )


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


def check_count(name: str, value: object, most: int | None = None) -> None:
    """Check that a value is a count, or that it is at most so many.

    Raises:
        ValueError: names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= (value if most is None else most):
        allowed = "a whole number from 1 on" if most is None else f"a whole number from 1 to {most}"
        raise ValueError(f"alarm_thresholds.{name} is {value!r}; allowed: {allowed}")


def check_age(name: str, value: object) -> None:
    """Check that a value is a duration.

    Raises:
        ValueError: names it.
    """
    if not isinstance(value, Duration) or value.is_unresolved() or value.to_milliseconds() < 1:
        raise ValueError(f"alarm_thresholds.{name} is {value!r}; allowed: a Duration above 0")


def check_thresholds(thresholds: Any) -> None:
    """Check the fields of a dataclass of thresholds: durations, percentages and counts.

    Raises:
        ValueError: names the first that is none.
    """
    for field in fields(thresholds):
        value = getattr(thresholds, field.name)
        if field.type is Duration:
            check_age(field.name, value)
        else:
            check_count(field.name, value, 100 if field.name.endswith("_percent") else None)


def new_dashboard(
    scope: Construct, id: str, *, alarms: Alarms | None, rows: Sequence[Sequence[cloudwatch.IWidget]]
) -> cloudwatch.Dashboard:
    """A dashboard that begins with the alarms, also with those that are made later.

    Args:
        alarms: the alarms, if there are any.
        rows: what follows.
    """
    status = [] if alarms is None else [[_Status(alarms)]]
    return cloudwatch.Dashboard(scope, id, default_interval=_SPAN, widgets=[*status, *map(list, rows)])


class _Status(cloudwatch.ConcreteWidget):
    """The alarms that there are when the app is synthesised; the CDK's own widget knows those of its construction."""

    def __init__(self, alarms: Alarms) -> None:
        super().__init__(_WIDTH, _STATUS_HEIGHT)
        self._alarms = alarms

    def to_json(self) -> list[Any]:
        alarms = list(self._alarms.by_name.values())
        widget = cloudwatch.AlarmStatusWidget(alarms=alarms, width=_WIDTH, height=_STATUS_HEIGHT)
        widget.position(self._x or 0, self._y or 0)
        return widget.to_json()


def graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    """A third of a dashboard's row."""
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), width=_WIDTH // 3, left_y_axis=cloudwatch.YAxisProps(min=0, show_units=False)
    )


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
