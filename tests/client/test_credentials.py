"""Credentials that cannot be refreshed, also in the middle of a hold.

A call that needs a request is refused with the provider's error as its cause, and may be tried again; what the end of a
block does then is in test_losing.py, since a refused release is as one that is lost.
"""

import datetime
import math
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.session
import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import AioSession
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError, CredentialRetrievalError, ReadTimeoutError, TokenRetrievalError
from kit.in_a_loop import Loop
from kit.places import Emulated, Kind, until

from ticketlock import LockClient, TableRefused
from ticketlock.wire._sdk import CLIENT_SETTINGS

READ_TIMEOUT_S = 0.5
LEASE_S = 12.0
"""Short enough to wait for two renewals, and at least four read time-outs."""
CREDENTIALS_LAST = datetime.timedelta(minutes=1)
"""botocore refreshes those that expire within ten minutes."""
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "not yours"}}, "AssumeRole")


class Provider:
    """Provides credentials that must be refreshed before each request.

    Attributes:
        fails_with: the error that it raises from now on; None for none.
        times: how often it does.
        asked_in_vain: how often it raised one.
    """

    def __init__(self) -> None:
        self.fails_with: Exception | None = None
        self.times = math.inf
        self.asked_in_vain = 0

    def refresh(self) -> dict[str, Any]:
        if self.fails_with is not None and self.asked_in_vain < self.times:
            self.asked_in_vain += 1
            raise self.fails_with
        soon = datetime.datetime.now(datetime.UTC) + CREDENTIALS_LAST
        return {"access_key": "test", "secret_key": "test", "token": "test", "expiry_time": soon.isoformat()}

    async def refresh_in_a_loop(self) -> dict[str, Any]:
        return self.refresh()


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    # Locks that a test has left are released.
    provider.fails_with = None


@pytest.fixture
def dynamodb(place: Emulated, kind: Kind, loop: Loop, provider: Provider) -> Any:
    """An SDK client that asks the provider before each request."""
    settings: dict[str, Any] = {**CLIENT_SETTINGS, "read_timeout": READ_TIMEOUT_S}
    session: Any
    if kind == "tasks":
        session = AioSession()
        session._credentials = AioRefreshableCredentials.create_from_metadata(
            provider.refresh(), provider.refresh_in_a_loop, "test"
        )
        return loop.dynamodb(session=session, endpoint_url=place.endpoint, config=settings)
    session = botocore.session.get_session()
    session._credentials = RefreshableCredentials.create_from_metadata(provider.refresh(), provider.refresh, "test")
    session = boto3.Session(botocore_session=session)
    return session.client("dynamodb", endpoint_url=place.endpoint, config=Config(**settings))


@pytest.fixture
def locks(place: Emulated, dynamodb: Any) -> LockClient:
    return place.client_with(dynamodb, lease=60)


EXPIRED = RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired.")
FURTHER = [
    CredentialRetrievalError(provider="custom-process", error_msg="exit code 1"),
    TokenRetrievalError(provider="sso", error_msg="the session has expired"),
    KeyError("AccessKeyId"),
]
_LATER = pytest.mark.verify("the same with a further class of error")


@pytest.mark.parametrize(
    "error",
    [EXPIRED, DENIED, *(pytest.param(error, marks=_LATER) for error in FURTHER)],
    ids=lambda error: type(error).__name__,
)
def test_a_call_without_credentials_is_refused_with_the_cause_and_may_be_retried(
    place: Emulated, locks: LockClient, provider: Provider, entity: str, error: Exception
) -> None:
    lease = locks.acquire(entity)
    note = {"pk": {"S": f"a note under {entity}"}, "sk": {"S": "-"}}
    write = [{"Put": {"TableName": place.table_name, "Item": note}}]
    provider.fails_with = error
    for call in (lambda: locks.acquire(f"{entity}, another"), lambda: lease.transact_write(write), lease.release):
        with pytest.raises(TableRefused, match="credentials could not be refreshed") as raised:
            call()
        assert raised.value.__cause__ is error
    assert place.holders_of(entity) == 1
    provider.fails_with = None
    lease.release()
    assert place.is_free(entity)


def test_a_heartbeat_without_credentials_keeps_trying(
    place: Emulated, dynamodb: Any, provider: Provider, entity: str
) -> None:
    lost: list[object] = []
    lease = place.client_with(dynamodb, lease=LEASE_S).acquire(entity, on_lost=lost.append)
    provider.fails_with = EXPIRED
    until(lambda: provider.asked_in_vain >= 2, "a second renewal")
    provider.fails_with = None
    until(lambda: lease.remaining_s > LEASE_S * 2 / 3, "a renewal")
    assert lost == []


def test_a_provider_whose_own_service_does_not_answer_for_a_moment_is_asked_again(
    locks: LockClient, provider: Provider, entity: str
) -> None:
    provider.fails_with = ReadTimeoutError(endpoint_url="https://sts.amazonaws.com")
    provider.times = 2
    assert locks.acquire(entity).is_held()
