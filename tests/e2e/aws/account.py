"""The account and the Region that the SDK's own settings name, clients there, and the question before a run."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TextIO
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

# us-east-1: https://aws.amazon.com/step-functions/pricing/
_A_TRANSITION_USD = 25 / 1_000_000
# For all checks except the bursts; for each start of a burst, and each execution that holds, beats and is stopped.
_TRANSITIONS = 1_500
_TRANSITIONS_A_START = 25
# Requests to DynamoDB and Lambda, logs, traces, metrics, files: cents at these numbers.
_ALL_ELSE_USD = 0.21


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
        named: that URL, if it is not the one of the SDK's own settings.
    """

    session: boto3.Session
    id: str
    caller: str
    region: str
    endpoint: str
    named: str | None = None

    @classmethod
    def of(cls, session: boto3.Session, endpoint: str | None = None) -> "Account":
        """Find the account of the credentials; sends one request, which needs no permission.

        Args:
            session: with the credentials.
            endpoint: the URL that answers for it, if it is not the one of the SDK's own settings.

        Raises:
            NoAccount: there is no Region, or the credentials are missing, expired or refused.
        """
        if session.region_name is None:
            raise NoAccount("no Region: set AWS_REGION, or `region` in your profile")
        try:
            sts = session.client("sts", config=_CONFIG, endpoint_url=endpoint)
            identity = sts.get_caller_identity()
        except (BotoCoreError, ClientError) as error:
            raise NoAccount(f"the account cannot be found out: {error}") from error
        return cls(session, identity["Account"], identity["Arn"], session.region_name, sts.meta.endpoint_url, endpoint)

    @property
    def is_aws(self) -> bool:
        """Whether AWS itself answers, and not an emulator."""
        return (urlsplit(self.endpoint).hostname or "").endswith(_AWS_HOSTS)

    def client(self, service: str) -> Any:
        """A client; one for each service."""
        return _client(self, service)

    def client_of(self, session: boto3.Session, service: str, config: Config | None = None) -> Any:
        """A client with another session's credentials."""
        # The name is known only at run time, so none of the typed overloads fits.
        make: Any = session.client
        return make(service, config=config, endpoint_url=self.named)

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
            **({} if self.named is None else dict.fromkeys(_ENDPOINTS[:2], self.named)),
        }


@cache
def _client(account: Account, service: str) -> Any:
    return account.client_of(account.session, service, _CONFIG)


class NotAgreed(LocalCloudError):
    """The user has not agreed; nothing was made."""


def agree(
    account: Account,
    text: str,
    *,
    yes: bool,
    named: str | None,
    stdin: TextIO,
    ask: Callable[[str], str] = input,
    tell: Callable[[str], object] = print,
) -> None:
    """Show what will be done where, and ask for agreement: the account's id, typed or given.

    Args:
        account: where.
        text: what will be made, cost and be deleted.
        yes: do not ask; only with ``named``.
        named: the account's id as the caller gave it.
        stdin: whom to ask.
        ask: how.
        tell: where the text goes.

    Raises:
        NotAgreed: standard input is not a terminal, or the answer is another account.
    """
    tell(f"account  {account.id}, as {account.caller}")
    tell(f"Region   {account.region}" + ("" if account.is_aws else f", at {account.endpoint}, which is not AWS"))
    tell(text)
    if named is not None and named != account.id:
        raise NotAgreed(f"--account says {named}, and these credentials are of {account.id}: nothing was made")
    if yes:
        if named is None:
            raise NotAgreed("--yes needs --account with the account's id: nothing was made")
        return
    if not stdin.isatty():
        raise NotAgreed(
            "cannot ask, since standard input is not a terminal; give --yes and --account: nothing was made"
        )
    try:
        answer = ask("Type the account's id to continue: ")
    except EOFError:
        answer = ""
    if answer.strip() != account.id:
        raise NotAgreed(f"{answer.strip()!r} is not {account.id}: nothing was made")


def estimate_usd(burst_starts: int) -> float:
    """The dollars at most, at the prices of us-east-1 without any free tier.

    Args:
        burst_starts: how many executions a burst has; 0 for none.
    """
    return _ALL_ELSE_USD + _A_TRANSITION_USD * (_TRANSITIONS + _TRANSITIONS_A_START * burst_starts)


def cost_in_words(burst_starts: int) -> str:
    """The same in words."""
    bursts = f"two bursts of {burst_starts} executions" if burst_starts else "no bursts"
    return f"about ${estimate_usd(burst_starts):.2f}, with {bursts} (prices of us-east-1, without a free tier)"
