"""``ticketlock run``: runs a command under a lock, or holds the lock until a signal arrives."""

import threading
from typing import Any

import click

from ticketlock import Lease, LockLost, TableError
from ticketlock.cli._child import Child, check_executable
from ticketlock.cli._durations import Duration
from ticketlock.cli._exits import (
    CONFIGURATION,
    LEASE_LOST,
    NOT_EXECUTABLE,
    NOT_FOUND,
    SIGNALLED,
    UNAVAILABLE,
    USAGE,
    WAIT_IS_OVER,
    Ended,
)
from ticketlock.cli._explained import Explained
from ticketlock.cli._settings import settings_of, table_options
from ticketlock.cli._signals import Signals
from ticketlock.cli._supervising import Supervision
from ticketlock.cli._wait_in_line import Wish, stand_in_line, waiting_options
from ticketlock.cli._wording import plain


class _UnderLock(Explained):
    """Splits the words: from the first word after ENTITY that is not our option, they are the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our words, and leave the program's unchanged."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        before, rest = self._options(ctx, args)
        if rest[:1] == ["--"]:
            raise click.UsageError("which lock? Put ENTITY before '--'.", ctx)
        behind, command = self._options(ctx, rest[1:])
        if command == ["--"]:
            raise click.UsageError("nothing follows '--': give a COMMAND, or leave '--' out to hold the lock.", ctx)
        if command[:1] == ["--"]:
            del command[0]
        return super().parse_args(ctx, [*before, *behind, "--", *rest[:1], *command])

    def _options(self, ctx: click.Context, words: list[str]) -> tuple[list[str], list[str]]:
        """The leading options, and the other words, from '--' or from the first word that is not an option."""
        parser = click.Command(None, params=[each for each in self.get_params(ctx) if isinstance(each, click.Option)])
        parser.add_help_option = False
        options = parser.make_parser(ctx)
        options.allow_interspersed_args = False
        _, rest, _ = options.parse_args(list(words))
        read = len(words) - len(rest)
        # click removes '--'.
        if read and words[read - 1] == "--":
            read -= 1
        return words[:read], words[read:]


@click.command(
    cls=_UnderLock,
    example="ticketlock run order-42 --wait 5m -- ./migrate.sh --all",
    ends=(
        *(0, USAGE, UNAVAILABLE, WAIT_IS_OVER, LEASE_LOST, CONFIGURATION),
        *(NOT_EXECUTABLE, NOT_FOUND, SIGNALLED),
    ),
)
@click.argument("entity")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@waiting_options
@click.option(
    "--kill-after",
    type=Duration(),
    default=10.0,
    metavar="TIME",
    help="If the lease is lost: the time from SIGTERM to SIGKILL.  [default: 10s]",
)
@table_options
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], kill_after: float, **said: Any) -> None:
    """Wait for the lock on ENTITY in arrival order, run COMMAND under it, and release it.

    COMMAND begins at the first word after ENTITY that is not an option of `run`; all words from there on are its own.
    Without COMMAND the lock is held until a signal arrives. The command's environment has TICKETLOCK_FENCING_TOKEN,
    TICKETLOCK_ENTITY, TICKETLOCK_NAMESPACE, TICKETLOCK_OWNER and TICKETLOCK_TABLE. If the lease is lost, the command
    is stopped. The exit code is the command's own.
    """
    settings, wish = settings_of(context), Wish(**said)
    if command:
        check_executable(command[0])
    lost = threading.Event()
    with Signals() as signals:

        def note_loss(_: Lease) -> None:
            lost.set()
            signals.wake()

        lease = stand_in_line(settings, wish, signals, on_lost=note_loss)
        name = plain(wish.entity)

        def say_it_is_lost() -> None:
            click.echo(f"ticketlock: the lease on '{name}' is lost: stopping the command", err=True)

        try:
            if command:
                child = Child(command, _environment(lease, settings.table_name))
                try:
                    supervision = Supervision(
                        child, lease, signals, lost, kill_after_s=kill_after, on_loss=say_it_is_lost
                    )
                    was_lost = supervision.to_the_end()
                finally:
                    child.end()
                exit_code = child.exit_code or 0
            else:
                if not wish.quiet:
                    click.echo(f"ticketlock: holding '{name}', fencing token {lease.fencing_token}", err=True)
                was_lost, exit_code = _hold(lease, signals, lost), 0
        finally:
            still_ours = _released(lease, name)
    if was_lost or not still_ours:
        raise Ended(f"the lease on '{name}' was lost before the end", LEASE_LOST)
    context.exit(exit_code)


def _environment(lease: Lease, table_name: str) -> dict[str, str]:
    return {
        "TICKETLOCK_ENTITY": lease.entity,
        "TICKETLOCK_FENCING_TOKEN": str(lease.fencing_token),
        "TICKETLOCK_NAMESPACE": lease.namespace,
        "TICKETLOCK_OWNER": lease.owner,
        "TICKETLOCK_TABLE": table_name,
    }


def _hold(lease: Lease, signals: Signals, lost: threading.Event) -> bool:
    """Wait for a signal; return whether the lease was lost first."""
    while signals.ending() is None:
        if lost.is_set() or not lease.is_held():
            return True
        signals.wait(None)
    return False


def _released(lease: Lease, name: str) -> bool:
    """Release the lock; return whether it was held until then."""
    try:
        lease.release()
    except LockLost:
        return False
    except TableError as error:
        click.echo(f"ticketlock: '{name}' was not released; it is free when its lease ends: {error}", err=True)
        # Otherwise the exit of this process would try again, for as long.
        lease.detach()
    return True
