"""The example in examples/booking, deployed by the CDK: one unit over three states is written once, or not at all.

The roles are enforced: a try fails where its function lacks a permission for a while. The emulator redrives nothing:
what a redrive does is done by hand. It names every exception of a function alike: tests/workflow/interpreted asks
by which names the states go on.
"""

import json
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e.cloud import Cloud, FunctionFailed
from e2e.roles import Role
from ticketlock_local.cloud.deploy import deploy
from ticketlock_local.engines.emulator import Emulator

from ticketlock.units import Outcome, Units
from ticketlock.workflow._failures import execution_arn

pytestmark = [
    pytest.mark.shows("unit over several states"),
    pytest.mark.verify("a deployment of its own; tests/units asks the same of saved units and their owners"),
]

APP = Path(__file__).parents[2] / "examples" / "booking" / "app.py"
SAVE = "dynamodb:ConditionCheckItem"
PLACES, BALANCE, PRICE = 3, 500, 200


@dataclass
class Bookings:
    """The deployed example."""

    cloud: Cloud

    def function(self, state: str) -> Any:
        """The configuration of a state's function."""
        return self.cloud.configuration(self.cloud.outputs[f"Function{state}"])

    def without(self, state: str, action: str) -> AbstractContextManager[None]:
        """Within the block a state's function lacks a permission."""
        return Role(self.cloud, self.function(state)["Role"]).without(action)

    def outcome(self, unit: str) -> Outcome:
        return Units(self.cloud.outputs["UnitsTableName"], client=self.cloud.dynamodb).outcome(unit=unit).state

    def new(self, table: str, **more: int) -> str:
        """A new item; its id."""
        id = f"{table}-{uuid.uuid4().hex}"
        self.cloud.put(f"{table}TableName", {"id": id, **more})
        return id

    def events(self, state: str, arn: str) -> list[Mapping[str, Any]]:
        """The events that a state's function got from an execution: it writes each into its log."""
        return [event for event in self.cloud.logged(self.function(state)) if event.get("execution") == arn]

    def rolled_back(self, arn: str) -> list[list[str]]:
        """What the function of the rule has rolled back of an execution, by its log: one entry an event."""
        lines = self.cloud.logged(self.cloud.configuration(self.cloud.outputs["RollBackName"]))
        return [line["rolled_back"] for line in lines if arn in line.get("owner", "")]

    def roll_back(self, arn: str, status: str) -> list[str]:
        """What the function of the rule rolls back when it gets the event of an end directly."""
        detail = {"executionArn": arn, "status": status, "redriveCount": 0}
        answer = self.cloud.invoke(self.cloud.outputs["RollBackName"], {"detail": detail})
        return list(answer["rolled_back"])

    def invoke(self, state: str, event: Mapping[str, Any]) -> Any:
        """What a state's function answers; of an error its message."""
        try:
            return self.cloud.invoke(self.cloud.outputs[f"Function{state}"], event)
        except FunctionFailed as failed:
            return str(failed)


@dataclass
class Trip:
    """One that is to be booked.

    Attributes:
        arn: of its execution, once it is started.
    """

    bookings: Bookings
    flight: str
    hotel: str
    traveller: str
    arn: str = ""

    @property
    def given(self) -> dict[str, Any]:
        return {"flight": self.flight, "hotel": self.hotel, "traveller": self.traveller, "price": PRICE}

    def start(self) -> None:
        self.arn = self.bookings.cloud.start({"trip": self.given})

    @property
    def written(self) -> tuple[int, int, int]:
        """Free seats, free rooms, and what the traveller has left."""
        got = self.bookings.cloud.got
        flight, hotel = (got("OffersTableName", id)["places"] for id in (self.flight, self.hotel))
        return int(flight), int(hotel), int(got("TravellersTableName", self.traveller)["balance"])


NOTHING, BOOKED = (PLACES, PLACES, BALANCE), (PLACES - 1, PLACES - 1, BALANCE - PRICE)


@pytest.fixture(scope="module")
def bookings(guarded_emulator: Emulator) -> Bookings:
    outputs = deploy(guarded_emulator, app=APP, stack="Booking")
    renamed = {"StateMachineArn": outputs["BookingWorkflowArn"], "TableName": outputs["UnitsTableName"]}
    bookings = Bookings(Cloud(guarded_emulator.endpoint, {**outputs, **renamed}))
    # The emulator sends an event once, even if the function was still starting when its time was over.
    nobody = execution_arn(outputs["BookingWorkflowArn"], "nobody")
    assert bookings.roll_back(nobody, "FAILED") == []
    return bookings


@pytest.fixture
def trip(bookings: Bookings) -> Trip:
    flight, hotel = (bookings.new("Offers", places=PLACES) for _ in range(2))
    return Trip(bookings, flight, hotel, bookings.new("Travellers", balance=BALANCE))


def unit_of(bookings: Bookings, trip: Trip, state: str = "takeroom") -> str:
    """The unit that a state has got, once it has."""
    bookings.cloud.wait_until(lambda: bool(bookings.events(state, trip.arn)), f"a try of {state}")
    return str(bookings.events(state, trip.arn)[0]["unit"])


def states_of(bookings: Bookings, trip: Trip, state: str) -> list[dict[str, Any]]:
    """What a state of an execution was entered with."""
    entered = [event.get("stateEnteredEventDetails", {}) for event in bookings.cloud.history(trip.arn)]
    return [json.loads(each["input"]) for each in entered if each.get("name") == state]


def test_a_trip_is_written_by_its_last_state(bookings: Bookings, trip: Trip) -> None:
    trip.start()
    ended = bookings.cloud.ended(trip.arn)
    assert ended.status == "SUCCEEDED", ended
    assert trip.written == BOOKED
    assert bookings.outcome(unit_of(bookings, trip)) is Outcome.COMMITTED
    # No event of its end is anybody's.
    assert bookings.rolled_back(trip.arn) == []


def test_states_that_are_retried_and_run_again_after_the_commit_write_once(bookings: Bookings, trip: Trip) -> None:
    with bookings.without("takeroom", SAVE):
        trip.start()
        bookings.cloud.wait_until(lambda: len(bookings.events("takeroom", trip.arn)) > 1, "a second try")
        assert trip.written == NOTHING
    assert bookings.cloud.ended(trip.arn).status == "SUCCEEDED"
    assert trip.written == BOOKED
    [*_, event] = bookings.events("takeroom", trip.arn)
    assert [bookings.invoke(state, event) for state in ("takeroom", "pay")] == [event["unit"], None]
    assert trip.written == BOOKED


def test_a_state_that_fails_is_caught_and_the_unit_rolled_back(bookings: Bookings, trip: Trip) -> None:
    trip.hotel = bookings.new("Offers", places=0)
    trip.start()
    ended = bookings.cloud.ended(trip.arn)
    assert (ended.status, "places >= 1" in ended.cause) == ("FAILED", True), ended
    assert trip.written == (PLACES, 0, BALANCE)
    [unit] = {each["unit"] for each in states_of(bookings, trip, "GiveUp")}
    assert bookings.outcome(unit) is Outcome.ROLLED_BACK
    # The event of the failure finds nothing to do, however late it comes.
    assert bookings.roll_back(trip.arn, ended.status) == []
    assert all(each == [] for each in bookings.rolled_back(trip.arn))


def test_an_execution_that_is_stopped_in_between_is_rolled_back_by_the_rule_and_nothing_comes_late(
    bookings: Bookings, trip: Trip
) -> None:
    with bookings.without("takeroom", SAVE):
        trip.start()
        unit = unit_of(bookings, trip)
        bookings.cloud.stop(trip.arn)
        bookings.cloud.wait_until(lambda: bool(bookings.rolled_back(trip.arn)), "the event of the end")
    assert bookings.rolled_back(trip.arn)[0] == [unit]
    assert bookings.outcome(unit) is Outcome.ROLLED_BACK
    # Functions that still run: the next state, which resumes it, and the first one, which saves another.
    event = bookings.events("takeroom", trip.arn)[0]
    assert "was rolled back" in bookings.invoke("takeroom", event)
    assert "was not saved" in bookings.invoke("takeseat", event)
    assert trip.written == NOTHING
    # The execution is redriven: it goes on where it was stopped, and that leads to the first state.
    again = {**event, "redrives": 1}
    again["unit"] = bookings.invoke("takeseat", again)
    again["unit"] = bookings.invoke("takeroom", again)
    bookings.invoke("pay", again)
    assert trip.written == BOOKED
