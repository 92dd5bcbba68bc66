"""Logs and metrics of the functions: one log line and one set of metrics for each step."""

import io
import json
import re
from collections import Counter
from typing import Any

import _observed
import pytest
from kit.interpreter.harness import Work
from ticketlock_cdk.lock.monitoring import _OLDEST_WAITERS
from workflow.interpreted.conftest import Open

pytestmark = pytest.mark.verify(
    "moto's interpreter waits in real time; `make test` asks the ways that most executions take"
)


def objects(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.fixture
def queued(
    open_stage: Open, work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str, list[dict[str, Any]], list[dict[str, Any]]]:
    """A holder's ARN, that of an execution which waited for it, and everything that was logged."""
    # The logger keeps the stream and the level of the moment when it was created.
    lines = io.StringIO()
    monkeypatch.setattr(_observed.logger.registered_handler, "stream", lines)
    level = _observed.logger.log_level
    _observed.logger.setLevel("INFO")
    stage = open_stage({"work": work, "next": Work()})
    holder = stage.hold("order-42")
    waiter = stage.start("order-42", function="next", namespace="default")
    stage.machine.wait_until_entered(waiter, "WaitForTurn")
    stage.run("order-42", recordWaitSeconds=0)
    work.finish.set()
    for arn in (holder, waiter):
        assert stage.machine.wait(arn).status == "SUCCEEDED"
    _observed.logger.setLevel(level)
    return holder, waiter, objects(lines.getvalue()), objects(capsys.readouterr().out)


def test_each_step_logs_the_entity_the_namespace_the_ticket_and_the_execution(queued: Any) -> None:
    holder, waiter, logs, _ = queued
    assert {line["message"] for line in logs} == {"take_ticket", "check_position", "heartbeat", "release"}
    for line in logs:
        assert line["entity"] == "order-42"
        assert line["namespace"] == "default"
    # An execution that was refused at once has no ticket.
    assert [line.get("refused") for line in logs if "ticket" not in line] == ["RecordWaitExceeded"]
    assert {line["execution"] for line in logs} >= {holder, waiter}


def test_the_dashboards_query_names_fields_that_the_steps_log(queued: Any) -> None:
    _, _, logs, _ = queued
    own = set(re.findall(r" as (\w+)", _OLDEST_WAITERS))
    words = {"filter", "fields", "stats", "sort", "limit", "as", "by", "and", "desc"}
    # Neither what CloudWatch adds, nor functions.
    named = set(re.findall(r"(?<![@\w])[a-z_]+\b(?!\()", _OLDEST_WAITERS)) - own - words
    assert named == {"entity", "fencing_token", "namespace", "refused", "ticket"}
    assert named <= {key for line in logs for key in line}


@pytest.mark.always("the way that most executions take")
def test_metrics_count_grants_waits_holds_and_ended_record_waits_and_none_has_the_entity_as_a_dimension(
    queued: Any,
) -> None:
    _, _, _, metrics = queued
    counted = Counter(
        (metric["Name"], metric["Unit"])
        for line in metrics
        for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    )
    for name, unit, times in (
        ("Grants", "Count", 2),
        ("WaitTime", "Milliseconds", 2),
        ("TakenOver", "Count", 2),
        ("HoldTime", "Milliseconds", 2),
        ("RecordWaitsExceeded", "Count", 1),
    ):
        assert counted[name, unit] == times
    assert {json.dumps(line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]) for line in metrics} == {'[["service"]]'}
    assert "order-42" not in json.dumps(metrics)
