"""Requests as values, and what performs them: retries, table time, the meaning of the SDK's errors. Knows no lock."""

from ticketlock.wire._actions import (
    TIME_TO_LIVE,
    Actions,
    Answer,
    Item,
    Reply,
    Sleep,
    StillRunning,
    T,
    briefly,
    integer,
    is_foreign,
    number,
    raise_if_foreign,
)
from ticketlock.wire._driver import Clocks, Driver, OwnProcess, SystemClocks, longest_backoff_ms
from ticketlock.wire._heartbeat import Due, Heartbeat
from ticketlock.wire._item_requests import MOST_TOGETHER, DescribeTable, Get, GetMany, GetTogether, Query
from ticketlock.wire._performer import Performer, at_once, says_that_no_thread_starts
from ticketlock.wire._provision import TableKind
from ticketlock.wire._requests import (
    TOKEN_IS_SAFE_FOR_MS,
    ForkingSteps,
    Operation,
    Pause,
    Read,
    Request,
    Scan,
    Steps,
    TimeCheck,
    Together,
    TransactWrite,
    Write,
    either,
    every,
    transact_write_call,
)
from ticketlock.wire._runs import knows_its_run, run_that_ended
from ticketlock.wire._sdk import (
    READ_TIMEOUT_S,
    TryAgain,
    check_is_client,
    check_items,
    check_kind,
    check_takes_stored_values,
    client_config,
    date_ms,
    made_again,
    make_lambda_client,
    make_step_functions_client,
    meaning,
    needs_a_region,
)
from ticketlock.wire._step_functions import DURABLE, Closing, Describing, DescribingDurable, TaskAnswer
from ticketlock.wire._table_time import Moment, Reading
