"""The construct's grants, used by roles without other permissions: what they allow, and what conditions refuse."""

from collections.abc import Callable
from typing import Any

import boto3
from e2e.aws.checked import Checked, NotSeen, assumes, ends_of_parking, entity, is_refused

from ticketlock import LockClient

_CONDITIONS = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html"
_TRANSACTIONS = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html"
_STATES = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsstepfunctions.html"
_NOT_ENFORCED = "it enforces no role here, or no condition"
Role = Callable[[Checked], boto3.Session]
_SESSION = {"pk": {"S": "session#none"}, "sk": {"S": "/"}}


def _operator(checked: Checked) -> boto3.Session:
    return _enforced(checked, checked.acting_as("Operator"))


def _client(checked: Checked) -> boto3.Session:
    return _enforced(checked, checked.acting_as("Client"))


def _enforced(checked: Checked, session: boto3.Session) -> boto3.Session:
    """The session, if IAM refuses what was not granted; otherwise a permission would prove nothing."""
    dynamodb = checked.account.client_of(session, "dynamodb")
    if not is_refused(lambda: dynamodb.describe_table(TableName=checked.outputs["TableName"])):
        raise NotSeen("IAM is not enforced here: it allows what was not granted")
    return session


def _refuses(checked: Checked, role: Role, request: Callable[[Any], object]) -> tuple[bool, str]:
    dynamodb = checked.account.client_of(checked.once(role), "dynamodb")
    refused = is_refused(lambda: request(dynamodb))
    return refused, "refused" if refused else "ALLOWED"


@assumes(assumed="allowed: a Scan of named attributes", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def test_an_operator_lists_locks(checked: Checked) -> tuple[bool, str]:
    """List the locks as the command `ls` does."""
    session = checked.once(_operator)
    name = entity("listed")
    checked.ended(checked.sleep(name))
    found = [each.lock.entity for each in checked.table_of(session).list_locks()]
    return name in found, f"{len(found)} locks"


@assumes(assumed="refused: it names no attributes", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def test_an_operator_may_not_scan_everything(checked: Checked) -> tuple[bool, str]:
    """Scans without a projection."""
    table = checked.outputs["TableName"]
    return _refuses(checked, _operator, lambda dynamodb: dynamodb.scan(TableName=table))


@assumes(assumed="refused: the attribute is not on the list", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def test_an_operator_may_not_scan_for_task_tokens(checked: Checked) -> tuple[bool, str]:
    """Scans for the token of a parked waiter."""
    table = checked.outputs["TableName"]
    return _refuses(
        checked,
        _operator,
        lambda dynamodb: dynamodb.scan(
            TableName=table, ProjectionExpression="pk, wakeUpToken", Select="SPECIFIC_ATTRIBUTES"
        ),
    )


@assumes(assumed="refused, by its key", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def test_an_operator_may_not_read_a_session(checked: Checked) -> tuple[bool, str]:
    """Reads a session's key, which has no item."""
    table = checked.outputs["TableName"]
    return _refuses(checked, _operator, lambda dynamodb: dynamodb.get_item(TableName=table, Key=_SESSION))


@assumes(assumed="allowed", link=_TRANSACTIONS, emulator_lacks=_NOT_ENFORCED)
def test_a_client_takes_a_lock_writes_a_transaction_and_releases(checked: Checked) -> tuple[bool, str]:
    """Do what `grant_use` is for."""
    session, table = checked.once(_client), checked.outputs["TableName"]
    item = {"pk": {"S": entity("written")}, "sk": {"S": "-"}, "expiresAt": {"N": "1"}}
    locks = LockClient(table, client=checked.table_of(session).client, lease=20, record_wait=0)
    try:
        with locks.acquire(entity("client")) as lease:
            lease.transact_write([{"Put": {"TableName": table, "Item": item}}])
    finally:
        locks.close()
    return True, "took, wrote, released"


@assumes(assumed="refused: a client needs no Scan", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def test_a_client_may_not_scan(checked: Checked) -> tuple[bool, str]:
    """Scans as an operator may."""
    table = checked.outputs["TableName"]
    return _refuses(
        checked,
        _client,
        lambda dynamodb: dynamodb.scan(TableName=table, ProjectionExpression="pk", Select="SPECIFIC_ATTRIBUTES"),
    )


@assumes(assumed="refused, by its key", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def test_a_client_may_not_read_a_session(checked: Checked) -> tuple[bool, str]:
    """Reads a session's key, which has no item."""
    table = checked.outputs["TableName"]
    return _refuses(checked, _client, lambda dynamodb: dynamodb.get_item(TableName=table, Key=_SESSION))


@assumes(
    assumed="refused: of a session it may ask for wakeUpToken alone",
    link=_CONDITIONS,
    emulator_lacks=_NOT_ENFORCED,
)
def test_a_client_may_not_query_a_session_for_all_it_has(checked: Checked) -> tuple[bool, str]:
    """Queries a session without a projection."""
    table = checked.outputs["TableName"]
    return _refuses(
        checked,
        _client,
        lambda dynamodb: dynamodb.query(
            TableName=table, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": _SESSION["pk"]}
        ),
    )


@assumes(assumed="refused, though another of its keys is allowed", link=_TRANSACTIONS, emulator_lacks=_NOT_ENFORCED)
def test_a_client_may_not_write_a_session_in_a_transaction(checked: Checked) -> tuple[bool, str]:
    """Writes a lock's key and a session's, in one transaction whose condition holds of neither."""
    table = checked.outputs["TableName"]
    condition = {"TableName": table, "ConditionExpression": "attribute_exists(nothingHasThis)"}
    lock = {"pk": {"S": entity("unwritten")}, "sk": {"S": "default/"}}
    deletes = [{"Delete": {**condition, "Key": key}} for key in (lock, _SESSION)]

    def request(dynamodb: Any) -> object:
        try:
            return dynamodb.transact_write_items(TransactItems=deletes)
        except dynamodb.exceptions.TransactionCanceledException as error:
            return error  # its conditions were evaluated, so it was allowed

    return _refuses(checked, _client, request)


@assumes(
    assumed="its WaitForWakeUp succeeds: a client may answer by the machine's ARN",
    link=_STATES,
    emulator_lacks=_NOT_ENFORCED,
)
def test_a_clients_release_wakes_the_workflow_that_waits(checked: Checked) -> tuple[bool, str]:
    """Hold a lock as a client, let a workflow park behind it, and release."""
    session, name = checked.once(_client), entity("woken")
    locks = LockClient(
        checked.outputs["TableName"],
        client=checked.table_of(session).client,
        step_functions=checked.account.client_of(session, "stepfunctions"),
        lease=20,
        record_wait=0,
    )
    try:
        with locks.acquire(name):
            waiter = checked.sleep(name)
            checked.wait_until_parked(waiter)
    finally:
        locks.close()
    checked.ended(waiter)
    ends = ends_of_parking(checked.history(waiter))
    return ends[-1] == "TaskSucceeded", ", ".join(ends)
