"""What is busy or open now, on a dashboard: its widget, its function, and what the function may do."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from kit.stacks import as_list
from ticketlock_cdk import TicketLock, TransactionTables

STACKS = pytest.mark.verify("stacks of its own, each synthesised")
LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}
TRACES = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}
DECRYPTS = {"kms:Decrypt", "kms:DescribeKey"}


class Live:
    """A lock and units whose dashboards show what is busy and open, with a key of the user's."""

    def __init__(self, outdir, synthesise):
        stack = Stack(App(outdir=outdir), "Live")
        self.key = kms.Key(stack, "Key")
        settings: dict[str, Any] = {"dashboard": True, "dashboard_live": True, "encryption_key": self.key}
        self.lock = TicketLock(stack, "Lock", alarms=True, **settings)
        self.units = TransactionTables(stack, "Units", data_tables=["accounts"], **settings)
        self.viewer = iam.Role(stack, "Viewer", assumed_by=iam.AccountRootPrincipal())
        assert self.lock.live_report is not None
        self.lock.live_report.grant_invoke(self.viewer)
        self.found = synthesise(stack)

    def widgets(self, construct):
        text = self.found.text(self.found.one(construct.dashboard)["Properties"]["DashboardBody"])
        return json.loads(text)["widgets"]

    def may(self, construct):
        """The actions on each resource, by what it is."""
        found, table = self.found, self.found.id_of(construct.table)
        names = {
            f"<{table}>": "the table",
            f"<{table}>/index/open": "the index",
            f"<{found.id_of(self.key)}>": "the key",
        }
        names |= {f"<{id}>": "a log" for id in found.of_type("AWS::Logs::LogGroup")}
        on: dict[str, set[str]] = {}
        for statement in found.statements(construct.live_report):
            for resource in as_list(statement["Resource"]):
                text = found.text(resource)
                on.setdefault(names.get(text, text), set()).update(as_list(statement["Action"]))
        return on


@pytest.fixture(scope="module")
def live(outdir, synthesise):
    return Live(outdir, synthesise)


def test_by_default_there_is_none(typical):
    assert typical.lock.live_report is None
    assert not [one for one in typical.synthesised.of_type("AWS::Lambda::Function").values() if "live" in str(one)]


@STACKS
@pytest.mark.parametrize("name", ["lock", "units"])
def test_the_dashboard_shows_below_its_alarms_what_the_function_returns_at_each_refresh(name, live):
    """https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_custom_widget_dashboard.html"""
    construct = getattr(live, name)
    widgets = live.widgets(construct)
    before = ["alarm"] if name == "lock" else []
    assert [each["type"] for each in widgets][: len(before) + 2] == [*before, "custom", "log"]
    custom = widgets[len(before)]
    assert custom["properties"] == {
        "title": "Now",
        "endpoint": f"<{live.found.id_of(construct.live_report)}>",
        "updateOn": {"refresh": True, "resize": False, "timeRange": False},
    }
    assert (custom["width"], widgets[len(before) + 1]["y"]) == (24, custom["y"] + custom["height"])


@STACKS
@pytest.mark.parametrize("name", ["lock", "units"])
def test_the_function_knows_its_table_and_what_to_show(name, live):
    construct = getattr(live, name)
    function = live.found.function(construct.live_report)
    assert (function["Handler"], function["Timeout"]) == ("live_report.handler", 30)
    assert function["Environment"]["Variables"] == {
        "POWERTOOLS_SERVICE_NAME": construct.service_name,
        "SHOWS": {"lock": "locks", "units": "units"}[name],
        "TABLE_NAME": {"Ref": live.found.id_of(construct.table)},
        **({"SWEEP_SECONDS": "300"} if name == "units" else {}),
    }


@STACKS
def test_of_locks_it_may_do_what_an_operator_may_who_reads(live):
    assert live.may(live.lock) == {
        "the table": {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan"},
        "the key": DECRYPTS,
        "a log": LOGS,
        "*": TRACES,
    }
    on_table = [one for one in live.found.statements(live.lock.live_report) if "dynamodb:" in str(one["Action"])]
    assert [sorted(one["Condition"]) for one in on_table] == [
        ["ForAllValues:StringNotLike", "Null"],
        ["ForAllValues:StringEquals", "Null", "StringEquals"],
    ]


@STACKS
def test_of_units_it_may_read_the_units_table_alone(live):
    assert live.may(live.units) == {
        "the table": {"dynamodb:BatchGetItem"},
        "the index": {"dynamodb:Scan"},
        "the key": DECRYPTS,
        "a log": LOGS,
        "*": TRACES,
    }


@STACKS
def test_who_may_see_it_may_invoke_it(live):
    (statement,) = live.found.statements(live.viewer)
    assert statement["Action"] == "lambda:InvokeFunction"
    assert live.found.text(as_list(statement["Resource"])[0]) == f"<{live.found.id_of(live.lock.live_report)}>"


@pytest.mark.parametrize("construct", [TicketLock, TransactionTables])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"dashboard_live": True},
            "dashboard_live is True and dashboard is False; allowed: together with dashboard=True",
        ),
        ({"dashboard": True, "dashboard_live": "true"}, "dashboard_live is 'true'; allowed: True or False"),
    ],
)
def test_without_a_dashboard_or_as_a_text_it_is_refused(
    construct: Callable[..., Any], settings: dict[str, Any], message: str, stack: Stack
) -> None:
    with pytest.raises(ValueError, match=message):
        construct(stack, "Refused", **settings)


@STACKS
def test_the_ready_made_stack_has_one_for_locks_and_one_for_units(stack_with):
    found = stack_with(dashboard="true", dashboard_live="true", transactions="true")
    shown = [
        one["Environment"]["Variables"]["SHOWS"]
        for one in found.of_type("AWS::Lambda::Function").values()
        if one["Handler"] == "live_report.handler"
    ]
    assert sorted(shown) == ["locks", "units"]
