"""The commands, and what becomes of an error in any of them."""

import logging
import signal
from typing import Any

import click

import ticketlock
from ticketlock.cli._acquire import acquire, release, renew
from ticketlock.cli._doctor import doctor
from ticketlock.cli._exits import Ended, after_signal, explained
from ticketlock.cli._init import init
from ticketlock.cli._limit import limit
from ticketlock.cli._local import local
from ticketlock.cli._run import run as run_command
from ticketlock.cli._settings import group_options, settings_of
from ticketlock.cli._show import list_locks, show


class _Explaining(click.Group):
    """Says in one line what went wrong."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Ended(None, after_signal(signal.SIGINT)) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            settings = settings_of(ctx)
            known = explained(error, table=settings.table, place=settings.place())
            if known is None:
                raise
            raise known from error


@click.group(cls=_Explaining, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(ticketlock.__version__, package_name="ticketlock", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Say what happens; twice: the AWS SDK's requests as well.")
@group_options
@click.pass_context
def _ticketlock(context: click.Context, verbose: int) -> None:
    """FIFO locks on a DynamoDB table."""
    if verbose:
        _log_to_stderr(context, logging.getLogger(None if verbose > 1 else "ticketlock"))


def _log_to_stderr(context: click.Context, logger: logging.Logger) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def stop() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    context.call_on_close(stop)


for _command in (acquire, doctor, init, limit, list_locks, local, release, renew, run_command, show):
    _ticketlock.add_command(_command)


def run() -> int:
    """Run the command line of this process, and return its exit code."""
    try:
        _ticketlock.main(prog_name="ticketlock")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
