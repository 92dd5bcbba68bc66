"""Reading again and again: redrawn on a terminal, one report after the other in a pipe, or a line of JSON a reading."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from ticketlock.cli._signals import Signals, Stopped
from ticketlock.cli._wording import console
from ticketlock.errors import OutcomeUnknown, RequestNotApplied
from ticketlock.report import span

T = TypeVar("T")


def watch(
    read: Callable[[], T],
    *,
    every_s: float,
    to_json: Callable[[T], Any] | None,
    report: Callable[[T, int | None], RenderableType],
) -> None:
    """Show reading after reading until a signal arrives, which breaks a reading off; the last frame stays.

    If the table cannot be reached, or throttles, the last reading stays, with its age. The first reading must succeed.

    Args:
        read: takes a reading.
        every_s: the pause between two readings, in seconds.
        to_json: makes of a reading what is printed as a line of JSON; None for a report to people.
        report: makes the report. Gets the number of lines that there are on the terminal; None for any number.
    """
    with Signals() as signals, ExitStack() as stack:
        show = _json_lines(to_json) if to_json is not None else _reports(report, stack)
        last: T | None = None
        read_s = time.monotonic()
        while signals.ending() is None:
            try:
                with signals.breaking_off():
                    last = read()
            except Stopped:
                break
            except (RequestNotApplied, OutcomeUnknown) as error:
                if last is None:
                    raise
                show(last, f"no reading for {span(round((time.monotonic() - read_s) * 1_000))}: {error}")
            else:
                read_s = time.monotonic()
                show(last, None)
            signals.wait(every_s)


Show = Callable[[T, str | None], None]
"""Shows a reading; or, with the reason, that the last one is still the newest."""


def _json_lines(to_json: Callable[[T], Any]) -> Show[T]:
    def show(reading: T, failed: str | None) -> None:
        if failed is None:
            click.echo(json.dumps(to_json(reading), ensure_ascii=False))
        else:
            _say(failed)

    return show


def _reports(report: Callable[[T, int | None], RenderableType], stack: ExitStack) -> Show[T]:
    screen = console()
    if not screen.is_terminal or screen.is_dumb_terminal:

        def show_next(reading: T, failed: str | None) -> None:
            if failed is None:
                screen.print(report(reading, None), end="\n\n")
            else:
                _say(failed)

        return show_next
    # At the end the last frame stays.
    live = stack.enter_context(Live(console=screen, auto_refresh=False))

    def show_again(reading: T, failed: str | None) -> None:
        # The cursor stands below the frame.
        lines = screen.height - 1
        frame = report(reading, lines if failed is None else lines - 1)
        if failed is not None:
            frame = Group(Text(failed, style="bold red", no_wrap=True, overflow="ellipsis"), frame)
        live.update(Cropped(frame, lines), refresh=True)

    return show_again


def _say(failed: str) -> None:
    click.echo(f"ticketlock: {failed}", err=True)


class Cropped:
    """The first lines of a report, and how many more there are.

    Args:
        report: the report.
        most: the number of lines that there is room for; None for any number.
    """

    def __init__(self, report: RenderableType, most: int | None) -> None:
        self._report = report
        self._most = most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._report, options.update(height=None), pad=False)
        most = len(lines) if self._most is None else max(self._most, 2)
        left = len(lines) - most
        for line in lines if left <= 0 else lines[: most - 1]:
            yield from line
            yield Segment.line()
        if left > 0:
            yield Text(f"… {left + 1} more lines", style="dim")
