"""Which errors of the SDK certainly came before a request left this machine.

The SDK's own class does not say. botocore raises a ProxyConnectionError for a connection that breaks behind a proxy
after it carried the request, because urllib3 has closed it by then; aiobotocore raises an EndpointConnectionError for a
connection that is reset at any time. The HTTP library's error inside does say: some of its classes are raised only
while a connection is made.
"""

import sys
import traceback

from botocore import exceptions as sdk

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
    sdk.LoginError,
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


def surely_had_not_left(error: Exception) -> bool:
    """Whether the SDK raised an error before any part of its request was sent."""
    inner = getattr(error, "kwargs", {}).get("error")
    if inner is None:
        # No HTTP library's error inside: the SDK's class counts, except a proxy's, which may come from either side.
        return isinstance(error, sdk.ConnectTimeoutError | sdk.EndpointConnectionError)
    # urllib3's ProxyError wraps the actual error.
    inner = getattr(inner, "original_error", inner)
    return any(f"{kind.__module__}.{kind.__qualname__}" in _WHILE_CONNECTING for kind in type(inner).__mro__)


def of_no_library(error: Exception, handled: BaseException | None) -> Exception | None:
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
    return module.partition(".")[0] in _LIBRARIES
