"""The final outcome of a unit."""

from enum import Enum

from ticketlock._checks import text
from ticketlock.errors import InvalidUnitRequest
from ticketlock.units._heads import Head, Heads
from ticketlock.units._ids import is_id
from ticketlock.units._rows import Receipt, is_receipt_of, put_receipt, read_receipt
from ticketlock.wire._answers import Reply
from ticketlock.wire._requests import ForkingSteps, Pause
from ticketlock.wire._table_time import Moment

NAME_BYTES = 1_024


class Outcome(Enum):
    """The outcome of a unit.

    Attributes:
        COMMITTED: everything was written.
        ROLLED_BACK: nothing was written, and nothing will be.
        PENDING: it is being committed, has read locks, or is saved, and its lease (or ``keep_for``) has not ended.
        FORGOTTEN: there is no record of it. A unit that has no record yet may still be committed.
    """

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    PENDING = "pending"
    FORGOTTEN = "forgotten"


def outcome_of_name(table: str, name: str, own: str) -> ForkingSteps[Outcome]:
    """The outcome of a name. A name that was not committed is given up, so that no late request can commit it.

    Args:
        own: a new id. By it a unit notices that the name was given up, even if the receipt of an earlier time that it
            was given up has gone since.
    """
    text("name", name, NAME_BYTES, InvalidUnitRequest)
    reply: Reply = yield read_receipt(table, name)
    while not (found := Receipt.of(reply.item)).is_committed:
        now: Moment = (yield Pause(0)).now
        given_up = Receipt(is_committed=False, unit=own)
        reply = yield put_receipt(table, name, found, given_up, now.latest_ms)
        if reply.applied or is_receipt_of(reply.item, own):
            return Outcome.ROLLED_BACK
    return Outcome.COMMITTED


def outcome_of_unit(table: str, unit: str) -> ForkingSteps[Outcome]:
    """The outcome of a unit that marked its items. A unit whose lease has ended is rolled back."""
    if not isinstance(unit, str) or not is_id(unit):
        raise InvalidUnitRequest("unit", unit, "the `id` of a unit")
    heads = Heads(table)
    while True:
        reply: Reply = yield heads.read(unit)
        if reply.item is None:
            return Outcome.FORGOTTEN
        head = Head.of(reply.item)
        if head.state == "committed":
            return Outcome.COMMITTED
        if head.state == "rolledBack":
            return Outcome.ROLLED_BACK
        if reply.now.earliest_ms <= head.lease_until_ms:
            return Outcome.PENDING
        yield heads.roll_back(unit, reply.now.latest_ms, lease_seen_ms=head.lease_until_ms)
