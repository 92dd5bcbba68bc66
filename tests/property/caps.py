"""The caps of the protocol as parameters of a world: what a real one meets in years, a small one meets at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from kit import invariants
from property.chance import Chance

from ticketlock.locks import _claim, _grants, _hand_over, _joiner, _modes, _onlooker, _operators, _protocol

Places = tuple[tuple[Any, str], ...]

PLACES: Mapping[str, Places] = {
    "swept": ((_protocol, "_SWEPT_A_LOOK"),),
    "page": ((_onlooker, "_PAGE"),),
    "holders": tuple((each, "MAX_HOLDERS") for each in (_modes, _claim, _grants, invariants)),
    "tries": ((_protocol, "_TRIES"), (_joiner, "_TRIES")),
    "operators_tries": ((_operators, "_TRIES"),),
    "stale_calls": ((_hand_over, "_STALE_CALLS"),),
}
"""Where each of them stands."""


def _real(name: str) -> int:
    module, attribute = PLACES[name][0]
    value: int = getattr(module, attribute)
    return value


@dataclass(frozen=True, slots=True)
class Caps:
    """How many of each at most; the real ones unless told otherwise.

    Attributes:
        swept: dead rows that one look sweeps.
        page: items of a look's second and further pages.
        holders: of a lock that is shared, and the highest limit.
        tries: of an operation that is refused because its item has changed.
        operators_tries: the same of an operator's.
        stale_calls: waiters that are passed over by a caller, because nobody waits for their tasks.
    """

    swept: int = _real("swept")
    page: int = _real("page")
    holders: int = _real("holders")
    tries: int = _real("tries")
    operators_tries: int = _real("operators_tries")
    stale_calls: int = _real("stale_calls")

    def told(self) -> list[str]:
        """Those that are not the real ones, as a line of a log; none where all are."""
        changed = [f"{name} {value}" for name, value in asdict(self).items() if value != getattr(REAL, name)]
        return [f"0: at most {', '.join(changed)}"] if changed else []

    @contextmanager
    def set(self) -> Iterator[None]:
        """Within the block they are these."""
        changed = {name: value for name, value in asdict(self).items() if value != getattr(REAL, name)}
        try:
            for name, value in changed.items():
                _put(name, value)
            yield
        finally:
            for name in changed:
                _put(name, getattr(REAL, name))


REAL = Caps()
_FEWEST_TRIES = 2


def drawn(chance: Chance) -> Caps:
    """All real; or some of them, and the others 1, 2 or 3. Never a single try: the first one has looked at nothing."""
    if chance.pick(2) == 0:
        return REAL
    values = {name: [real, real, real, 1, 2, 3][chance.pick(6)] for name, real in asdict(REAL).items()}
    return Caps(**{**values, "tries": max(_FEWEST_TRIES, values["tries"])})


def _put(name: str, value: int) -> None:
    for module, attribute in PLACES[name]:
        setattr(module, attribute, value)
