"""The caps of the protocol as parameters of a world: low caps meet in moments what a real table meets in years."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from kit import invariants
from property.chance import Chance

from ticketlock.locks import _grants, _modes, _operators, _outcomes, _protocol

Places = tuple[tuple[Any, str], ...]

PLACES: Mapping[str, Places] = {
    "swept": ((_protocol, "_SWEPT_PER_POLL"),),
    "page": ((_protocol, "_PAGE"),),
    "holders": tuple((each, "MAX_HOLDERS") for each in (_modes, _outcomes, _grants, invariants)),
    "tries": ((_protocol, "_TRIES"),),
    "operators_tries": ((_operators, "_TRIES"),),
    "stale_tokens": ((_protocol, "_STALE_TOKENS"),),
}
"""The module or class that defines each of them."""


def _real(name: str) -> int:
    module, attribute = PLACES[name][0]
    value: int = getattr(module, attribute)
    return value


@dataclass(frozen=True, slots=True)
class Caps:
    """The caps; by default the real ones.

    Attributes:
        swept: expired rows that one poll sweeps.
        page: items of the second and further pages of a poll.
        holders: of a lock that is shared; also the highest limit.
        tries: of an operation that is refused because its item has changed.
        operators_tries: the same of an operator's operation.
        stale_tokens: waiters that a wake-up passes over because their tasks are closed.
    """

    swept: int = _real("swept")
    page: int = _real("page")
    holders: int = _real("holders")
    tries: int = _real("tries")
    operators_tries: int = _real("operators_tries")
    stale_tokens: int = _real("stale_tokens")

    def in_words(self) -> list[str]:
        """The caps that differ from the real ones, as a line of a log; nothing if none does."""
        changed = [f"{name} {value}" for name, value in self._changed().items()]
        return [f"0: at most {', '.join(changed)}"] if changed else []

    @contextmanager
    def set(self) -> Iterator[None]:
        """Within the block these caps apply."""
        changed = self._changed()
        try:
            for name, value in changed.items():
                _put(name, value)
            yield
        finally:
            for name in changed:
                _put(name, getattr(REAL, name))

    def _changed(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value != getattr(REAL, name)}


REAL = Caps()
_FEWEST_TRIES = 2


def drawn(chance: Chance) -> Caps:
    """All real; or some of them, and the others 1, 2 or 3. Never a single try: the first one has not read anything."""
    if chance.pick(2) == 0:
        return REAL
    values = {name: [real, real, real, 1, 2, 3][chance.pick(6)] for name, real in asdict(REAL).items()}
    return Caps(**{**values, "tries": max(_FEWEST_TRIES, values["tries"])})


def _put(name: str, value: int) -> None:
    for module, attribute in PLACES[name]:
        setattr(module, attribute, value)
