"""What SDK clients must be configured like, and what their errors mean for a request: refused, not applied or unknown.

An error that certainly came before a request left this machine means "not applied". The SDK's own class does not say.
botocore raises a ProxyConnectionError for a connection that breaks behind a proxy after it carried the request, because
urllib3 has closed it by then; aiobotocore raises an EndpointConnectionError for a connection that is reset at any time.
The HTTP library's error inside does say: some of its classes are raised only while a connection is made.
"""

import copy
import platform
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import boto3
import botocore
from botocore import exceptions as sdk
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError
from botocore.parsers import ResponseParserError
from botocore.validate import ParamValidator

from ticketlock._checks import Refusals
from ticketlock._version import __version__
from ticketlock.errors import (
    ClientClosed,
    InvalidLockRequest,
    RequestNotApplied,
    TableError,
    TableNotFound,
    TableRefused,
)
from ticketlock.wire._actions import HasEnded, InconclusiveAnswer, NoClient, Refusal, ServiceName

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient


WITHOUT_CREDENTIALS = (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.NoRegionError)
"""The process lacks something that signing a request needs."""

NEVER_MADE = (
    sdk.BaseEndpointResolverError,
    sdk.ConfigNotFound,
    sdk.ConfigParseError,
    sdk.CredentialRetrievalError,
    sdk.EndpointProviderError,
    sdk.InvalidConfigError,
    sdk.InvalidEndpointConfigurationError,
    sdk.InvalidEndpointDiscoveryConfigurationError,
    sdk.InvalidHostLabelError,
    sdk.MetadataRetrievalError,
    sdk.MissingDependencyException,
    sdk.MissingParametersError,
    sdk.NoAuthTokenError,
    sdk.ParamValidationError,
    sdk.ProfileNotFound,
    sdk.RefreshWithMFAUnsupportedError,
    sdk.SSOError,
    sdk.StubResponseError,
    sdk.TokenRetrievalError,
    sdk.UnknownCredentialError,
    sdk.UnknownSignatureVersionError,
    sdk.UnsupportedSignatureVersionError,
    sdk.ValidationError,
    # Since botocore 1.41.
    *filter(None, [getattr(sdk, "LoginError", None)]),
)
"""Raised while a request is built or signed, or its credentials are obtained; a retry would not help."""

_WHILE_CONNECTING = frozenset(
    {
        "socket.gaierror",
        # NewConnectionError and NameResolutionError are subclasses. Not ProxyError: the error that it wraps decides.
        "urllib3.exceptions.ConnectTimeoutError",
        # Includes DNS, proxy and TLS errors. Not its base ClientOSError, which a reset raises at any time.
        "aiohttp.client_exceptions.ClientConnectorError",
        "aiohttp.client_exceptions.ConnectionTimeoutError",
        # The proxy's answer to CONNECT.
        "aiohttp.client_exceptions.ClientHttpProxyError",
    }
)
"""By name, including subclasses: aiohttp need not be installed."""

_LIBRARIES = frozenset({"awscrt", "boto3", "botocore", "certifi", "dateutil", "idna", "urllib3"}) | (
    sys.stdlib_module_names - {"__main__"}
)

_FIXED = (type(None), Credentials)
_ACCOUNT = "AWS::Auth::AccountId"

CONNECT_TIMEOUT_S = 1.0
READ_TIMEOUT_S = 2.0
CLIENT_SETTINGS: Mapping[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "read_timeout": READ_TIMEOUT_S,
    # Enough for threads that poll at the same time.
    "max_pool_connections": 50,
    # ticketlock builds the parameters from values that it has checked.
    "parameter_validation": False,
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    # botocore composes its own again for every request, which takes a third of the time of a request.
    "user_agent": (
        f"ticketlock/{__version__} Boto3/{boto3.__version__} Botocore/{botocore.__version__} "
        f"Python/{platform.python_version()}"
    ),
}

_MOST_AT_ONCE = 32
_FIELDS: Mapping[ServiceName, str] = {
    "dynamodb": "client",
    "stepfunctions": "step_functions",
    "lambda": "lambda_client",
}
_FOR_THREADS = (
    "a low-level client, as boto3.client({service!r}) makes one. A resource's own client converts values: none. One "
    "whose calls are awaited is for ticketlock.aio"
)
_FOR_TASKS = (
    "an open client of aiobotocore or aioboto3, as of `async with session.create_client({service!r}, "
    "config=ticketlock.client_config()) as client`; in tests memory.async_client. One of boto3 is for threads: "
    "ticketlock.LockClient, ticketlock.units.Units"
)
_OF_RESOURCE = "the client of a resource, `resource.meta.client`"
_LONGEST_TIMEOUT_S = 5
_HANGS = "a request that hangs must end before a lease does"

_NOT_APPLIED = frozenset(
    {
        "KmsThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "Throttling",
        # Of Lambda.
        "TooManyRequestsException",
        "TransactionConflictException",
        "ReplicatedWriteConflictException",
    }
)
_CONFIGURE = (
    "configure the AWS credentials and Region of this process (AWS_PROFILE; "
    "or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION; or a role)"
)
# The callback task has timed out, or its execution has ended: no task waits for the answer.
_TASK_IS_GONE = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken", "CallbackTimeoutException"})
_EXECUTION_IS_UNKNOWN = "ExecutionDoesNotExist"
_TRANSIENT_REASONS = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})


def was_never_sent(error: Exception) -> bool:
    """Whether the SDK raised an error before any part of its request was sent."""
    inner = getattr(error, "kwargs", {}).get("error")
    if inner is None:
        # No HTTP library's error inside: the SDK's class counts, except a proxy's, which may come from either side.
        return isinstance(error, sdk.ConnectTimeoutError | sdk.EndpointConnectionError)
    # urllib3's ProxyError wraps the actual error.
    inner = getattr(inner, "original_error", inner)
    return any(f"{kind.__module__}.{kind.__qualname__}" in _WHILE_CONNECTING for kind in type(inner).__mro__)


def error_of_signal_handler(error: Exception, handled: BaseException | None) -> Exception | None:
    """Find the error that a signal handler raised during a request, and that the SDK took for a network error.

    Its class does not say: many handlers raise ``TimeoutError`` on SIGALRM. It was raised by code outside the
    libraries, and caught by a library. The innermost such error is it, since urllib3 wraps what it takes for a network
    error, and keeps the traceback.

    Args:
        error: the error that the SDK raised.
        handled: the exception that was being handled when the request began; it is unrelated.
    """
    stranger = None
    each: BaseException | None = error
    while each is not None and each is not handled:
        frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(each.__traceback__)]
        if isinstance(each, Exception) and frames and _is_library(frames[0]) and not _is_library(frames[-1]):
            stranger = each
        each = each.__cause__ or each.__context__
    return stranger


def _is_library(module: str) -> bool:
    root = module.partition(".")[0]
    # gevent, eventlet and PySocks replace the sockets of the process by their own.
    return root in _LIBRARIES or root == socket.socket.__module__.partition(".")[0] != "__main__"


class NotSigned(Exception):
    """The credentials for a request could not be obtained, so the request was not sent.

    Attributes:
        cause: the error that their provider raised.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"the AWS credentials could not be refreshed: {type(cause).__name__}: {cause}")
        self.cause = cause


def refreshable(client: Any) -> Any | None:
    """The credentials of an SDK's client, if they may have to be refreshed; None if they are fixed, or missing.

    They are obtained before each call, separately: the SDK passes on any error of a provider, even a bare RuntimeError,
    and in the middle of a call it could not be distinguished from an interrupt or a bug.
    """
    credentials = getattr(getattr(client, "_request_signer", None), "_credentials", None)
    return None if type(credentials) in _FIXED else credentials


def client_config(**more: Any) -> Config:
    """The configuration for SDK clients of your own that ticketlock is to use; that of its own clients.

        LockClient("locks", client=boto3.client("dynamodb", config=client_config()))

    boto3, aiobotocore and aioboto3 take it: one attempt at a request, 1 s to connect, 2 s to read, 50 connections, no
    validation of parameters by the SDK.

    Args:
        more: further arguments of ``botocore.config.Config``, or others in place of these.
    """
    return Config(**{**CLIENT_SETTINGS, **more})


def make_client(**overrides: Any) -> "DynamoDBClient":
    """Create a DynamoDB client as the protocol needs it: short time-outs, no retries of its own.

    Args:
        overrides: further arguments of ``boto3.client``, for example ``endpoint_url`` and ``region_name``.

    Raises:
        InvalidLockRequest: the process has no Region.
    """
    with needs_a_region():
        return boto3.client("dynamodb", **{"config": client_config(), **overrides})


def make_step_functions_client() -> "SFNClient":
    """Create a Step Functions client of the same kind."""
    with needs_a_region():
        return boto3.client("stepfunctions", config=client_config())


def make_lambda_client() -> Any:
    """Create a Lambda client of the same kind."""
    with needs_a_region():
        return boto3.client("lambda", config=client_config())


def client_of(clients: Mapping[ServiceName, Any], service: ServiceName, operation: str) -> Any:
    """The client of a service, for one of its operations.

    Raises:
        NoClient: the caller has given none that has it.
    """
    if (client := clients.get(service)) is None:
        raise NoClient(
            f"a callback, or an execution, of {service} is to be reached: give {_FIELDS[service]}, its client"
        )
    if not hasattr(client, operation):
        raise NoClient(f"{_FIELDS[service]} has no {operation}: give a client of a newer boto3")
    return client


def made_again(client: Any) -> Any:
    """A client of boto3 like one that this process has from the process that it was forked from, with connections of
    its own.

    boto3 has no way to copy a client: the copy shares settings, credentials and handlers, not the pool of connections.

    Raises:
        ClientClosed: it cannot be made again, for example because it is none of boto3.
    """
    if client is None:
        return None
    try:
        _renew_credentials(client)
        endpoint = copy.copy(client._endpoint)
        session = copy.copy(endpoint.http_session)
        session._proxy_managers = {}
        session._manager = type(session._manager)(**session._get_pool_manager_kwargs())
        session._manager.pool_classes_by_scheme = session._pool_classes_by_scheme
    except AttributeError:
        raise ClientClosed(
            f"{client!r} belongs to the process that this one was forked from, and cannot be made again here: create "
            "it, and the LockClient, in this process"
        ) from None
    endpoint.http_session = session
    # Not by `copy`, which asks an empty client for its methods.
    made = object.__new__(type(client))
    made.__dict__.update({**vars(client), "_endpoint": endpoint})
    return made


def _renew_credentials(client: Any) -> None:
    """Replace a client's credentials by a copy: a thread of the parent may have been refreshing them at the fork, and
    has their mutex for ever.

    For this client and the one that is made of it, which share what signs by them, and what tells their account.
    """
    signer = client._request_signer
    if isinstance(signer._credentials, RefreshableCredentials):
        signer._credentials = made = _with_own_mutexes(signer._credentials)
        builtins = client._ruleset_resolver._builtins
        if _ACCOUNT in builtins:
            builtins[_ACCOUNT] = made.get_deferred_property("account_id")


def _with_own_mutexes(credentials: Any) -> Any:
    """A copy of credentials; of a role's together with those by which it is assumed.

    Raises:
        AttributeError: this version of botocore has no mutex where others have it.
    """
    made = copy.copy(credentials)
    # Deleted first: it must be there.
    del made._refresh_lock
    made._refresh_lock = threading.Lock()
    fetcher: Any = getattr(made._refresh_using, "__self__", None)
    if isinstance(getattr(fetcher, "_source_credentials", None), RefreshableCredentials):
        fetcher = copy.copy(fetcher)
        fetcher._source_credentials = _with_own_mutexes(fetcher._source_credentials)
        made._refresh_using = getattr(fetcher, made._refresh_using.__name__)
    return made


@contextmanager
def needs_a_region() -> Iterator[None]:
    """Within the block an SDK client is created.

    Raises:
        InvalidLockRequest: the process has no Region; the message says where to set one.
    """
    try:
        yield
    except NoRegionError as error:
        allowed = "the Region of the table: set AWS_DEFAULT_REGION, or `region` in the profile, or give a client of it"
        raise InvalidLockRequest("region_name", None, allowed) from error


def check_is_client(client: Any, *, is_awaited: bool = False) -> None:
    """Refuse anything but a client of the SDK: for threads, or for tasks, which await its calls.

    Raises:
        InvalidLockRequest: it is not one, but for example a resource, a session, or a client of the other kind.
    """
    if getattr(getattr(client, "meta", None), "config", None) is None:
        raise _not_a_client("dynamodb", repr(client), is_awaited=is_awaited)
    check_kind(client, "dynamodb", is_awaited=is_awaited)


def check_takes_stored_values(client: Any, *, is_awaited: bool = False) -> None:
    """The same, and refuse the client of a resource: its calls take and return Python values.

    Raises:
        InvalidLockRequest: as in ``check_is_client``; or it is the client of a resource.
    """
    check_is_client(client, is_awaited=is_awaited)
    if _converts_values(client):
        raise _not_a_client("dynamodb", _OF_RESOURCE, is_awaited=is_awaited)


def check_kind(client: Any, service: ServiceName, *, is_awaited: bool) -> None:
    """Refuse a client of another service or of the other kind: that blocks where its calls are awaited, or the reverse.

    Raises:
        InvalidLockRequest: it is one.
    """
    model = getattr(getattr(client, "meta", None), "service_model", None)
    if getattr(model, "service_name", service) != service or _is_awaited(client) is (not is_awaited):
        raise _not_a_client(service, repr(client), is_awaited=is_awaited)


def _not_a_client(service: ServiceName, found: str, *, is_awaited: bool) -> InvalidLockRequest:
    allowed = _FOR_TASKS if is_awaited else _FOR_THREADS
    return InvalidLockRequest(_FIELDS[service], found, allowed.format(service=service))


def _converts_values(client: Any) -> bool:
    if not isinstance(client, BaseClient):
        return False
    # botocore has no public way to ask for handlers; those of aioboto3's resources have the same name.
    emitter = client.meta.events
    handlers = getattr(getattr(emitter, "_emitter", emitter), "_unique_id_handlers", {})
    return "dynamodb-attr-value-input" in handlers


def _is_awaited(client: Any) -> bool | None:
    """Whether a client's calls are awaited; None if it cannot be told, as of a wrapper of someone's own."""
    # By name: aiobotocore need not be installed. What instruments its clients may replace the method.
    if any(kind.__module__ == "aiobotocore.client" for kind in type(client).__mro__):
        return True
    call = getattr(type(client), "_make_api_call", None)
    return None if call is None else iscoroutinefunction(call)


def checked_client(client: Any, *, is_awaited: bool = False) -> Any:
    """Refuse anything but a client, and a client that would retry by itself or hang for long.

    Raises:
        InvalidLockRequest: as in ``check_takes_stored_values``; or it names each wrong setting and the value that it
            needs.
    """
    check_takes_stored_values(client, is_awaited=is_awaited)
    config: Any = client.meta.config
    refusals = Refusals()
    if (config.retries or {}).get("total_max_attempts") != 1:
        refusals.of(_refuse, config, "retries", "{'total_max_attempts': 1}", "ticketlock repeats requests by itself")
    for setting in ("connect_timeout", "read_timeout"):
        seconds = getattr(config, setting)
        if seconds is None or seconds > _LONGEST_TIMEOUT_S:
            refusals.of(_refuse, config, setting, f"at most {_LONGEST_TIMEOUT_S}", _HANGS)
    refusals.raise_all()
    return client


def _refuse(config: Any, setting: str, needed: str, why: str) -> None:
    allowed = f"Config({setting}={needed}), as ticketlock.client_config() has it: {why}"
    raise InvalidLockRequest(f"client's {setting}", getattr(config, setting), allowed)


def most_at_once(client: Any) -> int:
    """How many requests one call may have in flight: at most as many as the client keeps connections."""
    return min(_MOST_AT_ONCE, int(client.meta.config.max_pool_connections))


def check_items(client: Any, items: Sequence[Mapping[str, Any]]) -> None:
    """Check that ``items`` are valid for TransactWriteItems, as far as ``client`` knows.

    Raises:
        InvalidLockRequest: the message names the invalid parameter.
    """
    model = getattr(client.meta, "service_model", None)
    if model is None:
        return
    shape = model.operation_model("TransactWriteItems").input_shape
    report = ParamValidator().validate({"TransactItems": items}, shape)
    if report.has_errors():
        allowed = f"what TransactWriteItems accepts ({report.generate_report()})"
        raise InvalidLockRequest("items", f"{len(items)} items", allowed)


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The request failed in a way that may pass.

    Attributes:
        perhaps_applied: False if certainly nothing was written.
        in_the_end: the error to raise if retries fail too, and nothing was written.
    """

    perhaps_applied: bool
    in_the_end: type[TableError] = RequestNotApplied


Failure = (
    BotoCoreError
    | ClientError
    | HasEnded
    | InconclusiveAnswer
    | NoClient
    | NotSigned
    | ResponseParserError
    | UnicodeDecodeError
)
"""Errors of a call that say something about its request; the last two mean that the reply cannot be read."""
FAILURES = Failure.__args__
"""The same, to be caught."""


def meaning(error: Failure) -> Refusal | TryAgain | TableError:
    """What an error of the SDK says about the request that raised it.

    Unless it certainly came before the request left, or is a refusal by the service, the request may have been applied.
    """
    if isinstance(error, ClientError):
        return _meaning_of_answer(error)
    if isinstance(error, InconclusiveAnswer):
        return TryAgain(error.perhaps_applied)
    if isinstance(error, HasEnded):
        return Refusal((True,), (None,))
    if isinstance(error, NoClient):
        return TableRefused(str(error))
    if isinstance(error, NotSigned):
        return _meaning_of_no_credentials(error)
    if isinstance(error, WITHOUT_CREDENTIALS):
        return TableRefused(f"{str(error).rstrip('.')}: {_CONFIGURE}")
    if isinstance(error, NEVER_MADE):
        return TableRefused(str(error))
    return TryAgain(perhaps_applied=not was_never_sent(error))


def _meaning_of_no_credentials(error: NotSigned) -> TryAgain | TableError:
    cause = error.cause
    # A provider asks a service of its own, which may be unreachable for a moment.
    if isinstance(cause, BotoCoreError | ClientError) and isinstance(meaning(cause), TryAgain):
        return TryAgain(perhaps_applied=False, in_the_end=TableRefused)
    return TableRefused(str(error))


def _meaning_of_answer(error: ClientError) -> Refusal | TryAgain | TableError:
    response: Any = error.response
    code = response.get("Error", {}).get("Code", "")
    if code == "ConditionalCheckFailedException":
        return Refusal((True,), (response.get("Item"),))
    if code == "TransactionCanceledException":
        reasons = response.get("CancellationReasons", [])
        codes = [reason.get("Code") for reason in reasons]
        # First: what a transient reason stood in the way of was not checked. Another transaction that is being applied
        # may have changed one item, and not yet the other.
        if _TRANSIENT_REASONS.intersection(codes):
            return TryAgain(perhaps_applied=False)
        if "ConditionalCheckFailed" in codes:
            refused = tuple(code == "ConditionalCheckFailed" for code in codes)
            return Refusal(refused, tuple(reason.get("Item") or None for reason in reasons))
        return TableRefused(f"the transaction was cancelled: {'; '.join(_causes(reasons))}")
    if code in _TASK_IS_GONE or code == _EXECUTION_IS_UNKNOWN:
        return Refusal((True,), (None,))
    if code in _NOT_APPLIED:
        return TryAgain(perhaps_applied=False)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500 or code == "TransactionInProgressException" or _has_broken_off(response):
        return TryAgain(perhaps_applied=True)
    if code == "ResourceNotFoundException":
        return TableNotFound("there is no table of that name in this account and Region")
    return TableRefused(f"{code}: {response.get('Error', {}).get('Message', '')}")


def _causes(reasons: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The items that made the service cancel a transaction, by position, with the reasons."""
    for place, reason in enumerate(reasons, start=1):
        code, message = reason.get("Code"), reason.get("Message")
        if code not in (None, "None"):
            yield f"{code} at item {place} of {len(reasons)}" + (f" ({message})" if message else "")


def _has_broken_off(response: Any) -> bool:
    """Whether an error's reply broke off: the SDK then returns the part that arrived as the message."""
    error, head = response.get("Error", {}), response.get("ResponseMetadata", {})
    message = error.get("Message", "")
    if error.get("Code") != str(head.get("HTTPStatusCode")) or message[:1] not in ("", "{"):
        return False
    return len(message.encode()) < int(head.get("HTTPHeaders", {}).get("content-length", 0))


def consumed(response: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The capacity that a response tells, for each table; empty if it tells none."""
    of_tables: Any = response.get("ConsumedCapacity") or ()
    return (of_tables,) if isinstance(of_tables, Mapping) else of_tables


def date_ms(response: Any) -> int | None:
    """The service's Date in a reply or an error's reply, in milliseconds since the epoch; None without one."""
    date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return _date_ms(date) if date else None


# All replies within a second have the same Date.
@lru_cache(maxsize=8)
def _date_ms(date: str) -> int | None:
    try:
        return int(parsedate_to_datetime(date).timestamp()) * 1_000
    except ValueError:
        # A proxy in between has written it.
        return None
