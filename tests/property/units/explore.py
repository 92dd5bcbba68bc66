"""Random schedules of the simulated world of units."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from kit.invariants import Broken
from property.chance import Chance
from property.failures import noted
from property.faults import LATEST_MS
from property.units import scripts
from property.units.beside import BESIDE_CLIENTS
from property.units.calls import LOCKS, MARKS, TABLES, UNITS
from property.units.casts import KEYS, Cast, drawn_cast
from property.units.machines import A_DAY_MS, Faults, mixed
from property.units.scripts import last_operator
from property.units.world import Script, UnitsWorld

from ticketlock.testing import _requests
from ticketlock.units._commit import _marked
from ticketlock.units._records import _packing, _record
from ticketlock.units._records._rows import OPEN
from ticketlock.units._recovery import _sweeping
from ticketlock.units._statements import _reading, _snapshots
from ticketlock.units._statements._settings import NAMES_ARE_KEPT_S
from ticketlock.units._statements._work import GUARD
from ticketlock.units._unit_of_work import _reads, _unit_of_work

_CALM_AFTER = 1_500
_MOST_STEPS = 15_000
_CUT_SHORT, _ENOUGH_MS = 3, 900_000
# The rest of the round that was cut short, and a whole one.
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Caps:
    """How much fits: into a transaction, into one read, into a row.

    Attributes:
        actions: of a transaction that writes; None for DynamoDB's limit.
        together: items that are read together; None for DynamoDB's limit, and for what units check when they have read
            it, as many as ``actions``.
        inline_bytes: how much the head itself holds.
        page_bytes: of a query or a scan; None for DynamoDB's limit.
        receipts_are_kept_s: until time to live may delete the receipt of a name, and the record of a saved unit that
            has ended; None for as long as in a table.
    """

    actions: int | None = None
    together: int | None = None
    inline_bytes: int | None = None
    page_bytes: int | None = None
    receipts_are_kept_s: int | None = None

    @contextmanager
    def set(self) -> Iterator[None]:
        """Within the block these caps apply."""
        changes: list[tuple[Any, str, Any]] = []
        if self.actions is not None:
            changes += [
                (_unit_of_work, "MOST_ACTIONS", self.actions),
                (_unit_of_work, "SURELY_TOGETHER", self.actions),
                (_reads, "SURELY_TOGETHER", self.actions),
                (_marked, "MOST_ACTIONS", self.actions + 1),
                (_marked, "_MARKS_TOGETHER", self.actions - 1),
                (_marked, "_AT_ONCE", 2),
            ]
        read_together = self.together or self.actions
        if read_together is not None:
            changes += [(module, "MOST_TOGETHER", read_together) for module in (_snapshots, _reads)]
        if self.together is not None:
            changes += [(module, "MOST_TOGETHER", self.together) for module in (_reading, _sweeping)]
        if self.inline_bytes is not None:
            changes += [(_record, "INLINE_BYTES", self.inline_bytes), (_packing, "_PIECE_BYTES", 150)]
            changes.append((_packing, "_TOGETHER_BYTES", 200))
        if self.page_bytes is not None:
            changes.append((_requests, "_PAGE_BYTES", self.page_bytes))
        if self.receipts_are_kept_s is not None:
            # Longer than a late copy of the save is on its way: it would begin the record anew.
            changes.append((_record, "SAVED_IS_KEPT_S", self.receipts_are_kept_s + LATEST_MS // 1_000))
        with ExitStack() as stack:
            for module, name, value in changes:
                stack.enter_context(patch.object(module, name, value))
            yield


def drawn_caps(chance: Chance) -> Caps:
    """DynamoDB's limits, or caps so low that two items exceed them."""
    return Caps(
        [None, None, 2, 3][chance.pick(4)],
        [None, None, None, 2][chance.pick(4)],
        [None, None, 0][chance.pick(3)],
        [None, 300][chance.pick(2)],
        [None, 60, 600][chance.pick(3)],
    )


def begun(
    chance: Chance, faults: Faults, caps: Caps, cast: Cast | None = None, kind: type[UnitsWorld] = UnitsWorld
) -> UnitsWorld:
    """A world with its machines, about to begin."""
    cast = cast or drawn_cast(chance)
    keys = list(KEYS[: cast.keys])
    world = kind(
        chance,
        faults,
        keys,
        cast.is_append_only,
        cuts_are_whole=caps.together is None,
        is_guarded=cast.is_guarded,
        names_kept_s=caps.receipts_are_kept_s or NAMES_ARE_KEPT_S,
    )
    world.service.memory.put_item(TableName=LOCKS, Item={"pk": {"S": "lock"}, "token": {"N": "0"}})
    if cast.is_older:
        for key in keys:
            if chance.pick(2):
                world.begin_with(key)
    for number in range(cast.clients):
        world.add("abcdef"[number], scripts.client(cast))
    for name, rounds in cast.beside.items():
        world.add(name, BESIDE_CLIENTS[name](rounds, cast.names))
    return world


def run(
    chance: Chance,
    faults: Faults | None = None,
    caps: Caps | None = None,
    cast: Cast | None = None,
    kind: type[UnitsWorld] = UnitsWorld,
) -> UnitsWorld:
    """One schedule, to its end.

    Args:
        kind: one that records what happens in it, perhaps.

    Raises:
        Broken, Unexpected: a promise was broken, or something else was raised; its notes say what happened before.
    """
    faults = faults or mixed(chance)
    caps = caps or drawn_caps(chance)
    log: list[str] = [f"0: {caps}, {faults.rates}"]
    with caps.set(), noted(log):
        world = begun(chance, faults, caps, cast, kind)
        log += world.checker.log
        world.checker.log = log
        _to_its_end(world)
        left_to_itself(world)
    return world


def _to_its_end(world: UnitsWorld) -> None:
    most = world.checker.step + _MOST_STEPS
    while world.go():
        if world.checker.step > _CALM_AFTER and not world.faults.are_none:
            world.calm()
        if world.checker.step > most:
            raise Broken(f"liveness: after {_MOST_STEPS} steps a machine is still running")


def _one_more(world: UnitsWorld, name: str, script: Script) -> None:
    world.add(name, script)
    _to_its_end(world)


def left_to_itself(world: UnitsWorld, *, with_unit: bool | None = None) -> None:
    """Run to the end without faults: what was left is read, met by a unit, and swept.

    Args:
        with_unit: whether one more unit first writes every item; None to draw that.
    """
    world.calm()
    _one_more(world, "last reader", scripts.final_reader)
    _one_more(world, "last operator", last_operator)
    if world.chance.pick(2) if with_unit is None else with_unit:
        _one_more(world, "last unit", scripts.final_unit)
    parts, time_ms = [1, 2][world.chance.pick(2)], [None, 0, 20][world.chance.pick(3)]
    world.time.now_ms += A_DAY_MS
    _swept(world, "first sweep", parts, time_ms)
    world.time.now_ms += 10 * 60_000 + 5_000
    _swept(world, "second sweep", parts, time_ms)
    _nothing_is_left(world)
    world.checker.judges_end(world.service.final())
    world.checker.judges_history(world.service.final())


def _swept(world: UnitsWorld, name: str, parts: int, time_ms: int | None) -> None:
    """The whole table is swept, by one pass or by several, each of a machine of its own.

    Args:
        time_ms: of the first passes; those that follow have time enough, and begin where the last one has stopped.
    """
    if time_ms is None:
        _one_more(world, name, scripts.final_sweep(parts, None, []))
        return
    found: list[bool] = []
    for number in range(_CUT_SHORT):
        _one_more(world, f"{name} {number}", scripts.final_sweep(parts, time_ms, found))
    found.clear()
    while sum(found) < _ROUNDS:
        if len(found) == 2 * _ROUNDS:
            raise Broken(f"liveness: {len(found)} sweeps with time enough did not come to the end")
        _one_more(world, f"{name} with time", scripts.final_sweep(parts, _ENOUGH_MS, found))


def _nothing_is_left(world: UnitsWorld) -> None:
    for row in world.service.memory.items(UNITS):
        kind = row["row"]["S"]
        if MARKS.mark in row:
            raise Broken(f"nothing left: {row} is marked")
        if kind == GUARD:
            # Guards stay; their number is bounded.
            continue
        if kind == "head" and ("closed" not in row or "expiresAt" not in row):
            raise Broken(f"nothing left: the head of {row['unit']['S']} is not closed: {row}")
        if OPEN in row:
            raise Broken(f"nothing left: {row} is in the index of open heads")
        if kind not in ("head", "receipt") and "expiresAt" not in row:
            raise Broken(f"nothing left: {row['unit']['S']} has the row {kind}")
        if "expiresAt" not in row:
            raise Broken(f"nothing left: {row} stays for ever")
    for table in TABLES.keys() - {UNITS, LOCKS}:
        for item in world.service.memory.items(table):
            if MARKS.mark in item:
                raise Broken(f"nothing left: {item} is marked")
