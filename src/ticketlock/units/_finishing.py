"""The writes to a marked item after its unit has ended. Each is conditional on the mark, so it is applied once."""

from collections.abc import Sequence
from typing import TypeGuard

from ticketlock.errors import CommittedUnfinished, TableError, TableRefused
from ticketlock.units import _facts as only_if
from ticketlock.units._heads import Head, Heads
from ticketlock.units._marks import Mark, Marks
from ticketlock.units._packing import Entry
from ticketlock.units._values import PYTHON
from ticketlock.wire._attributes import Item
from ticketlock.wire._conditions import every
from ticketlock.wire._requests import ForkingSteps, Together, Write

_OF_CONTENTS = ("ValidationException", "ItemCollectionSizeLimitExceededException")


def finish(entry: Entry, unit: str, marks: Marks) -> Write:
    """Give the item its new value, and remove the mark."""
    names = {**marks.names((entry.key_name,)), "#unit": "unit"}
    values: Item = {":unit": {"S": unit}}
    only = only_if.MARKED_BY_THE_UNIT
    if entry.kind == "unmark":
        return Write("Update", entry.key, only, update="REMOVE #mark", names=names, values=values, table=entry.table)
    if entry.kind == "delete":
        return Write("Delete", entry.key, only, names=names, values=values, table=entry.table)
    if entry.kind == "put":
        whole: Item = {**entry.assigned, marks.version: {"S": unit}}
        return Write("Put", entry.key, only, item=whole, names=names, values=values, table=entry.table)
    update, more_names, more_values = change(entry.assigned, entry.removed, ("#mark",))
    names, values = {**names, **more_names}, {**values, **more_values}
    return Write("Update", entry.key, only, update=update, names=names, values=values, table=entry.table)


def is_for_contents(error: object) -> TypeGuard[TableRefused]:
    """Whether DynamoDB refuses a write for its contents: no other permission, and no other process, would help."""
    return isinstance(error, TableRefused) and str(error).startswith(_OF_CONTENTS)


def not_finished(unit: str, refused: Sequence[tuple[Entry, TableRefused]]) -> CommittedUnfinished:
    """The error that DynamoDB refuses what a committed unit writes to these items."""
    keys = [(entry.table, PYTHON.back(entry.key) or {}) for entry, _ in refused]
    return CommittedUnfinished(unit, keys, str(refused[0][1]))


def change(assigned: Item, removed: tuple[str, ...], ours: tuple[str, ...] = ()) -> tuple[str, dict[str, str], Item]:
    """An update that sets and removes whole attributes and sets the version, with its placeholders.

    Args:
        ours: placeholders of further attributes to remove.
    """
    sets = ["#version = :unit", *(f"#a{at} = :a{at}" for at in range(len(assigned)))]
    gone = [*ours, *(f"#r{at}" for at in range(len(removed)))]
    update = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(gone)}" if gone else "")
    names = {f"#a{at}": name for at, name in enumerate(assigned)} | {f"#r{at}": name for at, name in enumerate(removed)}
    return update, names, {f":a{at}": value for at, value in enumerate(assigned.values())}


def unmark(table: str, key: Item, key_name: str, mark: Mark, marks: Marks) -> Write:
    """Restore the item as it was before the mark; a placeholder of an insert is deleted."""
    names = {**marks.names((key_name,)), "#unit": "unit"}
    values: Item = {":unit": {"S": mark.unit}}
    if mark.kind == "insert":
        only = every(only_if.MARKED_BY_THE_UNIT, only_if.ONLY_HOLDS_A_PLACE)
        names, values = {**names, "#kind": "kind"}, {**values, ":insert": {"S": "insert"}}
        return Write("Delete", key, only, names=names, values=values, table=table)
    only = only_if.MARKED_BY_THE_UNIT
    return Write("Update", key, only, update="REMOVE #mark", names=names, values=values, table=table)


def close(heads: Heads, head: Head, now_ms: int) -> ForkingSteps[None]:
    """Delete the rows of a unit whose items are all finished, and let TTL delete its head.

    A process that crashes in between leaves a closed head without TTL, by which a sweep finds the remaining rows.
    """
    if not head.is_closed:
        yield heads.close(head, now_ms)
    if head.has_rows:
        for reply in (yield Together(tuple(heads.delete_rows(head)))):
            if isinstance(reply, TableError):
                raise reply
        yield heads.forget(head, now_ms)
