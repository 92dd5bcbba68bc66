"""The timeline of executions in a terminal: one lane each, grouped by entity, over a clock axis."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ticketlock_local.demo.executions import Execution

_COLORS = ("blue", "green", "magenta", "yellow")
_ASKING, _WAITING, _HOLDING = "·", "─", "█"
_NARROWEST = 20
_FEWEST_SECONDS = 15.0
_SECONDS_PER_TICK = (1, 2, 5, 10, 30, 60, 300, 600, 3_600)
_CELLS_PER_TICK = 8


class Timeline:
    """A rich renderable: the executions up to a moment.

    Args:
        executions: the executions so far; they are grouped by entity, in the given order.
        now_ms: the right end of the running lanes, milliseconds since the epoch.
    """

    def __init__(self, executions: Iterable[Execution], now_ms: int) -> None:
        self._runs = [run for run in executions if run.started_ms]
        self._now_ms = now_ms

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._runs:
            yield Text("starting ...", style="dim")
            return
        origin = min(run.started_ms for run in self._runs)
        name_width = max(len(run.name) for run in self._runs)
        state_width = max(len(_state(run, self._now_ms)) for run in self._runs)
        cells = max(_NARROWEST, options.max_width - name_width - state_width - 3)
        last_ms = max(self._end_ms(run) for run in self._runs)
        seconds = max(_FEWEST_SECONDS, (last_ms - origin) / 1_000)
        cell_ms = seconds * 1_000 / cells
        groups = groupby(sorted(self._runs, key=lambda run: run.entity), key=lambda run: run.entity)
        for index, (entity, runs) in enumerate(groups):
            color = _COLORS[index % len(_COLORS)]
            yield Text(entity, style=f"bold {color}")
            for run in runs:
                bar = lane(run, origin, self._end_ms(run), cell_ms, cells)
                line = Text(f"{run.name:<{name_width}} ", no_wrap=True, overflow="crop")
                for kind, same in groupby(bar):
                    line.append("".join(same), style=color if kind == _HOLDING else f"dim {color}")
                line.append(f" {_state(run, self._now_ms)}", style="red" if run.error else "dim")
                yield line
        yield Text(" " * (name_width + 1) + axis(seconds, cells), style="dim", no_wrap=True, overflow="crop")
        yield Text(f"{_ASKING} asking   {_WAITING} waiting for its turn   {_HOLDING} holding the lock", style="dim")

    def _end_ms(self, run: Execution) -> int:
        return run.ended_ms if run.ended_ms is not None else max(self._now_ms, run.started_ms)


class Lines:
    """For pipes and logs: a line for each event, in time order."""

    def __init__(self) -> None:
        self._told: set[tuple[int, str]] = set()

    def show(self, runs: Sequence[Execution], now_ms: int) -> None:
        """Print what is new.

        Args:
            runs: the executions, as they were read.
            now_ms: a moment before they were read: later events wait for the next call, as earlier ones may come.
        """
        origin = min(run.started_ms for run in runs)
        new = {event for run in runs for event in events(run) if event[0] <= now_ms} - self._told
        for at_ms, text in sorted(new):
            print(f"{(at_ms - origin) / 1_000:6.2f} s  {text}", flush=True)
        self._told |= new


def lane(run: Execution, origin_ms: int, end_ms: int, cell_ms: float, cells: int) -> str:
    """Draw one execution's bar, one character for each span of time; a hold is at least one character."""

    def cell(at_ms: int) -> int:
        return min(cells, max(0, round((at_ms - origin_ms) / cell_ms)))

    start, end = cell(run.started_ms), cell(end_ms)
    asked = cell(run.ticket_ms) if run.ticket_ms is not None else end
    if run.held_from_ms is None:
        bar = " " * start + _ASKING * (min(asked, end) - start) + _WAITING * (end - asked)
        return bar.ljust(cells)
    held = min(cell(run.held_from_ms), cells - 1)
    left = cell(run.held_until_ms) if run.held_until_ms is not None else end
    bar = " " * start + _ASKING * (asked - start) + _WAITING * (held - asked)
    return (bar[:held].ljust(held) + _HOLDING * max(1, left - held)).ljust(cells)


def axis(seconds: float, cells: int) -> str:
    """Draw the clock: marks at round seconds, far enough apart to be read."""
    step = next((s for s in _SECONDS_PER_TICK if s * cells / seconds >= _CELLS_PER_TICK), _SECONDS_PER_TICK[-1])
    line = [" "] * cells
    for tick in range(0, int(seconds) + 1, step):
        label = f"╵{tick} s"
        at = round(tick * cells / seconds)
        if at + len(label) <= cells:
            line[at : at + len(label)] = label
    return "".join(line)


def events(run: Execution) -> Sequence[tuple[int, str]]:
    """List the execution's events so far: times in milliseconds since the epoch, and what happened."""
    found: list[tuple[int, str]] = [(run.started_ms, f"{run.name} starts")]
    if run.ticket_ms is not None and run.ticket is not None and (run.polls or run.fencing_token is None):
        found.append((run.ticket_ms, f"{run.name} waits for its turn, ticket {run.ticket}"))
    if run.held_from_ms is not None:
        numbers = f"ticket {run.ticket}, fencing token {run.fencing_token}"
        found.append((run.held_from_ms, f"{run.name} holds {run.entity}: {numbers}"))
    if run.ended_ms is not None:
        found.append((run.ended_ms, f"{run.name} {_ending(run)}"))
    return found


def _ending(run: Execution) -> str:
    return "is done" if run.status == "SUCCEEDED" else f"ended as {run.status} {run.error}".rstrip()


def _state(run: Execution, now_ms: int) -> str:
    if run.ended_ms is not None:
        return "done" if run.status == "SUCCEEDED" else run.status
    if run.held_from_ms is not None:
        return "holding"
    return f"{max(0, now_ms - run.started_ms) / 1_000:4.1f} s"
