"""``ticketlock report``: the busy locks and the open units as a page of HTML, for people without a terminal."""

import errno
import os
import shutil
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from ticketlock.cli._exits import CONFIGURATION, OUTPUT_LOST, UNAVAILABLE, USAGE, Explained
from ticketlock.cli._options import reading_options, table_options
from ticketlock.cli._settings import settings_of
from ticketlock.cli._units import Desk
from ticketlock.report import MOST_LOCKS, TableReader, page

# A file that is mounted, or in a folder that cannot be written.
_CANNOT_BE_REPLACED = (errno.EACCES, errno.EBUSY, errno.EROFS, errno.EXDEV)

_STDOUT = "-"


@click.command(
    cls=Explained,
    example="ticketlock report -o report.html\nticketlock report -o report.html --stuck --units-table units",
    ends=(0, USAGE, UNAVAILABLE, OUTPUT_LOST, CONFIGURATION),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    metavar="FILE",
    required=True,
    help="Write the page to this file, which is never half written; - for stdout.",
)
@reading_options
@table_options
@click.pass_context
def report(context: click.Context, output: str, namespace: str | None, prefix: str, stuck: bool) -> None:
    """Write a page of HTML: who is stuck, who waits and for how long, and what to do next.

    The page needs no network, and runs no script. It shows what one reading has found; its costs are those of a reading
    of `top`, and the whole queues of the locks on the page.
    """
    settings = settings_of(context)
    table, units = settings.lock_table(), Desk(settings) if settings.units_table else None
    reader = TableReader(table=table, units=units, namespace=namespace, prefix=prefix, stuck=stuck)
    typed = partial(settings.command, anywhere=True)
    made = page(reader, reader.read(whole=MOST_LOCKS), settings.place(), typed).encode()
    if output == _STDOUT:
        click.echo(made, nl=False)
        return
    try:
        _replace(Path(output), made)
    except OSError as error:
        raise click.BadParameter(f"{output!r} cannot be written: {error.strerror}", param_hint="'-o'") from error


def _replace(path: Path, content: bytes) -> None:
    """Write a file in one step: who reads it meanwhile gets the old content or the new one; but one that is mounted, or
    in a folder that cannot be written, in place.
    """
    # A pipe or a device, which resolved is /proc/1/fd/pipe:[2], and cannot be opened.
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()
    # Unlike a file of tempfile it has the usual permissions: a web server reads it.
    new = path.with_name(f".ticketlock-{uuid.uuid4().hex}")
    try:
        new.write_bytes(content)
        with suppress(FileNotFoundError):
            shutil.copymode(path, new)
        os.replace(new, path)
    except BaseException as error:
        new.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno not in _CANNOT_BE_REPLACED or not path.exists():
            raise
        path.write_bytes(content)
