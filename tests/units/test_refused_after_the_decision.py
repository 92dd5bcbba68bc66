"""A committed unit with an item whose new value DynamoDB refuses: it is reported, counted, and ended by an operator."""

from collections.abc import Iterator
from typing import Any

import pytest
from kit.units import MARK, THREADS_ONLY, VECTOR_INDEX, VERSION, Books, Key, Lost, Party, dumped, loaded, some_account

from ticketlock.errors import CommittedUnfinished, InvalidUnitRequest, TableRefused
from ticketlock.units import COMMITTED, Outcome, Unit
from ticketlock.units._records._marks import Marks
from ticketlock.units._records._record import CORRECTION_IS_KEPT_S, UnitRecords, new_id
from ticketlock.units._recovery._operators import Correction, Unfinished, correct, settle, unfinished
from ticketlock.units._recovery._sweeping import COPIES_COME_WITHIN_MS
from ticketlock.units._statements._work import MOST_ACTIONS

pytestmark = [
    pytest.mark.shows("bad input"),
    pytest.mark.parametrize("units_engine", ["memory"], indirect=True),
]

MARKS = Marks("_tlu")
PUT = "SET vector = :v, balance = :n"
WRONG = {":v": [1], ":n": 7}


class Operator:
    """An operator who ends a unit, with a process of their own."""

    def __init__(self, party: Party, unit: str) -> None:
        self.party, self.unit, self.records = party, unit, UnitRecords(party.books.tables["units"])

    def looks(self, key: Key) -> Unfinished:
        steps = unfinished(self.records, self.unit, self.party.accounts, dumped(key))
        found: Unfinished = self.party.units._performer.perform_steps(steps)
        return found

    def corrects(self, key: Key, item: Any = None) -> str:
        image = None if item is None else dumped(item)
        correction = Correction(new_id(self.party.books.clock.wall_ms), image, "ada", "a wrong vector")
        done: str = self.party.units._performer.perform_steps(
            correct(self.records, self.unit, self.party.accounts, dumped(key), correction)
        )
        return done

    def settles(self) -> Any:
        return self.party.units._performer.perform_steps(settle(self.records, self.unit))

    def kept(self) -> list[Any]:
        """The rows of what was corrected."""
        return [row for name, row in self.party.books.rows(self.unit).items() if name.startswith("c#")]


@pytest.fixture
def party(books: Books) -> Party:
    """The operator's process, which knows the table before an index is added to it."""
    return Party(books, None)


@pytest.fixture
def operator(party: Party, unit: str) -> Operator:
    return Operator(party, unit)


@pytest.fixture
def keys(books: Books) -> list[Key]:
    """Two accounts with 100 each."""
    return [books.account(), books.account()]


@pytest.fixture
def indexed(books: Books, ann: Party) -> Iterator[None]:
    """Ann's process knows the table before an index is added to it."""
    assert books.engine.memory is not None
    books.engine.memory.update_table(TableName=books.tables["accounts"], VectorIndexUpdates=[{"Create": VECTOR_INDEX}])
    yield
    unindexed(books)
    ann.units.sweep()


def unindexed(books: Books) -> None:
    memory = books.engine.memory
    assert memory is not None
    if "VectorIndexes" in memory.describe_table(TableName=books.tables["accounts"])["Table"]:
        delete = [{"Delete": {"IndexName": VECTOR_INDEX["IndexName"]}}]
        memory.update_table(TableName=books.tables["accounts"], VectorIndexUpdates=delete)


@pytest.fixture
def unit(ann: Party, keys: list[Key], request: pytest.FixtureRequest) -> str:
    """A unit that is committed: DynamoDB refuses what it writes to the first account."""
    request.getfixturevalue("indexed")
    return commits(ann, keys)[0]


def commits(ann: Party, keys: list[Key], name: str | None = None) -> tuple[str, CommittedUnfinished]:
    unit = ann.begin(name=name, engine="marked")
    unit.update(ann.accounts, keys[0], PUT, WRONG)
    unit.update(ann.accounts, keys[1], "SET balance = :n", {":n": 7})
    with pytest.raises(CommittedUnfinished) as caught:
        unit.commit()
    return unit.id, caught.value


@pytest.mark.usefixtures("indexed")
def test_the_commit_says_that_it_is_committed_and_finishes_its_other_items(
    books: Books, ann: Party, keys: list[Key]
) -> None:
    name = new_id(0)
    unit, error = commits(ann, keys, name=name)
    assert (error.unit, error.keys) == (unit, ((books.tables["accounts"], keys[0]),))
    for told in (unit, "is committed: do not run it again", "ValidationException", "`ticketlock units correct`"):
        assert told in str(error)
    assert ann.units.outcome(unit=unit).state is Outcome.COMMITTED
    assert books.raw("accounts", keys[1]) == {**keys[1], "balance": 7, VERSION: books.version(keys[1])}
    assert MARK in (books.raw("accounts", keys[0]) or {})
    with ann.begin(name=name) as again:
        again.update(ann.accounts, keys[1], "SET balance = :n", {":n": 8})
    assert again.repeated


@pytest.mark.usefixtures("indexed")
@THREADS_ONLY
def test_the_commit_is_not_run_again(ann: Party, keys: list[Key]) -> None:
    runs = []

    @ann.units.transactional()
    def work(unit: Unit) -> None:
        runs.append(unit.id)
        unit.update(ann.accounts, keys[0], PUT, WRONG)
        # So many that they are marked.
        for _ in range(MOST_ACTIONS):
            unit.put(ann.accounts, some_account())

    with pytest.raises(CommittedUnfinished):
        work()
    assert len(runs) == 1


def test_until_it_is_corrected_readers_see_the_committed_value_and_others_are_told_what_to_do(
    ben: Party, operator: Operator, keys: list[Key], unit: str
) -> None:
    assert ben.units.get(ben.accounts, keys[0]) == {**keys[0], "balance": 7, "vector": [1]}
    found = ben.units.get_all([(ben.accounts, key) for key in keys], isolation=COMMITTED)
    assert found[1] == {**keys[1], "balance": 7}
    with pytest.raises(TableRefused, match=f"{unit}.*`ticketlock units correct`"):
        ben.begin().update(ben.accounts, keys[0], "SET balance = :n", {":n": 8})
    told = operator.settles()
    assert told.outcome is Outcome.COMMITTED
    assert isinstance(told.failed, CommittedUnfinished)


def test_until_it_is_corrected_sweeps_count_it_and_finish_all_other_items(
    books: Books, ben: Party, operator: Operator, keys: list[Key], unit: str
) -> None:
    books.write("accounts", {**keys[1], "balance": 100, MARK: {"unit": unit, "kind": "write"}})
    swept = ben.units.sweep()
    assert (swept.refused, swept.unfinished) == (1, 1)
    assert books.balance(keys[1]) == 7
    operator.corrects(keys[0])
    books.clock.advance(COPIES_COME_WITHIN_MS / 1_000 + 5)
    swept = ben.units.sweep()
    assert (swept.refused, swept.unfinished) == (0, 0)
    assert (books.raw("units", {"unit": unit, "row": "head"}) or {})["closed"]
    assert operator.kept()


def test_an_operator_finds_what_the_unit_would_have_written_and_gives_the_item_another_value(
    books: Books, operator: Operator, keys: list[Key]
) -> None:
    good = {**keys[0], "balance": 7, "vector": [1, 2]}
    assert loaded(operator.looks(keys[0]).image or {}) == {**good, "vector": [1]}
    assert operator.corrects(keys[0], good) == "replaced"
    assert books.item("accounts", keys[0]) == good
    assert MARK not in (books.raw("accounts", keys[0]) or {})


def test_an_operator_drops_what_the_unit_writes_and_leaves_on_record_who_has_done_what_and_why(
    books: Books, operator: Operator, keys: list[Key], unit: str
) -> None:
    before = books.version(keys[0])
    assert operator.corrects(keys[0]) == "dropped"
    assert books.item("accounts", keys[0]) == {**keys[0], "balance": 100}
    assert books.version(keys[0]) not in (before, unit)
    (row,) = operator.kept()
    told = {name: row[name] for name in ("table", "action", "by", "why")}
    assert told == {"table": books.tables["accounts"], "action": "dropped", "by": "ada", "why": "a wrong vector"}
    assert "has 1 dimensions" in row["refusal"]
    assert int(row["atMs"]) == pytest.approx(books.clock.wall_ms, abs=2_000)
    assert int(row["expiresAt"]) >= int(row["atMs"]) // 1_000 + CORRECTION_IS_KEPT_S


@pytest.mark.usefixtures("indexed")
def test_an_operator_drops_an_insert(books: Books, ann: Party, party: Party, keys: list[Key]) -> None:
    new = some_account()
    unit, _ = commits(ann, [new, keys[1]])
    assert Operator(party, unit).corrects(new) == "dropped"
    assert books.raw("accounts", new) is None


def test_an_operator_changes_nothing_that_dynamodb_takes_by_now(
    books: Books, operator: Operator, keys: list[Key]
) -> None:
    unindexed(books)
    assert operator.corrects(keys[0]) == "finished"
    assert books.item("accounts", keys[0]) == {**keys[0], "balance": 7, "vector": [1]}
    assert operator.kept() == []


def test_an_operator_comes_too_late_for_a_finished_item(operator: Operator, keys: list[Key]) -> None:
    operator.corrects(keys[0])
    for key in keys:
        with pytest.raises(InvalidUnitRequest, match="has not finished"):
            operator.corrects(key)
    assert len(operator.kept()) == 1


def test_an_operator_comes_too_late_if_another_process_finishes_the_item_meanwhile(
    books: Books, operator: Operator, keys: list[Key]
) -> None:
    def finishes() -> None:
        unindexed(books)
        another.settles()

    another = Operator(Party(books, None), operator.unit)
    operator.party.line.between["TransactWriteItems"] = finishes
    with pytest.raises(InvalidUnitRequest, match="has not finished"):
        operator.corrects(keys[0])
    assert books.item("accounts", keys[0]) == {**keys[0], "balance": 7, "vector": [1]}
    assert operator.kept() == []


def test_an_operator_is_known_to_have_corrected_the_item_if_the_reply_is_lost(
    operator: Operator, keys: list[Key]
) -> None:
    operator.party.loses(Lost.REPLY, 1, operation="TransactWriteItems")
    assert operator.corrects(keys[0]) == "dropped"
    assert len(operator.kept()) == 1


def test_an_operator_cannot_use_a_value_that_dynamodb_refuses(
    books: Books, operator: Operator, keys: list[Key]
) -> None:
    with pytest.raises(TableRefused, match="has 3 dimensions"):
        operator.corrects(keys[0], {**keys[0], "vector": [1, 2, 3]})
    with pytest.raises(InvalidUnitRequest, match="an item with the key"):
        operator.corrects(keys[0], {**keys[1], "vector": [1, 2]})
    assert MARK in (books.raw("accounts", keys[0]) or {})
    assert operator.kept() == []
