"""What goes wrong in the simulated world of units.

A machine that has ``overslept`` stood still between two attempts of a write, for longer than the service remembers the
token of a transaction; one that is ``half_way`` stands still when its unit is committed, and not finished. What is
``refused`` the service does not like for its contents: only what a unit sends before it is committed.
"""

from collections.abc import Mapping

from property.chance import Chance

ON_A_REQUEST = ("request_lost", "reply_lost", "late", "twice", "throttled", "conflict", "doubled", "refused")
ON_ANYTHING = ("crash", "pause", "freeze", "jump", "expire", "outage", "overslept", "half_way")
ON_A_TRANSACTION = ("abandoned",)
ONLY_ON_WRITES = ("late", "twice", "doubled")

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
    "expire": 1,
    "abandoned": 15,
    "outage": 2,
    "refused": 3,
    "overslept": 4,
    "half_way": 6,
}
"""How often, in thousandths of the choices, where it happens at all."""

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
)
"""What nobody draws: it comes about by what is drawn, by who is there, and by time."""
STRIKES = (*RATES, *BESIDE)
"""All of it: a search in which one of them never struck has not looked there."""


class Mishaps:
    """How often what goes wrong, in thousandths of the choices."""

    def __init__(self, rates: Mapping[str, int]) -> None:
        self.rates = dict(rates)
        self._sums: dict[tuple[str, ...], int] = {
            names: sum(self.rates.get(name, 0) for name in names)
            for names in (ON_A_REQUEST, ON_ANYTHING, ON_A_TRANSACTION)
        }

    @property
    def are_none(self) -> bool:
        """Whether nothing fails."""
        return not any(self.rates.values())

    def which(self, names: tuple[str, ...], chance: Chance) -> str | None:
        """Which of them it is now; mostly none, and never for the dullest choice."""
        drawn = chance.pick(1_000) if self._sums[names] else 0
        if not 0 < drawn <= self._sums[names]:
            return None
        for name in names:
            drawn -= self.rates.get(name, 0)
            if drawn <= 0:
                return name
        return None


NONE = Mishaps({})


def mixed(chance: Chance) -> Mishaps:
    """Some never, some as usual, some often: what all of them at once would hide shows itself. Or none at all."""
    if chance.pick(8) == 0:
        return NONE
    return Mishaps({name: rate * [1, 0, 5][chance.pick(3)] for name, rate in RATES.items()})
