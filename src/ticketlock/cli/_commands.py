"""All commands, and how an error in any of them is reported."""

import logging
import signal
from typing import Any

import click

import ticketlock
from ticketlock.cli._doctor import doctor
from ticketlock.cli._exits import ANSWER_WAS_NO, Ended, after_signal, explained, say_wrong_usage
from ticketlock.cli._holding import acquire, release, renew
from ticketlock.cli._local import local
from ticketlock.cli._operate import init, limit, remove_waiter
from ticketlock.cli._options import group_options
from ticketlock.cli._report import report
from ticketlock.cli._run import run as run_command
from ticketlock.cli._settings import settings_of
from ticketlock.cli._show import list_locks, show
from ticketlock.cli._streams import OutputLost, guarded_streams
from ticketlock.cli._top import top
from ticketlock.cli._units import units

# How a group ends that is run without a command, since click 8.2.
_ONLY_HELP: type[click.UsageError] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _Explaining(click.Group):
    """Reports an error in one line."""

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


@click.group(
    cls=_Explaining,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`ticketlock COMMAND --help` has an example of each, and its exit codes.",
)
@click.version_option(ticketlock.__version__, package_name="ticketlock", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Log what happens; twice: the AWS SDK's requests too.")
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


for _command in (
    acquire,
    doctor,
    init,
    limit,
    list_locks,
    local,
    release,
    remove_waiter,
    renew,
    report,
    run_command,
    show,
    top,
    units,
):
    _ticketlock.add_command(_command)


def run() -> int:
    """Run the command line of this process, and return its exit code."""
    with guarded_streams():
        code = _run()
    return code if isinstance(code, int) else int(code is not None)


def _run() -> Any:
    try:
        return _ticketlock.main(prog_name="ticketlock", standalone_mode=False)
    except SystemExit as end:  # of shell completion
        return end.code
    except click.Abort:
        click.echo("ticketlock: nothing was done: you declined the confirmation", err=True)
        return ANSWER_WAS_NO
    except _ONLY_HELP as asked:
        asked.show()
        return asked.exit_code
    except click.UsageError as wrong:
        say_wrong_usage(wrong)
        return wrong.exit_code
    except OutputLost as lost:
        return _ended(lost.end())
    except click.ClickException as ended:
        return _ended(ended)


def _ended(ended: click.ClickException) -> int:
    ended.show()
    return ended.exit_code
