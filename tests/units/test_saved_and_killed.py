"""A process that is killed while it saves a unit, or commits one that it has resumed: another one resumes it."""

import os
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from kit.engines import engine_names, first_on
from kit.units import THREADS_ONLY, Books, Key, Killed, Lost, Party, UnitsWorld, some_account

from ticketlock.errors import UnitForgotten
from ticketlock.units import Outcome

pytestmark = pytest.mark.shows("saved units")


def resumed_and_killed(party: Party, keys: Sequence[Key], engine: Any, how: Lost, number: int) -> tuple[str, bool]:
    """A unit that puts accounts with 1 and is saved. The process resumes it to commit it, and is killed at a request.

    Returns:
        Its id, and whether the process has sent so many requests, so that it was killed.
    """
    with party.begin(engine=engine) as unit:
        for key in keys:
            unit.put(party.accounts, {**key, "balance": 1, "noise": os.urandom(1_500)})
        name = unit.save()
    party.loses(how, number)
    try:
        party.units.resume(name).commit()
    except Killed:
        return name, True
    return name, False


@THREADS_ONLY
@pytest.mark.parametrize("units_engine", first_on("memory", engine_names()), indirect=True)
@pytest.mark.parametrize("how", [Lost.KILLED_BEFORE, Lost.KILLED_AFTER], ids=["before", "after"])
@pytest.mark.parametrize("engine", ["native", "marked"])
class TestAProcessThatIsKilled:
    """At each of its requests, before the request is sent or before its reply is read."""

    def test_on_its_way_to_save_has_saved_all_of_it_or_nothing(
        self, units_world: UnitsWorld, books: Books, how: Lost, engine: Any
    ) -> None:
        found = []
        for number in range(1, 100):
            ann, ben, key = units_world.party(), units_world.party(), books.account(100)
            ann.loses(how, number)
            unit = ann.begin(engine=engine)
            try:
                unit.update(
                    ann.accounts, key, "SET balance = :n, noise = :noise", {":n": 1, ":noise": os.urandom(4_000)}
                )
                unit.save()
            except Killed:
                try:
                    ben.units.resume(unit.id).commit()
                except UnitForgotten:
                    found.append(False)
                else:
                    found.append(True)
                assert books.balance(key) == (1 if found[-1] else 100), number
            else:
                break
        # It reads the item, writes a row, and then the record.
        assert found == [False, False, how is Lost.KILLED_AFTER]

    def test_on_its_way_to_commit_is_followed_at_once_by_the_process_that_resumes_it(
        self, units_world: UnitsWorld, books: Books, how: Lost, engine: Any
    ) -> None:
        ends = set()
        for number in count(1):
            ben, keys = units_world.party(), [*(books.account(100) for _ in range(3)), some_account()]
            name, is_killed = resumed_and_killed(units_world.party(), keys, engine, how, number)
            if not is_killed:
                break
            before_ms = books.clock.wall_ms
            again = ben.units.resume(name)
            ends.add(again.repeated)
            again.update(ben.accounts, keys[0], "SET balance = balance + :n", {":n": 10})
            again.commit()
            # It waits for no lease of the one before.
            assert books.clock.wall_ms - before_ms < 5_000, number
            found = ben.units.get_all([(ben.accounts, key) for key in keys])
            assert [item and item["balance"] for item in found] == [1 if again.repeated else 11, 1, 1, 1], number
        assert ends == {False, True}

    def test_on_its_way_to_commit_is_rolled_back_by_its_id_however_far_it_came(
        self, units_world: UnitsWorld, books: Books, how: Lost, engine: Any
    ) -> None:
        ends = set()
        for number in count(1):
            ben, keys = units_world.party(), [books.account(100), books.account(50), some_account()]
            name, is_killed = resumed_and_killed(units_world.party(), keys, engine, how, number)
            if not is_killed:
                break
            ends.add(is_committed := ben.units.rollback(name) is Outcome.COMMITTED)
            found = ben.units.get_all([(ben.accounts, key) for key in keys])
            assert [item and item["balance"] for item in found] == ([1] * 3 if is_committed else [100, 50, None])
            # What was marked is free once the lease of the killed process is over.
            books.clock.advance(63)
            with ben.begin() as after:
                for key in keys:
                    after.put(ben.accounts, {**key, "balance": 7})
            assert [books.balance(key) for key in keys] == [7] * 3, number
        assert ends == {False, True}
