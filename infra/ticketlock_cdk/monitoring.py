"""What our metrics, alarms and dashboards have in common.

Only plain alarms: the emulator that the tests deploy to has neither composite alarms nor metric math.
"""

from collections.abc import Sequence
from typing import Any

from aws_cdk import Duration, Names
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

NAMESPACE = "ticketlock"
DASHBOARD_SPAN = Duration.hours(3)
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


def new_alarm(
    scope: Construct,
    name: str,
    metric: cloudwatch.IMetric,
    threshold: float,
    description: str,
    alarm_actions: Sequence[cloudwatch.IAlarmAction],
) -> cloudwatch.Alarm:
    """An alarm that fires at the first period that reaches its threshold; missing data does not breach."""
    alarm = cloudwatch.Alarm(
        scope,
        name,
        metric=metric,
        threshold=threshold,
        evaluation_periods=1,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        alarm_description=f"{scope.node.path.rpartition('/')[0]}: {description}",
    )
    alarm.add_alarm_action(*alarm_actions)
    return alarm


def check_threshold(name: str, value: object) -> None:
    """Check that a value is a count.

    Raises:
        ValueError: names it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"alarm_thresholds.{name} is {value!r}; allowed: a whole number from 1 on")


def check_age(name: str, value: object) -> None:
    """Check that a value is a duration.

    Raises:
        ValueError: names it.
    """
    if not isinstance(value, Duration) or value.is_unresolved() or value.to_milliseconds() < 1:
        raise ValueError(f"alarm_thresholds.{name} is {value!r}; allowed: a Duration above 0")


def graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    """A third of a dashboard's row."""
    return cloudwatch.GraphWidget(
        title=title, left=list(metrics), width=8, left_y_axis=cloudwatch.YAxisProps(min=0, show_units=False)
    )
