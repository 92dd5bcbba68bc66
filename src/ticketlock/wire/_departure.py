"""Which errors of the SDK surely came before a request left this machine.

The SDK's own class does not tell. botocore makes a ProxyConnectionError of a connection that breaks behind a proxy
after the request has passed it, because urllib3 has closed it by then; aiobotocore makes an EndpointConnectionError of
a connection that is reset whenever it is. What tells is the error of the HTTP library inside: some classes are raised
only while a connection is made.
"""

import sys
import traceback

from botocore import exceptions as sdk

WITHOUT_CREDENTIALS = (sdk.NoCredentialsError, sdk.PartialCredentialsError, sdk.NoRegionError)
"""The process lacks what a request is signed with."""

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
"""Raised where a request is made and signed, or its credentials are got; to repeat it would not help."""

_WHILE_CONNECTING = frozenset(
    {
        "socket.gaierror",
        # NewConnectionError and NameResolutionError are such, too. Not ProxyError: what it wraps tells.
        "urllib3.exceptions.ConnectTimeoutError",
        # Of DNS, of a proxy, of TLS, too. Not its base ClientOSError, which a reset is at any time.
        "aiohttp.client_exceptions.ClientConnectorError",
        "aiohttp.client_exceptions.ConnectionTimeoutError",
        # The proxy's answer to CONNECT.
        "aiohttp.client_exceptions.ClientHttpProxyError",
    }
)
"""By name, with whatever derives from them: aiohttp need not be installed."""

_LIBRARIES = frozenset({"awscrt", "boto3", "botocore", "certifi", "dateutil", "idna", "urllib3"}) | (
    sys.stdlib_module_names - {"__main__"}
)


def surely_had_not_left(error: Exception) -> bool:
    """Whether an error of the SDK was raised before its request, or any part of it, was sent."""
    inner = getattr(error, "kwargs", {}).get("error")
    if inner is None:
        # Of no HTTP library: then its own word counts, but for a proxy's, which may be about either side.
        return isinstance(error, sdk.ConnectTimeoutError | sdk.EndpointConnectionError)
    # urllib3's ProxyError has what happened inside.
    inner = getattr(inner, "original_error", inner)
    return any(f"{kind.__module__}.{kind.__qualname__}" in _WHILE_CONNECTING for kind in type(inner).__mro__)


def of_no_library(error: Exception, handled: BaseException | None) -> Exception | None:
    """What a signal handler has raised in the middle of a request, and the SDK took for an error of the network.

    Its class does not tell: ``TimeoutError`` is what many raise on SIGALRM. It was raised by code of no library, and
    caught by one. The innermost such is it: urllib3 wraps what it takes for the network's, and hands the traceback on.

    Args:
        error: what the SDK has raised.
        handled: what was being handled when the request began: it has nothing to do with it.
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
