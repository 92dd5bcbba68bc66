"""What AWS bills, at the prices of us-east-1; docs/costs.md links the pages with them."""


class OfAMillion:
    """Dollars for a million; memory is billed by the GB-second, here on arm64."""

    transition = 25.0
    write_unit = 0.625
    read_unit = 0.125
    call = 0.20
    durable_operation = 8.0
    gb_second = 13.3334


class AMonth:
    """Dollars a month: a metric of one's own, a metric that an alarm watches, a dashboard."""

    metric = 0.30
    alarm = 0.10
    dashboard = 3.00
