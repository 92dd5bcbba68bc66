"""The models that TLC searches: whole ones, in which every promise must hold, and one for each condition without it."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from property.specs.tlc import Model

LOCK_INVARIANTS = (
    "Exclusion",
    "NoHolderEvicted",
    "NoRowEvicted",
    "NoFreshTicketVoid",
    "NoOvertaking",
    "Counts",
    "ToldOfTheGrant",
    "ToldThatItHasLeft",
)
LOCK_PROPERTIES = ("TokensRise", "LeasesGrow", "NoLeaseRevived", "NewerFormatStays", "RoomForEachGrant")
UNIT_INVARIANTS = ("Atomicity", "OnlyOnce", "Outcomes", "NothingLeft")
UNIT_PROPERTIES = ("Serialisable", "RollbackWritesNothing")

FAULTS_OF_LOCKS = ("late", "repeat", "crash", "slow request", "slow read", "slow transaction", "ttl")
FAULTS_OF_UNITS = ("late", "repeat", "crash", "ttl")


def locks(
    name: str,
    owners: int,
    tickets: int,
    *,
    sharers: int = 0,
    permits: int = 1,
    most_shared: int = 2,
    limits: Collection[int] = (),
    lease: int = 2,
    row_lease: int = 0,
    error: int = 0,
    slow: int = 1,
    faults: Collection[str] = FAULTS_OF_LOCKS,
    most_faults: int = 1,
) -> Model:
    """A model of locks: who competes, which faults happen, and how many of them in one behaviour."""
    all_owners = tuple(f"o{number}" for number in range(1, owners + 1))
    constants = {
        "Owners": _set(all_owners),
        "Sharers": _set(all_owners[:sharers]),
        "Permits": permits,
        "MostShared": most_shared,
        "Limits": _set(limits),
        "Lease": lease,
        "RowLease": row_lease or lease,
        "Error": error,
        "Tickets": tickets,
        "Slow": slow,
        "Faults": _set(f'"{fault}"' for fault in faults),
        "MostFaults": most_faults,
        "None": "None",
    }
    return Model(
        name=name,
        module="TicketLock",
        constants=_texts(constants),
        invariants=LOCK_INVARIANTS,
        properties=LOCK_PROPERTIES,
        owners=all_owners,
        is_symmetric=not sharers,
    )


def fair(model: Model) -> Model:
    """The model in which the owners that live do what they have to, and its promise of liveness."""
    return replace(model, specification="FairSpec", invariants=(), properties=("Liveness",), is_symmetric=False)


def walked(model: Model, walks: int) -> Model:
    """The model, in which so many ways are taken at random: it is too large for a search of every state."""
    return replace(model, is_symmetric=False, walks=walks)


def units(
    name: str,
    reads_and_writes: Collection[tuple[str, dict[str, str]]],
    *,
    marked: Collection[int] = (),
    names: Collection[int] = (),
    coordinators: Collection[int] = (),
    plain: str = "a",
    give_ups: int = 0,
    slow: int = 1,
    faults: Collection[str] = FAULTS_OF_UNITS,
    most_faults: int = 1,
) -> Model:
    """A model of units: for each, beginning with the oldest, the keys that it reads, and what it writes."""
    numbers = range(1, len(reads_and_writes) + 1)
    writes = [" @@ ".join(f'"{key}" :> "{what}"' for key, what in each.items()) for _, each in reads_and_writes]
    keys = sorted({key for read, written in reads_and_writes for key in (*read, *written)})
    constants = {
        "Units": _set(numbers),
        "Keys": _set(f'"{key}"' for key in keys),
        "Reads": _tuple(_set(f'"{key}"' for key in read) for read, _ in reads_and_writes),
        "Writes": _tuple(each or "<<>>" for each in writes),
        "Marked": _set(marked),
        "Name": _tuple('"n"' if number in names else "None" for number in numbers),
        "Coordinators": _set(coordinators),
        "Plain": _set(f'"{key}"' for key in plain),
        "GiveUps": give_ups,
        "Slow": slow,
        "Faults": _set(f'"{fault}"' for fault in faults),
        "MostFaults": most_faults,
        "None": "None",
        "Absent": "Absent",
        "Unversioned": "Unversioned",
        "Foreign": "Foreign",
    }
    return Model(
        name=name,
        module="Units",
        constants=_texts(constants),
        invariants=UNIT_INVARIANTS,
        properties=UNIT_PROPERTIES,
        may_end=False,
    )


def records(name: str, *kinds: str, last: int = 2, copies: int = 1) -> Model:
    """A model of one unit's record and its rows, to which these kinds of requests are sent."""
    constants = {
        "Units": "{1}",
        "Keys": '{"a"}',
        "Kinds": _set(f'"{kind}"' for kind in kinds),
        "Last": last,
        "Owners": '{"x", "y"}',
        "Copies": copies,
        **{name: name for name in ("None", "Absent", "Unversioned", "Foreign")},
    }
    return Model(
        name=name,
        module="UnitRecords",
        constants=_texts(constants),
        invariants=("WhatWasWrittenStays", "OnlyUnitsOfTheOwner", "OnlyAfterTheEndThatWasSeen", "EachHeadHasAState"),
        properties=("NoLeaseShortened", "NoKeysForgotten", "NewerFormatStays", "ForeignStays"),
    )


def sessions(name: str, *kinds: str, last: int = 2, copies: int = 1) -> Model:
    """A model of a session, whose functions send these kinds of requests."""
    constants = {"Kinds": _set(f'"{kind}"' for kind in kinds), "Last": last, "Copies": copies}
    return Model(
        name=name,
        module="Session",
        constants=_texts(constants),
        invariants=("HeartbeatEnds", "NothingNotedIsForgotten", "ClaimOfTheTicket", "ParkedRowIsWhole"),
        properties=("EndIsKept", "GivenUpStays"),
    )


def invocations(name: str, *, last: int = 2, error: int = 1, copies: int = 1) -> Model:
    """A model of a durable execution that holds the lock, in so many invocations."""
    constants = {
        "Last": last,
        "Ends": 3,
        "Lease": 2,
        "Waits": 2,
        "Error": error,
        "Copies": copies,
        "Sharers": "{}",
        "Permits": 1,
        "MostShared": 1,
        "None": "None",
    }
    return Model(
        name=name,
        module="Invocations",
        constants=_texts(constants),
        invariants=("LatestHolds", "LeaseLastsAsTold", "SuspensionIsKept"),
        properties=(),
    )


def permits(
    name: str, users: Collection[tuple[int, int | None]], *, limits: Collection[int] = (), unsets: int = 0
) -> Model:
    """A model of the number of permits: for each user the number, and when its execution started, if it has one."""
    constants = {
        "Users": _set(range(1, len(users) + 1)),
        "Asks": _tuple(asks for asks, _ in users),
        "Since": _tuple("None" if since is None else since for _, since in users),
        "Limits": _set(limits),
        "Unsets": unsets,
        "Copies": 1,
        "None": "None",
    }
    return Model(
        name=name,
        module="Permits",
        constants=_texts(constants),
        invariants=("LatestDeployment", "NoLimitUndone", "MismatchIsRefused"),
        properties=("RoomForEachGrant",),
    )


def _set(values: Any) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _tuple(values: Any) -> str:
    return "<<" + ", ".join(map(str, values)) + ">>"


def _texts(constants: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in constants.items()}


PUT, DELETE = {"a": "put"}, {"a": "delete"}
CROSSING = (("a", {"b": "put"}), ("b", {"a": "put"}))
"""Each reads what the other one writes."""
_MIXED = (*CROSSING, ("b", DELETE), ("", {"a": "put", "b": "put"}))

_ANY_FAULT = locks("2 owners, any one fault", 2, 3)
_CROWD = locks("3 owners, 2 requests on their way", 3, 3, slow=2, most_faults=0)
_CROSS = units("2 units that read what the other writes, by marks, any one fault", CROSSING, marked=(1, 2))
_LIVING = fair(locks("2 owners that live, or crash", 2, 3, slow=0, faults=["crash"]))
_EVERY_FAULT = (*FAULTS_OF_LOCKS, "limit", "wrong mode", "newer version")
_REFUSING = (*FAULTS_OF_UNITS, "refused")
WHOLE: tuple[Model, ...] = (
    _ANY_FAULT,
    locks("2 owners, 2 tickets, any one fault", 2, 2),
    locks("2 owners that are wrong about the time", 2, 2, error=1, most_faults=0),
    locks("2 owners, whose rows last longer, and are shortened", 2, 2, lease=1, row_lease=3),
    _LIVING,
    _CROSS,
    units("3 units, 2 of them by marks", (*CROSSING, ("ab", {"a": "put"})), marked=(1, 2), most_faults=0),
    units("a deletion and an insertion by marks, any one fault", [("", DELETE), ("", PUT)], marked=(1, 2)),
    units("a name that 2 processes give up", [("", PUT), ("", PUT)], marked=(1,), names=(1, 2), give_ups=2),
    units("a saved unit with 2 coordinators", [("", PUT), ("", PUT)], marked=(1,), coordinators=(1, 2)),
    units(
        "a value that the service refuses, and an operator corrects",
        [("", PUT), ("", PUT)],
        marked=(1, 2),
        faults=_REFUSING,
    ),
    records(
        "the head of a record, 2 late requests", "Renew", "RollBackOfOwner", "RollBack", "Close", "Forget", copies=2
    ),
    records("a record that is made again, 2 late requests", "Open", "RollBack", "Close", "Forget", copies=2),
    records(
        "rows, and an update without a read", "AddKeys", "PutSavedRow", "PutRowOfOwner", "CommitNatively", copies=2
    ),
)


_ENDS = ("Beat", "Finish", "Abandon", "Stop")
_NOTES = ("NoteClaim", "NoteTicket", "NoteContinuation", "Park", "ShortenRow")
WHOLE += (
    walked(
        locks("at random: 3 owners, 6 tickets", 3, 6, limits=[0], slow=2, error=1, faults=_EVERY_FAULT, most_faults=9),
        3_000,
    ),
    walked(
        locks(
            "at random: 2 alone, 2 that share", 4, 6, sharers=2, permits=2, slow=2, faults=_EVERY_FAULT, most_faults=9
        ),
        3_000,
    ),
    walked(
        units(
            "at random: 4 units",
            _MIXED,
            marked=(1, 2, 4),
            names=(3, 4),
            give_ups=1,
            slow=2,
            faults=_REFUSING,
            most_faults=5,
        ),
        10_000,
    ),
    sessions("a heartbeat and every end of 3 grants, 2 late requests", *_ENDS, last=3, copies=2),
    permits("2 deployments, a user, 2 limits", [(1, 1), (2, 2), (3, None)], limits=[4, 5], unsets=2),
    invocations("a durable execution of 3 invocations, a late request", last=3),
    sessions("what a clean-up and a wake-up read, 2 late requests", *_NOTES, last=3, copies=2),
)


@dataclass(frozen=True)
class Needed:
    """A condition of the code, and the promise that is broken without it.

    Attributes:
        condition: its name.
        breaks: the promise.
        model: in which model.
    """

    condition: str
    breaks: str
    model: Model


_TWO = locks("2 owners, 2 tickets", 2, 2, most_faults=0)
_THREE = locks("2 owners, 3 tickets", 2, 3, most_faults=0)
_LATE = locks("2 owners, a late request", 2, 3, faults=["late"])
_SHARED = locks("1 alone, 1 that shares", 2, 2, sharers=1, most_faults=0)
_LIMITED = locks("an operator's limit", 2, 2, limits=[0], faults=["limit"])
_PERMITS = locks("2 permits, a late request", 2, 2, permits=2, lease=1, faults=["late"])
_INVOKED = invocations("a durable execution of 2 invocations, a late request")
_MISTAKEN = locks("the other mode", 2, 2, sharers=1, faults=["wrong mode"])
_ONE_KEY = units("2 units, 1 item", [("", PUT), ("", PUT)], marked=(1,), most_faults=0)
_NATIVE = units("3 units in one request each, 1 item", [("", PUT)] * 3, most_faults=0)
_CARELESS = replace(
    units("an insertion by marks, a careless writer", [("", PUT)], marked=(1,), plain="", faults=["careless writer"]),
    invariants=(),
    properties=("RollbackWritesNothing",),
    may_end=True,
)
"""Who writes an item beside units, without regard to marks, is promised only that no rollback undoes it."""
_NAMED = units("a name", [("", PUT), ("", PUT)], names=(1, 2), give_ups=2, most_faults=0)
_ENDED = records("the end of a record", "RollBack", "Close", "Forget")
_AGAIN = replace(
    records("a record that is made again", "Open", "RollBack", "Close"), invariants=("OnlyAfterTheEndThatWasSeen",)
)
_SAVED = units("a saved unit", [("", PUT), ("", PUT)], coordinators=(1, 2), most_faults=0)

CONDITIONS_OF_LOCKS = (
    Needed("NO_LOCK_ITEM", "liveness", _LIVING),
    Needed("KNOWN_FORMAT", "NewerFormatStays", locks("a newer version", 2, 2, faults=["newer version"])),
    Needed("NO_WAITER_IS_COUNTED", "NoOvertaking", _TWO),
    Needed("A_WAITER_IS_COUNTED", "Counts", _LATE),
    Needed("A_PERMIT_IS_FREE", "Exclusion", _TWO),
    Needed("NO_HOLDER_SHARES", "Exclusion", locks("2 permits", 2, 2, sharers=1, permits=2, most_faults=0)),
    Needed("ALL_HOLDERS_SHARE", "Exclusion", _SHARED),
    Needed(
        "A_SHARED_PLACE_IS_FREE", "Exclusion", locks("1 shared place", 2, 2, sharers=2, most_shared=1, most_faults=0)
    ),
    Needed("NOT_CLOSED", "RoomForEachGrant", locks("a closed lock", 2, 2, sharers=1, limits=[0], faults=["limit"])),
    Needed("PERMITS_AS_I_SAW", "RoomForEachGrant", _LIMITED),
    Needed("EXPIRED_HOLDER_AS_SEEN", "Counts", _TWO),
    Needed("NOT_A_HOLDER_YET", "NoHolderEvicted", _PERMITS),
    Needed("NO_TICKET_SINCE_I_READ", "Counts", _LATE),
    Needed("NO_GRANT_SINCE_I_READ", "Exclusion", _CROWD),
    Needed(
        "MY_TICKET_IS_NOT_VOID", "Counts", locks("3 owners, a slow request", 3, 3, lease=1, faults=["slow request"])
    ),
    Needed("MY_TICKET_IS_THE_LATEST", "NoFreshTicketVoid", _LATE),
    Needed("I_HOLD_WITH_MY_TOKEN", "Counts", _TWO),
    Needed("I_SHARE", "Counts", _MISTAKEN),
    Needed("I_DO_NOT_SHARE", "Counts", _MISTAKEN),
    Needed("MY_LEASE_IS_NOT_OVER", "NoLeaseRevived", _TWO),
    Needed("MY_LEASE_GROWS", "LeasesGrow", _LATE),
    Needed("MY_LEASE_IS_AS_I_SAW", "LeasesGrow", _LATE),
    Needed("THE_LAST_HOLDS_WITH_ITS_TOKEN", "Counts", _LATE),
    Needed("ONE_HOLDS", "RoomForEachGrant", locks("1 alone, 2 that share", 3, 3, sharers=2, lease=1, most_faults=0)),
    Needed("NO_MORE_HOLD_THAN_MAY", "RoomForEachGrant", _LIMITED),
    Needed("NO_LATER_INVOCATION_RESUMED", "SuspensionIsKept", _INVOKED),
    Needed("MINE_IS_THE_LATEST_INVOCATION", "LatestHolds", _INVOKED),
    Needed("I_AM_SUSPENDED", "LatestHolds", _INVOKED),
    Needed("I_AM_SUSPENDED_OR_MY_LEASE_GROWS", "LeaseLastsAsTold", _INVOKED),
    Needed("NO_SUCH_ROW", "LeasesGrow", _LATE),
    Needed("ROW_IS_MINE", "ToldThatItHasLeft", _THREE),
    Needed("ROW_LEASE_GROWS", "LeasesGrow", _LATE),
    Needed("ROW_IS_AS_I_SAW", "NoRowEvicted", _TWO),
)

CONDITIONS_OF_UNITS = (
    Needed("UNMARKED", "Serialisable", _CROSS),
    Needed("AT_THE_VERSION_I_SAW", "Serialisable", _NATIVE),
    Needed("NEVER_WRITTEN_BY_A_UNIT", "Serialisable", _CROSS),
    Needed("ABSENT", "Serialisable", _CROSS),
    Needed("MARKED_BY_THE_UNIT", "Atomicity", _ONE_KEY),
    Needed("ONLY_HOLDS_A_PLACE", "RollbackWritesNothing", _CARELESS),
    Needed("NO_SUCH_ROW", "OnlyOnce", _NAMED),
    Needed("HEAD_IS_PENDING", "OnlyOnce", _CROSS),
    Needed("REV_AS_I_SAW", "OnlyOnce", _SAVED),
    Needed("LEASE_AS_I_SAW", "OnlyOnce", _CROSS),
    Needed("ENDED_AS_I_SAW", "OnlyAfterTheEndThatWasSeen", _AGAIN),
    Needed("HEAD_IS_CLOSED", "EachHeadHasAState", _ENDED),
    Needed("KNOWN_FORMAT", "NewerFormatStays", records("a rollback of a unit that was not read", "RollBack")),
    Needed("LEASE_ENDS_BEFORE", "NoLeaseShortened", records("renewals", "Renew")),
    Needed("OWNER_AS_ASKED", "OnlyUnitsOfTheOwner", records("the end of an owner", "RollBackOfOwner")),
    Needed("NO_ROW_THAT_STAYS_AS_LONG", "WhatWasWrittenStays", records("rows of an owner", "PutRowOfOwner")),
    Needed("NOT_WRITTEN_SINCE_THIS_TRY", "WhatWasWrittenStays", records("tries to save", "PutSavedRow")),
    Needed("OF_UNITS_ALONE", "ForeignStays", records("an update without a read", "CommitNatively")),
    Needed("RECEIPT_GIVEN_UP_AS_I_SAW", "OnlyOnce", _NAMED),
)

CONDITIONS_OF_SESSIONS = (
    Needed("NO_LATER_BEAT", "HeartbeatEnds", sessions("a heartbeat and an end", "Beat", "Finish")),
    Needed("NOT_FINISHED_YET", "EndIsKept", sessions("an end", "Finish")),
    Needed("NOTHING_LATER_ABANDONED", "GivenUpStays", sessions("abandoned holds", "Finish", "Abandon")),
    Needed("NOTHING_LATER_STOPPED", "GivenUpStays", sessions("stopped holds", "Finish", "Stop")),
    Needed("NO_CLAIM_YET", "ClaimOfTheTicket", sessions("a claim and tickets", "NoteClaim", "NoteTicket")),
    Needed("NO_LATER_TICKET", "NothingNotedIsForgotten", sessions("tickets", "NoteTicket")),
    Needed("NO_LATER_CONTINUATION", "NothingNotedIsForgotten", sessions("continuations", "NoteContinuation")),
    Needed("NO_LATER_PARK", "NothingNotedIsForgotten", sessions("parks", "Park")),
    Needed("PARKED_AS_I_SAW", "ParkedRowIsWhole", sessions("parks and wake-ups in vain", "Park", "ShortenRow")),
)

_DEPLOYED = permits("2 deployments", [(1, 1), (2, 2)])
_LIMITS = permits("2 limits", [(1, None)], limits=[2, 3], unsets=1)
CONDITIONS_OF_PERMITS = (
    Needed("PERMITS_AS_ASKED", "MismatchIsRefused", permits("2 users", [(1, None), (2, None)])),
    Needed(
        "PERMITS_AS_ASKED_OR_LATER",
        "MismatchIsRefused",
        permits("a user, and a deployment that changes no number", [(1, None), (2, 0)]),
    ),
    Needed("MY_PERMITS_ARE_LATER", "LatestDeployment", _DEPLOYED),
    Needed("A_PERMIT_OF_MINE_IS_FREE", "RoomForEachGrant", permits("a lower number", [(3, 1), (3, 2), (1, 3)])),
    Needed(
        "MY_PERMITS_ARE_LATER_BENEATH_A_LIMIT",
        "LatestDeployment",
        permits("3 deployments beneath a limit", [(1, 1), (2, 2), (3, 3)], limits=[5], unsets=1),
    ),
    Needed("LIMIT_AS_I_SAW", "NoLimitUndone", _LIMITS),
    Needed("NO_LIMIT_IS_SET", "NoLimitUndone", _LIMITS),
    Needed("NO_LIMIT_UNSET_YET", "NoLimitUndone", _LIMITS),
    Needed(
        "LIMIT_UNSET_AS_I_SAW",
        "NoLimitUndone",
        permits("2 limits, unset twice", [(1, None)], limits=[2, 3], unsets=2),
    ),
    Needed(
        "NO_USER_HAS_ASKED", "LatestDeployment", permits("a deployment and a limit", [(2, 1)], limits=[3], unsets=1)
    ),
)
TABLES = {
    "LockTable": ("Locks", CONDITIONS_OF_LOCKS),
    "Permits": ("How many may hold a lock", CONDITIONS_OF_PERMITS),
    "Session": ("Sessions of workflows", CONDITIONS_OF_SESSIONS),
    "UnitTables": ("Units", CONDITIONS_OF_UNITS),
}
"""By specification, what its conditions are of, and each one."""

_OF_HISTORIES = {"LockHistories": ("LockTable", "Permits"), "UnitHistories": ("UnitTables",)}


def conditions_of(histories: str) -> set[str]:
    """The conditions whose meaning histories are replayed with; that of no lock item is told in other words."""
    found = {each.condition for module in _OF_HISTORIES[histories] for each in TABLES[module][1]}
    return found - {"NO_LOCK_ITEM"}


def _every_model() -> list[Model]:
    found = list(WHOLE)
    for _, conditions in TABLES.values():
        for each in conditions:
            if each.model not in found:
                found.append(each.model)
    return found


MODELS = _every_model()
"""Without any condition left out: what breaks without one breaks for want of it."""
