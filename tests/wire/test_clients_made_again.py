"""A client of boto3 that a forked child makes again from that of its parent."""

import datetime
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.credentials import AssumeRoleCredentialFetcher, RefreshableCredentials
from kit.forked import another_thread_in, code_of_a_fork

from ticketlock import ClientClosed, client_config
from ticketlock.wire._sdk import made_again

SECONDS = {"fresh": 3_600, "about to expire": 5}


def provided(state: str) -> dict[str, str]:
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=SECONDS[state])
    return {"access_key": state.replace(" ", "-"), "secret_key": "s", "token": "t", "expiry_time": ends.isoformat()}


def refreshable(refresh: Any) -> Any:
    return RefreshableCredentials.create_from_metadata(provided("about to expire"), refresh, "test")


def client_with(credentials: Any) -> Any:
    """A client whose requests are signed, and answered with their signatures; none leaves the process."""
    session: Any = botocore.session.get_session()
    session._credentials = credentials
    session = boto3.Session(botocore_session=session, region_name="eu-west-1")
    client: Any = session.client("dynamodb", config=client_config())

    def answer(request: Any, **_: Any) -> Any:
        raw = type("Raw", (), {"stream": lambda *_: [b'{"TableNames": []}']})()
        headers: Any = {"signed": request.headers["Authorization"]}
        return AWSResponse(request.url, 200, headers, raw)

    client.meta.events.register("before-send.dynamodb", answer)
    return client


def check_signs_with_fresh_credentials(parents: Any) -> None:
    reply = made_again(parents).list_tables()
    assert b"Credential=fresh/" in reply["ResponseMetadata"]["HTTPHeaders"]["signed"]


def test_it_refreshes_credentials_that_a_thread_of_the_parent_was_refreshing() -> None:
    credentials = refreshable(lambda: provided("fresh"))
    client = client_with(credentials)
    with another_thread_in(credentials._refresh_lock):
        assert code_of_a_fork(lambda: check_signs_with_fresh_credentials(client)) == 0


class Sts:
    """Assumes every role; makes itself when it is called, as what makes clients does."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def assume_role(self, **_: str) -> Any:
        role = provided("fresh")
        found = {"AccessKeyId": role["access_key"], "SecretAccessKey": role["secret_key"]}
        return {"Credentials": {**found, "SessionToken": role["token"], "Expiration": role["expiry_time"]}}


def test_it_refreshes_those_of_a_role_and_those_by_which_the_role_is_assumed() -> None:
    source = refreshable(lambda: provided("fresh"))
    role = AssumeRoleCredentialFetcher(Sts(), source, "arn:aws:iam::123456789012:role/r")
    credentials = refreshable(role.fetch_credentials)
    client = client_with(credentials)
    with another_thread_in(credentials._refresh_lock, source._refresh_lock):
        assert code_of_a_fork(lambda: check_signs_with_fresh_credentials(client)) == 0


def test_a_client_whose_credentials_are_not_as_known_is_refused() -> None:
    credentials = refreshable(lambda: provided("fresh"))
    client = client_with(credentials)
    del credentials._refresh_lock
    with pytest.raises(ClientClosed, match="create it, and the LockClient, in this process"):
        made_again(client)
