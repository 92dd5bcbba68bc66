"""The account and the Region that the SDK's own settings name, and clients there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ticketlock_local.errors import LocalCloudError

_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn")
# Endpoints come from the SDK's own variables, so that tools that are started here use them too.
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE")
# Few retries, so that an error shows within minutes.
_CONFIG = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 5, "mode": "standard"})


class NoAccount(LocalCloudError):
    """There is no account to check; the message says what is missing."""


def own_session() -> boto3.Session:
    """A session with the SDK's own settings, and with AWS_REGION, which boto3, unlike the other SDKs, does not read."""
    return boto3.Session(region_name=os.environ.get("AWS_REGION") or None)


@dataclass(frozen=True, eq=False)
class Account:
    """One account in one Region.

    Attributes:
        session: with the credentials.
        id: its twelve digits.
        caller: the ARN of the caller.
        region: its name.
        endpoint: the URL that answers for it.
    """

    session: boto3.Session
    id: str
    caller: str
    region: str
    endpoint: str

    @classmethod
    def of(cls, session: boto3.Session) -> "Account":
        """Find the account of the credentials; sends one request, which needs no permission.

        Raises:
            NoAccount: there is no Region, or the credentials are missing, expired or refused.
        """
        if session.region_name is None:
            raise NoAccount("no Region: set AWS_REGION, or `region` in your profile")
        try:
            sts = session.client("sts", config=_CONFIG)
            identity = sts.get_caller_identity()
        except (BotoCoreError, ClientError) as error:
            raise NoAccount(f"the account cannot be found out: {error}") from error
        return cls(session, identity["Account"], identity["Arn"], session.region_name, sts.meta.endpoint_url)

    @property
    def is_aws(self) -> bool:
        """Whether AWS itself answers, and not an emulator."""
        return (urlsplit(self.endpoint).hostname or "").endswith(_AWS_HOSTS)

    def client(self, service: str) -> Any:
        """A client; one for each service."""
        return _client(self, service)

    def environment(self) -> Mapping[str, str]:
        """The environment that makes the CDK's command line use the same account, Region and credentials."""
        credentials = self.session.get_credentials()
        if credentials is None:
            raise NoAccount("the credentials are gone")
        now: Any = credentials.get_frozen_credentials()
        return {
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": now.access_key,
            "AWS_SECRET_ACCESS_KEY": now.secret_key,
            **({} if now.token is None else {"AWS_SESSION_TOKEN": now.token}),
            **{name: os.environ[name] for name in _ENDPOINTS if name in os.environ},
        }


@cache
def _client(account: Account, service: str) -> Any:
    # The name is known only at run time, so none of the typed overloads fits.
    make: Any = account.session.client
    return make(service, config=_CONFIG)
