"""Any argument of any type that the public API gets is accepted, or refused by an error of ticketlock's own.

An invalid request has sent nothing, and a lock that was taken has the counts that are stored.
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.promises import counts_are_kept

from ticketlock import (
    Claim,
    InvalidLockRequest,
    Lease,
    LockClient,
    LockName,
    LockTable,
    TicketLockError,
    pessimistic,
)
from ticketlock.testing import ManualClock, MemoryDynamoDB

pytestmark = pytest.mark.verify(
    "each verb some dozens of times; tests/client/test_wishes.py has the cases that were found"
)


class Shapeless:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("not shown")


NUMBERS = st.one_of(
    st.booleans(), st.integers(), st.sampled_from([10**5_000, -(10**5_000), 2**63, 10**38]), st.floats(), st.decimals()
)
ANYTHING = st.one_of(
    st.none(),
    NUMBERS,
    st.text(max_size=20),
    st.characters(categories=["Cs"]),
    st.binary(max_size=5),
    st.timedeltas(),
    st.sampled_from([Shapeless(), object(), print, LockName("order-42"), {}, [], ["a", "b"], ("a", 1), {"a": 1}, {1}]),
)
# Valid values, so that the arguments beside them are reached.
RIGHT: dict[str, Any] = {
    "entity": "order-42",
    "entities": ["order-42", "order-43"],
    "lock": LockName("order-42"),
    "owner": "build-7",
    "lease_ms": 10_000,
    "resource_name": "order-42",
    "timeout_in_seconds": 20,
    "transaction_id": "build-7",
    "table_name": "locks",
    "update": "SET a = :a",
    "item": {"id": "42"},
}
# Its content is checked by the SDK's own validator, which the client in memory does not have.
OWN_WRITE = {"Put": {"TableName": "locks", "Item": {"pk": {"S": "own"}, "sk": {"S": "own"}}}}
# Created elsewhere; or ticketlock's own values, which no caller creates by hand.
NOT_GIVEN = {"client", "step_functions", "clocks", "sleep", "session"}


class Here:
    """A client on a table in memory."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryDynamoDB(clock=self.clock)
        self._made: dict[str, Any] = {"client": self.memory.client, "clocks": self.clock, "sleep": self.clock.sleep}
        self.locks = LockClient("locks", **self._made)
        self.table = LockTable("locks", **self._made)

    @property
    def lease(self) -> Lease:
        return self.locks.acquire("held", heartbeat=False)

    @property
    def make(self) -> Callable[..., Any]:
        return partial(LockClient, **self._made)


VERBS: dict[str, Callable[[Here], Callable[..., Any]]] = {
    "LockName": lambda _: LockName,
    "Claim": lambda _: Claim,
    "LockClient": lambda here: here.make,
    "acquire": lambda here: here.locks.acquire,
    "try_acquire": lambda here: partial(here.locks.acquire, record_wait=0),
    "acquire_all": lambda here: here.locks.acquire_all,
    "client.resume": lambda here: here.locks.resume,
    "client.inspect": lambda here: here.locks.inspect,
    "client.lock": lambda here: here.locks.lock,
    "ensure": lambda here: here.lease.ensure,
    "set_data": lambda here: here.lease.set_data,
    "release": lambda here: here.lease.release,
    "condition_check": lambda here: here.lease.condition_check,
    "fenced_put": lambda here: here.lease.fenced_put,
    "fenced_update": lambda here: here.lease.fenced_update,
    "transact_write": lambda here: partial(here.lease.transact_write, [OWN_WRITE]),
    "inspect": lambda here: here.table.inspect,
    "set_limit": lambda here: here.table.set_limit,
    "force_release": lambda here: here.table.force_release,
    "release_as": lambda here: here.table.release_as,
    "resume": lambda here: here.table.resume,
    "acquire_lock": lambda here: pessimistic(here.locks).acquire_lock,
    "release_lock": lambda here: pessimistic(here.locks).release_lock,
    "extend_lock": lambda here: pessimistic(here.locks).extend_lock,
}


def arguments_of(verb: Callable[..., Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Anything for each argument, or a valid value, or nothing if it is optional."""
    asked = [
        each
        for each in signature(verb).parameters.values()
        if each.name not in NOT_GIVEN and each.kind is not Parameter.VAR_KEYWORD
    ]
    given = {
        each.name: st.one_of(st.sampled_from([RIGHT[each.name]]), ANYTHING) if each.name in RIGHT else ANYTHING
        for each in asked
    }
    required = {each.name: given[each.name] for each in asked if each.default is Parameter.empty}
    return st.fixed_dictionaries(required, optional={name: given[name] for name in given if name not in required})


@pytest.mark.parametrize("name", VERBS)
@given(data=st.data())
@settings(max_examples=50)
def test_it_is_done_or_refused_by_name_and_an_invalid_request_sends_nothing(name: str, data: st.DataObject) -> None:
    here = Here()
    verb = VERBS[name](here)
    arguments = data.draw(arguments_of(verb))
    sent = len(here.memory.sent)
    try:
        done = verb(**arguments)
    except InvalidLockRequest:
        assert len(here.memory.sent) == sent
    except TicketLockError:
        pass
    else:
        if isinstance(done, LockClient):
            done.close()
    here.locks.close()
    counts_are_kept(here.memory.items(), here.clock.read().wall_ms)
