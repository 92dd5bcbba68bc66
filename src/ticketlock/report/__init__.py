"""What an operator reads of the tables: a reading, the verdicts on it, what to do next, and a page of HTML.

Terminals and dashboards show it; nothing here is for terminals alone.
"""

from ticketlock.report._advice import Advice, advice_on, command, unsetting, who_end
from ticketlock.report._page import MOST_LOCKS, page, widget
from ticketlock.report._reading import ORDERS, URGENT, AtMost, Listed, TableReader, TableReading, read_list
from ticketlock.report._units import ListedUnit, UnitsReader, items_told, state_of
from ticketlock.report._verdicts import Judged, NextStep, TimedVerdict, Tone, judge, left_ms, verdict_on
from ticketlock.report._wording import (
    decided,
    decisions,
    lease,
    permits_and_who_set_them,
    permits_of,
    plain,
    short_owner,
    short_span,
    span,
    with_options,
)
