"""What the commands of ``ticketlock units`` share: the tables, and how errors are reported."""

from collections.abc import Mapping
from typing import Any, ClassVar

import click

from ticketlock.cli._exits import CONFIGURATION, LEASE_LOST, MEANINGS, UNAVAILABLE, WAIT_IS_OVER, Ended
from ticketlock.cli._explained import Explained
from ticketlock.cli._settings import Settings, settings_of
from ticketlock.errors import (
    CommittedUnfinished,
    InvalidUnitRequest,
    OutcomeUnknown,
    RequestNotApplied,
    TableNotFound,
    TableRefused,
)
from ticketlock.units._marks import Marks
from ticketlock.units._record import Heads
from ticketlock.units._tables import Tables, UnitTable
from ticketlock.units._units import UnitsTable
from ticketlock.wire._actions import T
from ticketlock.wire._requests import ForkingSteps

USUAL_PREFIX = "_tlu"
# Part of the error of a table with other keys.
_OF_ANOTHER_KIND = "ValidationException"


class OfUnits(Explained):
    """One of the commands."""

    meanings: ClassVar[Mapping[int | str, str]] = {
        **MEANINGS,
        0: "success",
        WAIT_IS_OVER: "the unit is pending, and its lease has not expired",
        LEASE_LOST: "there is no record of the unit, or, for `rollback`, it is committed",
        CONFIGURATION: "configuration: the tables, credentials, Region, a permission; or marks are left to you",
    }

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        settings = settings_of(ctx)
        try:
            return super().invoke(ctx)
        except InvalidUnitRequest as error:
            typed = self.as_typed(ctx, error.field)
            if typed is None:
                raise Ended(str(error), CONFIGURATION) from error
            raise click.UsageError(f"{typed} is {error.value}; allowed: {error.allowed}", ctx) from error
        except CommittedUnfinished as error:
            raise Ended(str(error), CONFIGURATION) from error
        except TableNotFound as error:
            raise Ended(f"{error}: {settings.place()}", CONFIGURATION) from error
        except TableRefused as error:
            hint = f": is {settings.units_table!r} a units table, and not a lock table?"
            raise Ended(f"{error}{hint if _OF_ANOTHER_KIND in str(error) else ''}", CONFIGURATION) from error
        except (RequestNotApplied, OutcomeUnknown) as error:
            raise Ended(f"a table in {settings.place()} cannot be reached: {error}", UNAVAILABLE) from error


class Desk:
    """What an operator's commands for units work with.

    Args:
        settings: the options about the tables.

    Attributes:
        heads: the units table, with the records of units.
        marks: the names of the attributes that units add to items.
    """

    def __init__(self, settings: Settings) -> None:
        name = settings.units_table_name
        self.marks = Marks(settings.prefix if settings.prefix is not None else USUAL_PREFIX)
        self.heads = Heads(name)
        self._performer = UnitsTable(name, client=settings.client())

    def follow(self, steps: ForkingSteps[T]) -> T:
        """Perform the requests that the steps yield."""
        return self._performer.follow(steps)

    def table(self, name: str) -> UnitTable:
        """A table of users."""
        return self.follow(Tables(self.heads.table).table(name, "table"))
