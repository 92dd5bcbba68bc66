"""What an error of the SDK, or of a library beneath it, says about the request: refused, not applied, unknown, or not
worth a retry.
"""

import inspect
import socket
import string
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import ModuleType
from typing import Any

import aiohttp.client_exceptions
import aiohttp.http_exceptions
import boto3
import botocore.exceptions
import pytest
import urllib3.exceptions
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
    WaiterError,
)
from botocore.parsers import ResponseParserError
from urllib3.util import Retry

from ticketlock import (
    Claim,
    InvalidLockRequest,
    LockName,
    LockTable,
    OutcomeUnknown,
    RequestNotApplied,
    TableError,
    TableNotFound,
    TableRefused,
    client_config,
)
from ticketlock.locks._outcomes import check_lease
from ticketlock.locks._writes import renew
from ticketlock.wire._actions import Refusal
from ticketlock.wire._item_requests import Get
from ticketlock.wire._sdk import TryAgain, checked_client, date_ms, error_of_signal_handler, make_client, meaning
from ticketlock.wire._step_functions import Closing, Describing
from ticketlock.wire._table_time import Moment

pytestmark = pytest.mark.shows("lost requests")

URL = "https://dynamodb.us-east-1.amazonaws.com"
ITEM = {"pk": {"S": "order-42"}}


def answer(code: str, status: int = 400, **more: Any) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(response, "UpdateItem")


def cancelled(*reasons: dict[str, Any]) -> ClientError:
    return answer("TransactionCanceledException", CancellationReasons=list(reasons))


REFUSED: dict[str, Any] = {"Code": "ConditionalCheckFailed", "Item": ITEM}
BY_NOTHING: dict[str, Any] = {"Code": "ConditionalCheckFailed"}
NOT_THIS_ONE: dict[str, Any] = {"Code": "None"}
TRANSIENT = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]


@pytest.mark.parametrize(
    ("error", "refused", "items"),
    [
        (answer("ConditionalCheckFailedException", Item=ITEM), (True,), (ITEM,)),
        (answer("ConditionalCheckFailedException"), (True,), (None,)),
        (cancelled(NOT_THIS_ONE, REFUSED), (False, True), (None, ITEM)),
        (cancelled(BY_NOTHING, REFUSED), (True, True), (None, ITEM)),
    ],
)
def test_a_failed_condition_is_a_refusal_of_these_writes_by_the_items_that_stood_there(
    error: ClientError, refused: tuple[bool, ...], items: tuple[Any, ...]
) -> None:
    assert meaning(error) == Refusal(refused, items)


@pytest.mark.parametrize("others", [[NOT_THIS_ONE], [REFUSED]], ids=["alone", "beside a refusal"])
@pytest.mark.parametrize("reason", TRANSIENT)
def test_a_transaction_that_was_cancelled_for_a_transient_reason_was_not_applied_and_says_nothing_of_conditions(
    reason: str, others: list[dict[str, Any]]
) -> None:
    """Another transaction may be half applied: one item is changed, and the other is still reserved."""
    assert meaning(cancelled({"Code": reason}, *others)) == TryAgain(perhaps_applied=False)
    assert meaning(cancelled(*others, {"Code": reason})) == TryAgain(perhaps_applied=False)


@pytest.mark.parametrize("reason", ["ValidationError", "ItemCollectionSizeLimitExceeded"])
def test_a_transaction_cancelled_for_good_is_refused_with_its_reason_and_the_place_of_the_item(reason: str) -> None:
    found = meaning(cancelled(NOT_THIS_ONE, {"Code": reason, "Message": "too much"}, {"Code": reason}))
    assert isinstance(found, TableRefused)
    assert str(found) == f"the transaction was cancelled: {reason} at item 2 of 3 (too much); {reason} at item 3 of 3"


@pytest.mark.parametrize(
    "code",
    [
        "KmsThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
    ],
)
def test_throttled_and_conflicting_requests_were_not_applied(code: str) -> None:
    assert meaning(answer(code)) == TryAgain(perhaps_applied=False)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InternalServerError", 500),
        ("InternalFailure", 500),
        ("ServiceUnavailable", 503),
        ("502", 502),
        ("", 504),
        ("TransactionInProgressException", 400),
    ],
)
def test_a_failure_of_the_service_and_a_transaction_in_progress_may_have_been_applied(code: str, status: int) -> None:
    assert meaning(answer(code, status)) == TryAgain(perhaps_applied=True)


def test_a_missing_table_has_a_name_of_its_own() -> None:
    assert isinstance(meaning(answer("ResourceNotFoundException")), TableNotFound)


@pytest.mark.parametrize(
    "code",
    [
        "AccessDeniedException",
        "ExpiredTokenException",
        "InvalidSignatureException",
        "UnrecognizedClientException",
        "ValidationException",
    ],
)
def test_a_refusal_by_the_service_has_its_code_and_message(code: str) -> None:
    found = meaning(answer(code))
    assert isinstance(found, TableRefused)
    assert str(found) == f"{code}: why"


@pytest.mark.parametrize(
    "error", [NoCredentialsError(), NoRegionError(), PartialCredentialsError(provider="env", cred_var="secret")]
)
def test_an_error_for_missing_credentials_or_region_says_to_configure_them(error: BotoCoreError) -> None:
    found = meaning(error)
    assert isinstance(found, TableRefused)
    assert ": configure the AWS credentials and Region of this process (AWS_PROFILE; " in str(found)
    assert ".:" not in str(found)


def test_any_other_error_of_the_sdk_is_a_table_error_with_its_text() -> None:
    found = meaning(ParamValidationError(report="no such parameter"))
    assert isinstance(found, TableError)
    assert "no such parameter" in str(found)


def client(config: Config) -> Any:
    return boto3.client("dynamodb", region_name="us-east-1", config=config)


ONE_ATTEMPT: Any = {"total_max_attempts": 1}


def test_ticketlock_accepts_the_client_that_it_creates() -> None:
    made = make_client(region_name="us-east-1")
    checked_client(made)
    check_lease(8_000, made)
    with pytest.raises(InvalidLockRequest, match=r"four read time-outs of the client \(2.0 s each\)"):
        check_lease(7_999, made)


@pytest.mark.parametrize("retries", [ONE_ATTEMPT, {"max_attempts": 0}])
def test_a_client_with_one_attempt_and_short_time_outs_is_accepted(retries: Any) -> None:
    checked_client(client(Config(retries=retries, connect_timeout=5, read_timeout=5)))


@pytest.mark.parametrize("retries", [None, {"max_attempts": 3}, {"total_max_attempts": 2}, {"mode": "standard"}])
def test_a_client_that_retries_requests_is_refused_with_the_setting(retries: Any) -> None:
    repeating = client(Config(retries=retries, connect_timeout=1, read_timeout=1))
    with pytest.raises(InvalidLockRequest, match=r"client's retries is .*retries=\{'total_max_attempts': 1\}"):
        checked_client(repeating)


@pytest.mark.parametrize("setting", ["connect_timeout", "read_timeout"])
@pytest.mark.parametrize("value", [None, 5.5, 60])
def test_a_client_that_may_hang_for_long_is_refused_with_the_setting(setting: str, value: float | None) -> None:
    timeouts: dict[str, Any] = {"connect_timeout": 1, "read_timeout": 1, setting: value}
    hanging = client(Config(retries=ONE_ATTEMPT, **timeouts))
    with pytest.raises(InvalidLockRequest, match=rf"client's {setting} is .*Config\({setting}=at most 5\)"):
        checked_client(hanging)


def test_a_client_with_the_ready_configuration_is_accepted_and_its_other_settings_are_the_caller_s() -> None:
    made = client(client_config(read_timeout=1, parameter_validation=True))
    checked_client(made)
    config: Any = made.meta.config
    assert (config.connect_timeout, config.read_timeout, config.parameter_validation) == (1, 1, True)


def test_all_wrong_settings_of_a_client_are_told_at_once() -> None:
    with pytest.raises(InvalidLockRequest) as refused:
        checked_client(client(Config()))
    assert [each.split(" is ")[0] for each in refused.value.problems] == [
        "client's retries",
        "client's connect_timeout",
        "client's read_timeout",
    ]
    assert all(each in str(refused.value) for each in refused.value.problems)


def test_the_date_of_a_reply_is_read_in_whole_seconds() -> None:
    reply = {"ResponseMetadata": {"HTTPHeaders": {"date": "Thu, 01 Jan 1970 00:01:40 GMT"}}}
    assert date_ms(reply) == 100_000


@pytest.mark.parametrize("reply", [{}, {"ResponseMetadata": {}}, {"ResponseMetadata": {"HTTPHeaders": {}}}])
def test_a_reply_without_a_date_says_nothing_of_the_time(reply: Any) -> None:
    assert date_ms(reply) is None


class Answers(BaseHTTPRequestHandler):
    """Answers each request with this many bytes of a reply, and closes the connection."""

    status: int
    announced: int
    sent: bytes

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", str(self.announced))
        self.end_headers()
        self.wfile.write(self.sent)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def table_that_answers(status: int, sent: bytes, announced: int) -> Iterator[LockTable]:
    handler = type("AnswersSo", (Answers,), {"status": status, "sent": sent, "announced": announced})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            there: Any = {
                "region_name": "us-east-1",
                "endpoint_url": f"http://127.0.0.1:{server.server_port}",
                "aws_access_key_id": "test",
                "aws_secret_access_key": "test",
            }
            step_functions = boto3.client("stepfunctions", config=Config(retries=ONE_ATTEMPT), **there)
            yield LockTable("locks", client=make_client(**there), step_functions=step_functions, give_up_after_ms=100)
        finally:
            server.shutdown()
            serving.join()


# The SDK returns a reply that broke off: as an empty one, or as an error without a name.
BROKEN_OFF = [(200, b"{"), (400, b""), (400, b'{"__type": "ConditionalCheckFailedExc')]


@pytest.fixture(params=BROKEN_OFF, ids=lambda reply: f"{reply[0]}, {len(reply[1])} bytes")
def broken_off(request: pytest.FixtureRequest) -> Iterator[LockTable]:
    """A table whose every reply breaks off."""
    status, sent = request.param
    with table_that_answers(status, sent, announced=100) as table:
        yield table


def test_a_write_whose_reply_broke_off_is_unknown(broken_off: LockTable) -> None:
    renewal = renew(Claim(LockName("order-42"), "me", 60_000), 7, Moment(0, 0, 0, 0))
    with pytest.raises(OutcomeUnknown):
        broken_off.perform(renewal)


def test_a_read_whose_reply_broke_off_is_retried_and_given_up_by_name(broken_off: LockTable) -> None:
    with pytest.raises(RequestNotApplied):
        broken_off.inspect(LockName("order-42"))


def test_a_whole_reply_that_tells_only_read_units_means_that_there_is_no_item() -> None:
    body = b'{"ConsumedCapacity": {"CapacityUnits": 1, "TableName": "units"}}'
    with table_that_answers(200, body, announced=len(body)) as table:
        reply = table.perform(Get("units", {"unit": {"S": "a"}}, asks_units=True))
    assert (reply.item, reply.units) == (None, 1)


@pytest.mark.parametrize("request_of", [Closing, Describing])
def test_a_description_of_an_execution_that_broke_off_is_retried_and_given_up_by_name(
    broken_off: LockTable, request_of: type[Closing | Describing]
) -> None:
    request = request_of("arn:aws:states:us-east-1:123456789012:execution:child:name")
    with pytest.raises(RequestNotApplied):
        broken_off.perform(request)


@pytest.mark.parametrize("body", [b"", b'{"message": "Forbidden"}', b"<html>Forbidden</html>"])
def test_a_complete_answer_of_a_proxy_is_not_retried(body: bytes) -> None:
    with table_that_answers(403, body, announced=len(body)) as table, pytest.raises(TableRefused, match="403"):
        table.inspect(LockName("order-42"))


# Every exception of the libraries between a client and its table: what may have happened before it was raised. The
# sources say where it is raised. Those that are not named here come at any time, or none of our requests meets them:
# their request may have been applied.


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BEFORE_IT_LEFT = {
    # While a connection is made: no socket is connected yet.
    "urllib3": names("ConnectTimeoutError NameResolutionError NewConnectionError"),
    # Raised only by connectors, and by code that waits for them. A reset is a ClientOSError whenever it comes.
    "aiohttp": names("""
        ClientConnectorCertificateError ClientConnectorDNSError ClientConnectorError ClientConnectorSSLError
        ClientHttpProxyError ClientProxyConnectionError ClientSSLError ConnectionTimeoutError UnixClientConnectorError
    """),
    # Without another library's error inside.
    "botocore": names("ConnectTimeoutError EndpointConnectionError"),
}
# The SDK's own errors whose request was never made: a retry would not help.
NEVER_MADE = names("""
    BaseEndpointResolverError AliasConflictParameterError ConfigNotFound ConfigParseError CredentialRetrievalError
    EndpointProviderError EndpointResolutionError EndpointVariantError InfiniteLoopConfigError InvalidConfigError
    InvalidEndpointConfigurationError InvalidEndpointDiscoveryConfigurationError InvalidHostLabelError
    InvalidRegionError LoginAuthorizationCodeError LoginError LoginInsufficientPermissions LoginRefreshRequired
    LoginTokenLoadError MetadataRetrievalError MissingDependencyException MissingParametersError NoAuthTokenError
    NoCredentialsError NoRegionError ParamValidationError PartialCredentialsError ProfileNotFound RangeError
    RefreshWithMFAUnsupportedError SSOError SSOTokenLoadError StubAssertionError StubResponseError
    TokenRetrievalError UnStubbedResponseError UnauthorizedSSOTokenError UnknownCredentialError
    UnknownEndpointError UnknownEndpointResolutionBuiltInName UnknownFIPSEndpointError UnknownKeyError
    UnknownParameterError UnknownSignatureVersionError UnsupportedSignatureVersionError ValidationError
""")
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


KINDS = {
    "urllib3": classes(Exception, urllib3.exceptions),
    "aiohttp": classes(Exception, aiohttp.client_exceptions, aiohttp.http_exceptions),
    "botocore": classes(BotoCoreError, botocore.exceptions),
}


def test_the_libraries_have_the_exceptions_that_are_named() -> None:
    assert all(BEFORE_IT_LEFT[library] <= kinds.keys() for library, kinds in KINDS.items())
    assert KINDS["botocore"].keys() >= NEVER_MADE


def of(*libraries: str) -> list[Any]:
    """Their exceptions, and whether the request may have been applied."""
    return [
        pytest.param(kind, name not in BEFORE_IT_LEFT[library], id=f"{library}, {name}")
        for library in libraries
        for name, kind in KINDS[library].items()
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
    ("inner", "perhaps_applied"),
    [
        *of("urllib3", "aiohttp"),
        (socket.gaierror, False),
        *((kind, True) for kind in (ConnectionResetError, OSError, RuntimeError, TimeoutError, ValueError)),
    ],
)
def test_the_wrapped_error_decides_whether_the_request_may_have_been_applied(
    outer: type[BotoCoreError], inner: type[BaseException], perhaps_applied: bool
) -> None:
    assert meaning(around(outer, inner.__new__(inner))) == TryAgain(perhaps_applied)


@pytest.mark.parametrize(("inner", "perhaps_applied"), of("urllib3"))
def test_behind_a_proxy_the_error_that_the_proxys_error_wraps_decides(
    inner: type[Exception], perhaps_applied: bool
) -> None:
    """urllib3 raises one for anything that happens on a connection that it has closed by then."""
    wrapping = urllib3.exceptions.ProxyError("Unable to connect to proxy", inner.__new__(inner))
    assert meaning(around(ProxyConnectionError, wrapping)) == TryAgain(perhaps_applied)


@pytest.mark.parametrize(("kind", "perhaps_applied"), of("botocore"))
def test_an_error_of_the_sdk_itself_says_whether_its_request_was_made(
    kind: type[BotoCoreError], perhaps_applied: bool
) -> None:
    found = meaning(around(kind, None))
    if kind.__name__ in NEVER_MADE:
        assert isinstance(found, TableRefused)
    else:
        assert found == TryAgain(perhaps_applied)


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


def test_an_error_of_sockets_that_replace_pythons_own_is_no_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of gevent, eventlet and PySocks."""

    class Socket(socket.socket):
        __module__ = "greenlets._socket"

    theirs: dict[str, Any] = {"__name__": "greenlets._hub"}
    exec("def connect():\n    raise ConnectionRefusedError", theirs)
    raised = caught_by_a_library(theirs["connect"])
    assert error_of_signal_handler(raised, None) is raised
    monkeypatch.setattr(socket, "socket", Socket)
    assert error_of_signal_handler(raised, None) is None


def test_an_error_that_was_caught_before_the_request_is_not_mistaken_for_a_signal_handlers() -> None:
    """As when a hook for errors of threads uses a lock."""

    def work() -> None:
        raise ValueError

    before = caught_by_a_library(work)
    network = caught_by_a_library(lambda: socket.create_connection(("127.0.0.1", 1)))
    network.__context__ = before
    assert error_of_signal_handler(network, before) is None
