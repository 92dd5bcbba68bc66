"""The construct's grants, used by roles without other permissions: what they allow, and what conditions refuse."""

from collections.abc import Callable
from typing import Any

import boto3
from e2e.aws.checked import Checked, NotSeen, assumes, ends_of_parking, entity, is_refused

from ticketlock import LockClient
from ticketlock.units import Units

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


def _unit_runner(checked: Checked) -> boto3.Session:
    return _enforced(checked, checked.acting_as("Units"))


def _enforced(checked: Checked, session: boto3.Session) -> boto3.Session:
    """The session, if IAM refuses what was not granted; otherwise a permission would prove nothing."""
    dynamodb = checked.account.client_of(session, "dynamodb")
    if not is_refused(lambda: dynamodb.describe_table(TableName=checked.outputs["TableName"])):
        raise NotSeen("IAM is not enforced here: it allows what was not granted")
    return session


def _refused(
    what: str, role: Role, request: Callable[[Any, str], object], link: str = _CONDITIONS
) -> Callable[..., None]:
    """The test that IAM refuses a request of a role to the table of this name."""

    @assumes(assumed=f"refused{what}", link=link, emulator_lacks=_NOT_ENFORCED)
    def observe(checked: Checked) -> tuple[bool, str]:
        dynamodb = checked.account.client_of(checked.once(role), "dynamodb")
        refused = is_refused(lambda: request(dynamodb, checked.outputs["TableName"]))
        return refused, "refused" if refused else "ALLOWED"

    return observe


@assumes(assumed="allowed: a Scan of named attributes", link=_CONDITIONS, emulator_lacks=_NOT_ENFORCED)
def test_an_operator_lists_locks(checked: Checked) -> tuple[bool, str]:
    """List the locks as the command `ls` does."""
    session = checked.once(_operator)
    name = entity("listed")
    checked.ended(checked.sleep(name))
    found = [each.lock.entity for each in checked.table_of(session).list_locks()]
    return name in found, f"{len(found)} locks"


test_an_operator_may_not_scan_everything = _refused(
    ": it names no attributes", _operator, lambda dynamodb, table: dynamodb.scan(TableName=table)
)
test_an_operator_may_not_scan_for_task_tokens = _refused(
    ": the attribute is not on the list",
    _operator,
    lambda dynamodb, table: dynamodb.scan(
        TableName=table, ProjectionExpression="pk, wakeUpToken", Select="SPECIFIC_ATTRIBUTES"
    ),
)
# A key of a session that has no item.
test_an_operator_may_not_read_a_session = _refused(
    ", by its key", _operator, lambda dynamodb, table: dynamodb.get_item(TableName=table, Key=_SESSION)
)


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


def _write_a_session_in_a_transaction(dynamodb: Any, table: str) -> object:
    """Writes a lock's key and a session's, in one transaction whose condition holds of neither."""
    condition = {"TableName": table, "ConditionExpression": "attribute_exists(nothingHasThis)"}
    lock = {"pk": {"S": entity("unwritten")}, "sk": {"S": "default/"}}
    try:
        return dynamodb.transact_write_items(
            TransactItems=[{"Delete": {**condition, "Key": key}} for key in (lock, _SESSION)]
        )
    except dynamodb.exceptions.TransactionCanceledException as error:
        return error  # its conditions were evaluated, so it was allowed


test_a_client_may_not_scan = _refused(
    ": a client needs no Scan",
    _client,
    lambda dynamodb, table: dynamodb.scan(TableName=table, ProjectionExpression="pk", Select="SPECIFIC_ATTRIBUTES"),
)
test_a_client_may_not_read_a_session = _refused(
    ", by its key", _client, lambda dynamodb, table: dynamodb.get_item(TableName=table, Key=_SESSION)
)
test_a_client_may_not_query_a_session_for_all_it_has = _refused(
    ": of a session it may ask for wakeUpToken alone",
    _client,
    lambda dynamodb, table: dynamodb.query(
        TableName=table, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": _SESSION["pk"]}
    ),
)
test_a_client_may_not_write_a_session_in_a_transaction = _refused(
    ", though another of its keys is allowed", _client, _write_a_session_in_a_transaction, _TRANSACTIONS
)


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


@assumes(assumed="`check_access` finds nothing that it lacks", link=_TRANSACTIONS, emulator_lacks=_NOT_ENFORCED)
def test_a_role_with_the_grant_of_units_may_do_all_that_units_need(checked: Checked) -> tuple[bool, str]:
    """Try each permission, with a role that has only `grant_units`."""
    session = checked.once(_unit_runner)
    units = Units(checked.outputs["UnitsTableName"], client=checked.table_of(session).client)
    lacks = units.check_access([units.table(checked.accounts.name)])
    return not lacks, f"lacks {', '.join(map(str, lacks)) or 'nothing'}"
