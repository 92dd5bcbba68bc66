"""``ticketlock units``: open units of work, for operators."""

import click

from ticketlock.cli._explained import first_sentence
from ticketlock.cli._settings import units_group_options
from ticketlock.cli._units_correct import correct_item
from ticketlock.cli._units_ending import rollback, settle
from ticketlock.cli._units_listing import list_units, show
from ticketlock.cli._units_repair import repair


class _Group(click.Group):
    """Has its whole first sentence in the list of commands."""

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002  # click cuts what is longer
        """Its first sentence."""
        return first_sentence(self)


@click.group(cls=_Group, epilog="`ticketlock units COMMAND --help` has an example of each, and its exit codes.")
@units_group_options
def units() -> None:
    """List the units of work that are open, and end those of crashed processes."""


for _command in (correct_item, list_units, repair, rollback, settle, show):
    units.add_command(_command)
