"""The faults of the simulated world of units.

A machine that has ``overslept`` paused between two attempts of a write, for longer than the service remembers the token
of a transaction; one that is ``half_way`` pauses when its unit is committed, but not finished. The service refuses the
contents of a ``refused`` request, which a unit sends before it is committed; and it refuses ``for good`` what a
committed unit writes to an item, until an operator corrects that, or the service takes it.
"""

from collections.abc import Mapping

from property.chance import Chance

ON_A_REQUEST = (
    "request_lost",
    "reply_lost",
    "late",
    "twice",
    "throttled",
    "conflict",
    "duplicated",
    "refused",
    "refused for good",
)
ON_ANYTHING = ("crash", "pause", "freeze", "jump", "outage", "overslept", "half_way")
ON_A_TRANSACTION = ("abandoned",)
ONLY_ON_WRITES = ("late", "twice", "duplicated")

RATES = {
    "request_lost": 10,
    "reply_lost": 20,
    "late": 20,
    "twice": 15,
    "throttled": 8,
    "conflict": 10,
    "crash": 3,
    "pause": 4,
    "freeze": 1,
    "jump": 1,
    "abandoned": 15,
    "outage": 2,
    "refused": 3,
    "refused for good": 6,
    "overslept": 4,
    "half_way": 6,
}
"""How often each is injected, in thousandths of the choices, if it is possible."""

A_DAY_MS = 24 * 3_600_000
PAUSES_MS = (500, 3_000, 30_000, 70_000, 4 * 60_000, 11 * 60_000, 3 * 3_600_000, 26 * 3_600_000, 3 * A_DAY_MS)
OVERSLEPT_MS = PAUSES_MS[5:]
OUTAGES_MS = (3_000, 12_000, 30_000, 90_000)
IN_AN_OUTAGE = ("request_lost", "reply_lost", "late", "throttled")
JUMPS_MS = (0, 90_000, -90_000, 240_000)


BESIDE = (
    "token forgotten",
    "signature expired",
    "asleep for days",
    "written beside units",
    "ended by another",
    "sweep cut short",
    "swept on by another",
    "corrected",
    "deleted by time to live",
    "a receipt deleted",
)
"""Events that are not drawn: they result from faults, from the cast, and from time."""
STRIKES = (*RATES, *BESIDE)
"""All of them: a search in which one of them never occurs has not tested it."""


class Faults:
    """How often each fault is injected, in thousandths of the choices."""

    def __init__(self, rates: Mapping[str, int]) -> None:
        self.rates = dict(rates)
        self._sums: dict[tuple[str, ...], int] = {
            names: sum(self.rates.get(name, 0) for name in names)
            for names in (ON_A_REQUEST, ON_ANYTHING, ON_A_TRANSACTION)
        }

    @property
    def are_none(self) -> bool:
        """Whether no fault is injected."""
        return not any(self.rates.values())

    def which(self, names: tuple[str, ...], chance: Chance) -> str | None:
        """Draw one of these faults, mostly none; the simplest choice is none."""
        drawn = chance.pick(1_000) if self._sums[names] else 0
        if not 0 < drawn <= self._sums[names]:
            return None
        for name in names:
            drawn -= self.rates.get(name, 0)
            if drawn <= 0:
                return name
        return None


NONE = Faults({})


def mixed(chance: Chance) -> Faults:
    """Some faults never, some at their rate, some often: all of them at once would hide bugs. Or none at all."""
    if chance.pick(8) == 0:
        return NONE
    return Faults({name: rate * [1, 0, 5][chance.pick(3)] for name, rate in RATES.items()})
