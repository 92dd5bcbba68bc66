"""DynamoDB's transactions as units use them: what readers see, repeated tokens, conflicts, an index's price."""

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError
from e2e.aws.checked import Checked, NotSeen, assumes
from kit.units import dumped, some_account

from ticketlock.errors import RequestNotApplied
from ticketlock.units._records._rows import OPEN, row_key
from ticketlock.wire._sdk import TryAgain, meaning

_GUIDE = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide"
_ISOLATION = f"{_GUIDE}/transaction-apis.html#transaction-isolation"
_CONFLICTS = f"{_GUIDE}/transaction-apis.html#transaction-conflict-handling"
_INDEXES = f"{_GUIDE}/GSI.html#GSI.ThroughputConsiderations"
_TOKENS = "https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"
_ONE_AT_A_TIME = "it performs one request at a time"
# Items of a transaction: many, so that it takes long; few, so that a new table's capacity is enough.
_WIDE, _NARROW = 50, 10
_COMMITS = 40
_COMMITS_ON_AN_EMULATOR = 3
_REQUESTS = 80
_AT_ONCE = 4


# What readers see.


@dataclass(frozen=True, slots=True)
class _Reads:
    """What two readers saw while a unit after the other wrote the same number into all items.

    Attributes:
        commits: how many units there were.
        plain, by_units: the numbers of each read, each once; more than one of a read that saw half of a unit.
    """

    commits: int
    plain: Sequence[set[int]]
    by_units: Sequence[set[int]]


def _read(checked: Checked) -> _Reads:
    units, accounts = checked.units, checked.accounts
    commits = _COMMITS if checked.account.is_aws else _COMMITS_ON_AN_EMULATOR
    keys = [some_account() for _ in range(_WIDE)]
    asked = {accounts.name: {"Keys": [dumped(key) for key in keys], "ConsistentRead": True}}

    def write(number: int) -> None:
        with units.begin(engine="native") as unit:
            for key in keys:
                unit.put(accounts, {**key, "n": number})

    def plain() -> set[int]:
        items = checked.dynamodb.batch_get_item(RequestItems=asked)["Responses"][accounts.name]
        return {int(item["n"]["N"]) for item in items}

    def by_units() -> set[int]:
        items = units.get_all([(accounts, key) for key in keys])
        return {int(item["n"]) for item in items if item is not None}

    def write_all() -> None:
        for number in range(1, commits):
            write(number)

    write(0)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write_all)

        def read(read_all: Callable[[], set[int]]) -> list[set[int]]:
            found = [read_all()]
            while not writing.done():
                # A transactional read may conflict with one commit after the other.
                with suppress(RequestNotApplied):
                    found.append(read_all())
            return found

        reading = [pool.submit(read, each) for each in (plain, by_units)]
        writing.result()
        return _Reads(commits, *(each.result() for each in reading))


def _torn(reads: Sequence[set[int]], commits: int) -> tuple[int, str]:
    """How many reads saw half of a unit; and the same in words."""
    if len(set[int]().union(*reads)) < 2:
        raise NotSeen(f"{len(reads)} reads, all of one commit")
    torn = sum(len(each) > 1 for each in reads)
    return torn, f"{torn} of {len(reads)} reads of {_WIDE} items, beside {commits} commits"


@assumes(
    assumed="some of its reads see half of a transaction: it is why units read by TransactGetItems",
    link=_ISOLATION,
    emulator_lacks=_ONE_AT_A_TIME,
)
def test_a_plain_reader_sees_half_of_a_transaction(checked: Checked) -> tuple[bool, str]:
    """Read by BatchGetItem, strongly consistent, while units commit."""
    reads = checked.once(_read)
    torn, what = _torn(reads.plain, reads.commits)
    if not torn:
        raise NotSeen(what)
    return True, what


@assumes(assumed="none of its reads does", link=_ISOLATION, emulator_lacks=_ONE_AT_A_TIME)
def test_a_reader_by_units_never_sees_half_of_a_transaction(checked: Checked) -> tuple[bool, str]:
    """Read by `get_all` at the same time."""
    reads = checked.once(_read)
    torn, what = _torn(reads.by_units, reads.commits)
    return torn == 0, what


# Tokens.


def _count(checked: Checked, key: Mapping[str, Any]) -> int:
    return int(checked.got("AccountsTableName", key["id"]).get("n", 0))


def _add(checked: Checked, keys: Sequence[Mapping[str, Any]], number: int = 1, **more: Any) -> Any:
    """Add a number to each account, in one transaction."""
    change = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": {"N": str(number)}}}
    updates = [{"TableName": checked.accounts.name, "Key": dumped(key), **change} for key in keys]
    return checked.dynamodb.transact_write_items(TransactItems=[{"Update": each} for each in updates], **more)


def _told(error: ClientError) -> str:
    """The code of an error, and those of the reasons for which a transaction was cancelled."""
    response: Any = error.response
    reasons = {reason["Code"] for reason in response.get("CancellationReasons", [])} - {"None"}
    return " ".join([response["Error"]["Code"], *sorted(reasons)])


@assumes(assumed="it succeeds again, and is applied once, also after another write", link=_TOKENS)
def test_a_transaction_that_is_repeated_with_its_token_is_applied_once(checked: Checked) -> tuple[bool, str]:
    key = some_account()
    same: Any = {"ClientRequestToken": str(uuid.uuid4()), "ReturnConsumedCapacity": "TOTAL"}
    _add(checked, [key], **same)
    _add(checked, [key], 10)
    [capacity] = _add(checked, [key], **same)["ConsumedCapacity"]
    billed = [f"{name} {value:g}" for name, value in capacity.items() if name.endswith("Units")]
    count = _count(checked, key)
    return count == 11, f"1 + 10 = {count}; the repeated one was billed {', '.join(billed)}"


@assumes(assumed="refused with IdempotentParameterMismatchException, and not applied", link=_TOKENS)
def test_another_transaction_with_the_same_token_is_refused(checked: Checked) -> tuple[bool, str]:
    key, token = some_account(), str(uuid.uuid4())
    _add(checked, [key], ClientRequestToken=token)
    code = "not refused"
    try:
        _add(checked, [key], 10, ClientRequestToken=token)
    except ClientError as error:
        code = _told(error)
    count = _count(checked, key)
    return (code, count) == ("IdempotentParameterMismatchException", 1), f"{code}; the count is {count}"


@assumes(
    assumed="applied once; the others succeed, or fail with an error after which it is sent again",
    link=_TOKENS,
    emulator_lacks=_ONE_AT_A_TIME,
)
def test_copies_of_a_transaction_that_arrive_together_are_applied_once(checked: Checked) -> tuple[bool, str]:
    keys, token = [some_account() for _ in range(_WIDE)], str(uuid.uuid4())

    def send(_: int) -> ClientError | None:
        try:
            _add(checked, keys, ClientRequestToken=token)
        except ClientError as error:
            return error
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        errors = [error for error in pool.map(send, range(_AT_ONCE)) if error is not None]
    counts = {_count(checked, key) for key in keys}
    told = ", ".join(map(_told, errors)) or "no errors"
    return counts == {1} and all(isinstance(meaning(each), TryAgain) for each in errors), f"counts {counts}; {told}"


# Conflicts.


@dataclass(frozen=True, slots=True)
class _Rivals:
    """What happened to requests to the same items.

    Attributes:
        errors: of each operation.
        is_exact: whether the items count the requests that succeeded, and no other one.
    """

    errors: Mapping[str, Sequence[ClientError]]
    is_exact: bool


def _compete(checked: Checked) -> _Rivals:
    keys = [some_account() for _ in range(_NARROW)]
    places = [{"TableName": checked.accounts.name, "Key": dumped(key)} for key in keys]
    change = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}
    reads = [{"Get": place} for place in places]
    requests: Mapping[str, Callable[[], object]] = {
        "TransactWriteItems": lambda: _add(checked, keys),
        "UpdateItem": lambda: checked.dynamodb.update_item(**places[0], **change),
        "TransactGetItems": lambda: checked.dynamodb.transact_get_items(TransactItems=reads),
    }

    def send(operation: str) -> list[ClientError]:
        errors = []
        for _ in range(_REQUESTS):
            try:
                requests[operation]()
            except ClientError as error:
                errors.append(error)
        return errors

    # Two of the first one, which conflict with each other.
    sent = ["TransactWriteItems", *requests]
    errors: dict[str, list[ClientError]] = {operation: [] for operation in requests}
    with ThreadPoolExecutor(len(sent)) as pool:
        for operation, found in zip(sent, pool.map(send, sent), strict=True):
            errors[operation] += found
    by_transactions = 2 * _REQUESTS - len(errors["TransactWriteItems"])
    expected = [by_transactions] * _NARROW
    expected[0] += _REQUESTS - len(errors["UpdateItem"])
    return _Rivals(errors, [_count(checked, key) for key in keys] == expected)


def _is_sent_again(operation: str) -> Callable[..., None]:
    """The test that after its conflicts a request of this operation is sent again, and that none was applied."""

    @assumes(
        assumed="an error after which it is sent again, and certainly not applied",
        link=_CONFLICTS,
        emulator_lacks=_ONE_AT_A_TIME,
    )
    def observe(checked: Checked) -> tuple[bool, str]:
        rivals = checked.once(_compete)
        errors = rivals.errors[operation]
        if not errors:
            raise NotSeen("no request was refused")
        told = ", ".join(f"{name} {count} times" for name, count in Counter(map(_told, errors)).items())
        are_known = all(meaning(error) == TryAgain(perhaps_applied=False) for error in errors)
        return are_known and rivals.is_exact, told if rivals.is_exact else f"{told}; THE ITEMS COUNT OTHERWISE"

    return observe


test_a_transaction_that_conflicts_is_sent_again = _is_sent_again("TransactWriteItems")
test_a_plain_write_that_conflicts_with_a_transaction_is_sent_again = _is_sent_again("UpdateItem")
test_a_transactional_read_that_conflicts_is_sent_again = _is_sent_again("TransactGetItems")


# The price of an index.


@assumes(
    assumed="put and delete take 1 unit in the index each, as outside of transactions, and 2 in the table",
    link=_INDEXES,
    emulator_lacks="it bills by the rules that its authors have read",
)
def test_a_transaction_pays_once_for_the_index_of_open_units(checked: Checked) -> tuple[bool, str]:
    """Put a row into the units table that is in its index, and delete it, with and without a transaction."""
    table, dynamodb = checked.outputs["UnitsTableName"], checked.dynamodb
    name, asks = f"check-{uuid.uuid4().hex}", {"ReturnConsumedCapacity": "INDEXES"}
    key = row_key(name, "-")
    put = {"TableName": table, "Item": {**key, OPEN: {"S": name}}}
    delete = {"TableName": table, "Key": key}
    billed = [
        *dynamodb.transact_write_items(TransactItems=[{"Put": put}], **asks)["ConsumedCapacity"],
        *dynamodb.transact_write_items(TransactItems=[{"Delete": delete}], **asks)["ConsumedCapacity"],
        dynamodb.put_item(**put, **asks)["ConsumedCapacity"],
        dynamodb.delete_item(**delete, **asks)["ConsumedCapacity"],
    ]
    indexes = [each.get("GlobalSecondaryIndexes", {}).get(OPEN, {}).get("CapacityUnits", 0) for each in billed]
    tables = [each["CapacityUnits"] - index for each, index in zip(billed, indexes, strict=True)]
    pairs = [f"{of_table:g} + {of_index:g}" for of_table, of_index in zip(tables, indexes, strict=True)]
    what = "put {}, delete {} in transactions; put {}, delete {} alone (table + index)".format(*pairs)
    return (tables, indexes) == ([2, 2, 1, 1], [1, 1, 1, 1]), what
