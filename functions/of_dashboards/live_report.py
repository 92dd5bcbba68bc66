"""The busy locks, or the open units, as HTML: CloudWatch calls it for each viewer of a dashboard, at each refresh.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/add_custom_widget_dashboard_about.html
"""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from ticketlock import LockTable
from ticketlock.report import AtMost, TableReader, UnitsReader, widget

logger = Logger()

ABOUT = "Who holds locks, who waits, and what to type next; or the units of work that are open. It takes no parameters."


@cache
def reader() -> TableReader:
    """The reader of this function's table; the client lives as long as the container."""
    name, is_of_units = os.environ["TABLE_NAME"], os.environ["SHOWS"] == "units"
    return TableReader(
        table=None if is_of_units else LockTable(name),
        units=UnitsReader(name, sweep_every_s=int(os.environ["SWEEP_SECONDS"])) if is_of_units else None,
        at_most=AtMost(),
    )


def handler(event: Mapping[str, Any], _context: Any) -> str:
    """See ``widget``; in Markdown what it shows, if the console asks for that."""
    if event.get("describe"):
        return ABOUT
    reading = reader().read()
    counted = {"busy": len(reading.locks), "units": len(reading.units or ()), "unread": [*reading.unread]}
    logger.info("live_report", extra=counted)
    dark = event.get("widgetContext", {}).get("theme") == "dark"
    return widget(reader(), reading, os.environ["AWS_REGION"], dark=dark)
