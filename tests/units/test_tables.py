"""Tables as units know them: each is one, by its name or its ARN, and is never the units table."""

import pytest
from kit.units import THREADS_ONLY, Books, Key, Party, dumped, new_version

from ticketlock import InvalidUnitRequest, ItemTooLarge
from ticketlock._expressions._schemas import Index, KeyAttribute, Schema
from ticketlock._expressions._values import MAX_ITEM_BYTES, size_of
from ticketlock.units import Units, UnitTable
from ticketlock.units._work import VERSION_BYTES

WAYS = pytest.mark.parametrize("way", ["native", "marked"])


def arn_of(books: Books, use: str) -> str:
    arn: str = books.plain_client.describe_table(TableName=books.tables[use])["Table"]["TableArn"]
    return arn


def test_a_table_is_the_same_by_its_name_and_by_its_arn(books: Books, ann: Party) -> None:
    by_arn: UnitTable = ann.units.table(arn_of(books, "accounts"))
    assert by_arn is ann.accounts
    assert by_arn.name == books.tables["accounts"]


@WAYS
def test_statements_by_its_name_and_by_its_arn_are_about_one_item(
    books: Books, ann: Party, account: Key, way: str
) -> None:
    by_arn = ann.units.table(arn_of(books, "accounts"))
    with ann.begin(engine=way) as unit:
        unit.update(ann.accounts, account, "SET one = :n", {":n": 1})
        unit.update(by_arn, account, "SET another = :n", {":n": 2})
    assert books.item("accounts", account) == {**account, "balance": 100, "one": 1, "another": 2}


@THREADS_ONLY
def test_so_are_those_of_the_low_level_api(books: Books, ann: Party, account: Key) -> None:
    one = {"UpdateExpression": "SET balance = balance + :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}
    with ann.begin() as unit:
        for name in (books.tables["accounts"], arn_of(books, "accounts")):
            unit.client.update_item(TableName=name, Key=dumped(account), **one)
    assert books.balance(account) == 102


def test_an_arn_of_another_account_or_region_is_refused(books: Books, ann: Party) -> None:
    parts = arn_of(books, "accounts").split(":")
    for changed, other in ((3, "eu-north-9"), (4, "999999999999")):
        arn = ":".join([*parts[:changed], other, *parts[changed + 1 :]])
        with pytest.raises(InvalidUnitRequest, match="the client's own account and Region") as refused:
            ann.units.table(arn)
        assert refused.value.field == "name"


def test_the_units_own_table_is_none_of_a_user(books: Books, ann: Party) -> None:
    for name in (books.tables["units"], arn_of(books, "units")):
        with pytest.raises(InvalidUnitRequest, match="this one is the units' own") as refused:
            ann.units.table(name)
        assert refused.value.field == "name"


@THREADS_ONLY
def test_nor_is_it_by_the_low_level_api(books: Books, ann: Party) -> None:
    with pytest.raises(InvalidUnitRequest, match="this one is the units' own") as refused, ann.begin() as unit:
        unit.client.put_item(TableName=books.tables["units"], Item={"unit": {"S": "a"}, "row": {"S": "head"}})
    assert refused.value.field == "TableName"


@THREADS_ONLY
def test_all_who_ask_for_a_table_at_once_get_the_same(books: Books, ann: Party, account: Key) -> None:
    units, quicker = Units(books.tables["units"], client=ann.client), []
    ann.line.between["DescribeTable"] = lambda: quicker.append(units.table(books.tables["accounts"]))
    slower = units.table(books.tables["accounts"])
    assert quicker == [slower]
    for table in (slower, *quicker):
        assert units.get(table, account) == {**account, "balance": 100}


@pytest.mark.parametrize("local", [0, 1, 5])
def test_a_new_item_leaves_room_for_the_version_in_itself_and_in_each_local_index(local: int) -> None:
    # DynamoDB counts the entries of local indexes with the item.
    keys = (KeyAttribute("id", "S", "HASH"), KeyAttribute("at", "S", "RANGE"))
    indexes = tuple(
        Index(f"by-{number}", (keys[0], KeyAttribute("at", "S", "RANGE")), True, frozenset({"id", "at"}), None)
        for number in range(local)
    )
    table = UnitTable("accounts", Schema("accounts", keys, indexes))
    item = {"id": {"S": "a"}, "at": {"S": "b"}, "_tluVersion": {"S": new_version()}}
    left = MAX_ITEM_BYTES // (1 + local) - size_of(item)

    def is_taken(pad: int) -> bool:
        try:
            table.check_item({"id": {"S": "a"}, "at": {"S": "b"}, "pad": {"S": "x" * pad}}, "statement", VERSION_BYTES)
        except ItemTooLarge:
            return False
        return True

    largest = max(pad for pad in range(left - 200, left + 1) if is_taken(pad))
    whole = {**item, "pad": {"S": "x" * largest}}
    assert size_of(whole) * (1 + local) <= MAX_ITEM_BYTES
