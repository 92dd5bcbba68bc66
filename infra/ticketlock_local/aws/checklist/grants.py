"""The construct's grants, used by roles without other permissions: what they allow, and what conditions refuse."""

from collections.abc import Callable
from typing import Any

import boto3

from ticketlock import LockClient
from ticketlock_local.aws.checking import check
from ticketlock_local.aws.deployed import Deployed, ends_of_parking, entity, is_refused
from ticketlock_local.aws.seen import NotSeen

_CONDITIONS = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html"
_TRANSACTIONS = "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html"
_STATES = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsstepfunctions.html"
_NOT_ENFORCED = "it enforces no role here, or no condition"
_SESSION = {"pk": {"S": "session#none"}, "sk": {"S": "/"}}


def _operator(deployed: Deployed) -> boto3.Session:
    return _enforced(deployed, deployed.acting_as("Operator"))


def _client(deployed: Deployed) -> boto3.Session:
    return _enforced(deployed, deployed.acting_as("Client"))


def _enforced(deployed: Deployed, session: boto3.Session) -> boto3.Session:
    """The session, if IAM refuses what was not granted; otherwise a permission would prove nothing."""
    dynamodb = session.client("dynamodb")
    if not is_refused(lambda: dynamodb.describe_table(TableName=deployed.outputs["TableName"])):
        raise NotSeen("IAM is not enforced here: it allows what was not granted")
    return session


def _refuses(session: boto3.Session, request: Callable[[Any], object]) -> tuple[bool, str]:
    dynamodb = session.client("dynamodb")
    refused = is_refused(lambda: request(dynamodb))
    return refused, "refused" if refused else "ALLOWED"


@check(assumed="allowed: a Scan of named attributes", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def an_operator_lists_locks(deployed: Deployed) -> tuple[bool, str]:
    """List the locks as the command `ls` does."""
    session = deployed.once(_operator)
    name = entity("listed")
    deployed.ended(deployed.sleep(name))
    found = [each.lock.entity for each in deployed.table_of(session).list_locks()]
    return name in found, f"{len(found)} locks"


@check(assumed="refused: it names no attributes", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def an_operator_may_not_scan_everything(deployed: Deployed) -> tuple[bool, str]:
    """Scans without a projection."""
    table = deployed.outputs["TableName"]
    return _refuses(deployed.once(_operator), lambda dynamodb: dynamodb.scan(TableName=table))


@check(assumed="refused: the attribute is not on the list", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def an_operator_may_not_scan_for_task_tokens(deployed: Deployed) -> tuple[bool, str]:
    """Scans for the token of a parked waiter."""
    table = deployed.outputs["TableName"]
    return _refuses(
        deployed.once(_operator),
        lambda dynamodb: dynamodb.scan(
            TableName=table, ProjectionExpression="pk, wakeUpToken", Select="SPECIFIC_ATTRIBUTES"
        ),
    )


@check(assumed="refused, by its key", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def an_operator_may_not_read_a_session(deployed: Deployed) -> tuple[bool, str]:
    """Reads a session's key, which has no item."""
    table = deployed.outputs["TableName"]
    return _refuses(deployed.once(_operator), lambda dynamodb: dynamodb.get_item(TableName=table, Key=_SESSION))


@check(assumed="allowed", link=_TRANSACTIONS, emulator_lacks=_NOT_ENFORCED)
def a_client_takes_a_lock_writes_a_transaction_and_releases(deployed: Deployed) -> tuple[bool, str]:
    """Do what `grant_use` is for."""
    session, table = deployed.once(_client), deployed.outputs["TableName"]
    item = {"pk": {"S": entity("written")}, "sk": {"S": "-"}, "expiresAt": {"N": "1"}}
    locks = LockClient(table, client=deployed.table_of(session).client, lease=20, record_wait=0)
    try:
        with locks.acquire(entity("client")) as lease:
            lease.transact_write([{"Put": {"TableName": table, "Item": item}}])
    finally:
        locks.close()
    return True, "took, wrote, released"


@check(assumed="refused: a client needs no Scan", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def a_client_may_not_scan(deployed: Deployed) -> tuple[bool, str]:
    """Scans as an operator may."""
    table = deployed.outputs["TableName"]
    return _refuses(
        deployed.once(_client),
        lambda dynamodb: dynamodb.scan(TableName=table, ProjectionExpression="pk", Select="SPECIFIC_ATTRIBUTES"),
    )


@check(assumed="refused, by its key", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def a_client_may_not_read_a_session(deployed: Deployed) -> tuple[bool, str]:
    """Reads a session's key, which has no item."""
    table = deployed.outputs["TableName"]
    return _refuses(deployed.once(_client), lambda dynamodb: dynamodb.get_item(TableName=table, Key=_SESSION))


@check(
    assumed="refused: of a session it may ask for wakeUpToken alone",
    link=_CONDITIONS,
    emulator_lacks=_NOT_ENFORCED,
)
def a_client_may_not_query_a_session_for_all_it_has(deployed: Deployed) -> tuple[bool, str]:
    """Queries a session without a projection."""
    table = deployed.outputs["TableName"]
    return _refuses(
        deployed.once(_client),
        lambda dynamodb: dynamodb.query(
            TableName=table, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": _SESSION["pk"]}
        ),
    )


@check(assumed="refused, though another of its keys is allowed", link=_TRANSACTIONS, emulator_lacks=_NOT_ENFORCED)
def a_client_may_not_write_a_session_in_a_transaction(deployed: Deployed) -> tuple[bool, str]:
    """Writes a lock's key and a session's, in one transaction whose condition holds of neither."""
    table = deployed.outputs["TableName"]
    condition = {"TableName": table, "ConditionExpression": "attribute_exists(nothingHasThis)"}
    lock = {"pk": {"S": entity("unwritten")}, "sk": {"S": "default/"}}
    deletes = [{"Delete": {**condition, "Key": key}} for key in (lock, _SESSION)]

    def request(dynamodb: Any) -> object:
        try:
            return dynamodb.transact_write_items(TransactItems=deletes)
        except dynamodb.exceptions.TransactionCanceledException as error:
            return error  # its conditions were evaluated, so it was allowed

    return _refuses(deployed.once(_client), request)


@check(
    assumed="its WaitForWakeUp succeeds: a client may answer by the machine's ARN",
    link=_STATES,
    emulator_lacks=_NOT_ENFORCED,
)
def a_clients_release_wakes_the_workflow_that_waits(deployed: Deployed) -> tuple[bool, str]:
    """Hold a lock as a client, let a workflow park behind it, and release."""
    session, name = deployed.once(_client), entity("woken")
    locks = LockClient(
        deployed.outputs["TableName"],
        client=deployed.table_of(session).client,
        step_functions=session.client("stepfunctions"),
        lease=20,
        record_wait=0,
    )
    try:
        with locks.acquire(name):
            waiter = deployed.sleep(name)
            deployed.until_parked(waiter)
    finally:
        locks.close()
    deployed.ended(waiter)
    ends = ends_of_parking(deployed.history(waiter))
    return ends[-1] == "TaskSucceeded", ", ".join(ends)
