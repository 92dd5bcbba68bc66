"""Every exception of the libraries between a client and its table: what may have happened before it was raised."""

import inspect
import socket
import string
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import aiohttp.client_exceptions
import aiohttp.http_exceptions
import botocore.exceptions
import pytest
import urllib3.exceptions
from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
    WaiterError,
)
from botocore.parsers import ResponseParserError
from urllib3.util import Retry

from ticketlock import TableRefused
from ticketlock.wire._sdk import TryAgain, error_of_signal_handler, meaning

pytestmark = pytest.mark.shows("lost requests")

# What each library's exception says about the request, if the SDK wraps it in an error of its own. The sources say
# where it is raised; one that is raised in several places counts as the latest.

URLLIB3 = {
    # While a connection is made: no socket is connected yet.
    "before it left": ("ConnectTimeoutError", "NameResolutionError", "NewConnectionError"),
    # A read time-out, a TLS failure and a broken connection come at any time; behind a proxy each may be a ProxyError.
    "at any time": (
        "ConnectionError",
        "HTTPError",
        "IncompleteRead",
        "InvalidChunkLength",
        "MaxRetryError",
        "PoolError",
        "ProtocolError",
        "ProxyError",
        "ReadTimeoutError",
        "RequestError",
        "SSLError",
        "TimeoutError",
    ),
    # Of the answer: it was sent.
    "afterwards": ("DecodeError", "HeaderParsingError", "InvalidHeader", "ResponseError", "ResponseNotChunked"),
    # Mistakes of a caller, which the SDK does not make: not worth a distinction.
    "not told apart": (
        "BodyNotHttplibCompatible",
        "ClosedPoolError",
        "EmptyPoolError",
        "FullPoolError",
        "HostChangedError",
        "LocationParseError",
        "LocationValueError",
        "ProxySchemeUnknown",
        "ProxySchemeUnsupported",
        "TimeoutStateError",
        "URLSchemeUnknown",
        "UnrewindableBodyError",
    ),
}
AIOHTTP = {
    # Raised only by connectors, and by code that waits for them.
    "before it left": (
        "ClientConnectorCertificateError",
        "ClientConnectorDNSError",
        "ClientConnectorError",
        "ClientConnectorSSLError",
        "ClientHttpProxyError",
        "ClientProxyConnectionError",
        "ClientSSLError",
        "ConnectionTimeoutError",
        "UnixClientConnectorError",
    ),
    # A reset is a ClientOSError whenever it comes, an end of the connection a ServerDisconnectedError.
    "at any time": (
        "ClientConnectionError",
        "ClientConnectionResetError",
        "ClientError",
        "ClientOSError",
        "ServerConnectionError",
        "ServerDisconnectedError",
        "ServerTimeoutError",
        "SocketTimeoutError",
    ),
    "afterwards": (
        "BadHttpMessage",
        "BadHttpMethod",
        "BadStatusLine",
        "ClientPayloadError",
        "ClientResponseError",
        "ContentEncodingError",
        "ContentLengthError",
        "ContentTypeError",
        "DecompressSizeError",
        "HttpBadRequest",
        "HttpProcessingError",
        "InvalidHeader",
        "InvalidURLError",
        "InvalidUrlRedirectClientError",
        "LineTooLong",
        "NonHttpUrlRedirectClientError",
        "PayloadEncodingError",
        "RedirectClientError",
        "TooManyRedirects",
        "TransferEncodingError",
    ),
    "not told apart": (
        "InvalidURL",
        "InvalidUrlClientError",
        "NonHttpUrlClientError",
        "ServerFingerprintMismatch",
        "UploadAbortedError",
        "WSMessageTypeError",
        "WSServerHandshakeError",
    ),
}
# The SDK's own errors, without one of another library inside.
BOTOCORE = {
    "before it left": ("ConnectTimeoutError", "EndpointConnectionError"),
    # Its request was never made: a retry would not help.
    "refused": (
        "BaseEndpointResolverError",
        "AliasConflictParameterError",
        "ConfigNotFound",
        "ConfigParseError",
        "CredentialRetrievalError",
        "EndpointProviderError",
        "EndpointResolutionError",
        "EndpointVariantError",
        "InfiniteLoopConfigError",
        "InvalidConfigError",
        "InvalidEndpointConfigurationError",
        "InvalidEndpointDiscoveryConfigurationError",
        "InvalidHostLabelError",
        "InvalidRegionError",
        "LoginAuthorizationCodeError",
        "LoginError",
        "LoginInsufficientPermissions",
        "LoginRefreshRequired",
        "LoginTokenLoadError",
        "MetadataRetrievalError",
        "MissingDependencyException",
        "MissingParametersError",
        "NoAuthTokenError",
        "NoCredentialsError",
        "NoRegionError",
        "ParamValidationError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "RangeError",
        "RefreshWithMFAUnsupportedError",
        "SSOError",
        "SSOTokenLoadError",
        "StubAssertionError",
        "StubResponseError",
        "TokenRetrievalError",
        "UnStubbedResponseError",
        "UnauthorizedSSOTokenError",
        "UnknownCredentialError",
        "UnknownEndpointError",
        "UnknownEndpointResolutionBuiltInName",
        "UnknownFIPSEndpointError",
        "UnknownKeyError",
        "UnknownParameterError",
        "UnknownSignatureVersionError",
        "UnsupportedSignatureVersionError",
        "ValidationError",
    ),
    "at any time": (
        "BotoCoreError",
        "ConnectionClosedError",
        "ConnectionError",
        "HTTPClientError",
        "ProxyConnectionError",
        "ReadTimeoutError",
        "SSLError",
    ),
    "afterwards": ("ChecksumError", "FlexibleChecksumError", "IncompleteReadError", "ResponseStreamingError"),
    # Of other services, of client creation, of waiters and paginators: none of our requests meets them.
    "not told apart": (
        "ApiVersionNotFoundError",
        "AwsChunkedWrapperError",
        "CapacityNotAvailableError",
        "DataNotFoundError",
        "InvalidChecksumConfigError",
        "InvalidDNSNameError",
        "InvalidDefaultsMode",
        "InvalidExpressionError",
        "InvalidIMDSEndpointError",
        "InvalidIMDSEndpointModeError",
        "InvalidMaxRetryAttemptsError",
        "InvalidProxiesConfigError",
        "InvalidRetryConfigurationError",
        "InvalidRetryModeError",
        "InvalidS3AddressingStyleError",
        "InvalidS3UsEast1RegionalEndpointConfigError",
        "InvalidSTSRegionalEndpointsConfigError",
        "MD5UnavailableError",
        "OperationNotPageableError",
        "PaginationError",
        "ServiceNotInRegionError",
        "UnknownClientMethodError",
        "UnknownRegionError",
        "UnknownServiceError",
        "UnknownServiceStyle",
        "UnknownTokenProviderError",
        "UnseekableStreamError",
        "UnsupportedOutpostResourceError",
        "UnsupportedS3AccesspointConfigurationError",
        "UnsupportedS3ArnError",
        "UnsupportedS3ConfigurationError",
        "UnsupportedS3ControlArnError",
        "UnsupportedS3ControlConfigurationError",
        "UnsupportedServiceProtocolsError",
        "WaiterConfigError",
        "WaiterError",
    ),
}
AROUND = (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
"""The SDK's errors that wrap another library's error."""


def classes(root: type[BaseException], *modules: ModuleType) -> dict[str, type[Any]]:
    """The exceptions of a library, by name."""
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, root) and kind.__module__ == module.__name__
        if not issubclass(kind, Warning)
    }


OF_URLLIB3 = classes(Exception, urllib3.exceptions)
OF_AIOHTTP = classes(Exception, aiohttp.client_exceptions, aiohttp.http_exceptions)
OF_BOTOCORE = classes(BotoCoreError, botocore.exceptions)


@pytest.mark.parametrize(
    ("table", "kinds"),
    [(URLLIB3, OF_URLLIB3), (AIOHTTP, OF_AIOHTTP), (BOTOCORE, OF_BOTOCORE)],
    ids=["urllib3", "aiohttp", "botocore"],
)
def test_each_exception_is_classified_once(table: dict[str, tuple[str, ...]], kinds: dict[str, type[Any]]) -> None:
    assert sorted(name for names in table.values() for name in names) == sorted(kinds)


def listed(table: dict[str, tuple[str, ...]], kinds: dict[str, type[Any]]) -> list[Any]:
    return [
        pytest.param(kinds[name], when, id=name) for when, names in table.items() for name in names if name in kinds
    ]


def around(kind: type[BotoCoreError], inner: BaseException | None) -> BotoCoreError:
    """An error of the SDK with another library's error inside."""
    fields = {name: "it" for _, name, _, _ in string.Formatter().parse(kind.fmt) if name}
    if kind is WaiterError:
        fields["last_response"] = "it"
    error = kind(**fields)
    error.kwargs = {**error.kwargs, "error": inner}
    return error


@pytest.mark.parametrize("outer", AROUND)
@pytest.mark.parametrize(
    ("inner", "when"), [*listed(URLLIB3, OF_URLLIB3), *listed(AIOHTTP, OF_AIOHTTP), (socket.gaierror, "before it left")]
)
def test_the_wrapped_error_decides_whether_the_request_may_have_been_applied(
    outer: type[BotoCoreError], inner: type[BaseException], when: str
) -> None:
    assert meaning(around(outer, inner.__new__(inner))) == TryAgain(perhaps_applied=when != "before it left")


@pytest.mark.parametrize("outer", AROUND)
@pytest.mark.parametrize(
    "inner", [BrokenPipeError, ConnectionResetError, OSError, RuntimeError, TimeoutError, ValueError]
)
def test_an_unknown_error_may_come_at_any_time(outer: type[BotoCoreError], inner: type[BaseException]) -> None:
    assert meaning(around(outer, inner())) == TryAgain(perhaps_applied=True)


@pytest.mark.parametrize(("kind", "when"), listed(BOTOCORE, OF_BOTOCORE))
def test_each_error_of_the_sdk_itself_is_classified(kind: type[BotoCoreError], when: str) -> None:
    found = meaning(around(kind, None))
    if when == "refused":
        assert isinstance(found, TableRefused)
    else:
        assert found == TryAgain(perhaps_applied=when != "before it left")


@pytest.mark.parametrize(("inner", "when"), listed(URLLIB3, OF_URLLIB3))
def test_behind_a_proxy_the_error_that_the_proxys_error_wraps_decides(inner: type[Exception], when: str) -> None:
    """urllib3 raises one for anything that happens on a connection that it has closed by then."""
    wrapping = urllib3.exceptions.ProxyError("Unable to connect to proxy", inner.__new__(inner))
    told = meaning(around(ProxyConnectionError, wrapping))
    assert told == TryAgain(perhaps_applied=when != "before it left")


@pytest.mark.parametrize(
    "error",
    [ResponseParserError("no such token"), UnicodeDecodeError("utf-8", b"\xc3", 0, 1, "unexpected end of data")],
    ids=lambda error: type(error).__name__,
)
def test_an_unreadable_answer_means_that_the_request_arrived(error: Any) -> None:
    assert meaning(error) == TryAgain(perhaps_applied=True)


def caught_by_a_library(what: Callable[[], object]) -> Exception:
    """The exception that it raises, with the traceback as of where a library catches it."""
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(what).exception()
    assert isinstance(error, Exception)
    return error


def test_a_signal_handlers_error_is_found_inside_the_error_that_urllib3_makes_of_it() -> None:
    def over() -> None:
        raise TimeoutError

    raised = caught_by_a_library(over)
    wrapped = urllib3.exceptions.ProtocolError("Connection aborted.", raised)
    wrapped.__context__ = raised
    outer = caught_by_a_library(lambda: Retry(False).increment("POST", "/", None, wrapped, None, raised.__traceback__))
    assert outer is wrapped
    assert error_of_signal_handler(outer, None) is raised


def test_an_error_that_was_caught_before_the_request_is_not_mistaken_for_a_signal_handlers() -> None:
    """As when a hook for errors of threads uses a lock."""

    def work() -> None:
        raise ValueError

    before = caught_by_a_library(work)
    network = caught_by_a_library(lambda: socket.create_connection(("127.0.0.1", 1)))
    network.__context__ = before
    assert error_of_signal_handler(network, before) is None
