"""Requests and replies that are lost, cut off or duplicated: each takes effect once, and its sender learns that."""

import pytest
from kit.far import Far
from kit.faults import Fault, delivered_twice, reply_broken_off, reply_lost, request_lost
from kit.places import is_renewal, until
from kit.proxy import Proxy
from kit.sentences.faults import *  # noqa: F403 -- pytest collects the tests that it brings
from kit.sentences.faults import Hit

from ticketlock import LockClient

FAULTS = [request_lost, reply_lost, reply_broken_off, delivered_twice]


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.__name__)
def hit(proxy: Proxy, request: pytest.FixtureRequest) -> Hit:
    return lambda is_meant: proxy.trouble(request.param, is_meant).met


def test_a_heartbeat_survives_several_faults_in_a_row(place: Far, proxy: Proxy, entity: str) -> None:
    lost: list[object] = []
    lease = place.client(lease=4, shortest_lease=1).acquire(entity, on_lost=lost.append)
    troubles = [proxy.trouble(fault, is_renewal) for fault in (reply_lost, request_lost, reply_broken_off)]
    until(lambda: all(trouble.met.is_set() for trouble in troubles))
    until(lambda: lease.remaining_s > 3)
    assert lease.is_held()
    assert lost == []


@pytest.mark.parametrize("fault", [reply_lost, reply_broken_off, delivered_twice], ids=lambda each: each.__name__)
def test_a_transaction_under_the_lock_is_applied_once(
    place: Far, proxy: Proxy, locks: LockClient, entity: str, fault: Fault
) -> None:
    counter = {"pk": {"S": f"counter of {entity}"}, "sk": {"S": "-"}}
    count_one = {
        "Update": {
            "TableName": place.table_name,
            "Key": counter,
            "UpdateExpression": "ADD seen :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    lease = locks.acquire(entity)
    trouble = proxy.trouble(fault, lambda sent: sent.operation == "TransactWriteItems")
    lease.transact_write([count_one])
    assert trouble.met.is_set()
    seen = place.table.client.get_item(TableName=place.table_name, Key=counter, ConsistentRead=True)
    assert seen["Item"]["seen"] == {"N": "1"}
