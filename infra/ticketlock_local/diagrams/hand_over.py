"""Hand-overs by callback and by polling on one time axis, each from a recorded run: one standalone SVG, narrow enough
for a phone.

The recording is a JSON file, which ``benchmarks/hand_over.py --save`` writes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from xml.etree import ElementTree

from ticketlock_local.diagrams.drawing import QUIET, canvas, finished, px, write_text

# No wider: a page on a phone has about 350 px for it.
_WIDTH, _MARGIN, _NAMES = 480, 20, 82
_TITLE, _NOTE_LINE, _NOTE_COLUMNS = 34, 18, 64
_LANE, _BAR, _DOT, _DOT_GAP = 26, 14, 2.6, 6.0
_PANEL_HEAD, _PANEL_GAP, _AXIS, _LEGEND_LINE = 44, 16, 24, 20
_WORK, _WAIT, _IDLE, _GRID, _CARD = "#4338ca", "#a5b4fc", "#fca5a5", "#e5e7eb", "#ffffff"
# It wakes a waiter, or ends a heartbeat.
_ANSWER = "SendTaskSuccess"
_KINDS = {"write": "#0f766e", "read": "#9ca3af", _ANSWER: "#ea580c"}
_READS = frozenset({"GetItem", "BatchGetItem", "Query"})


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution; times are milliseconds since the first one's start.

    Attributes:
        started: when it began to wait.
        polls: when its polls began.
        work: when its task began and ended.
    """

    started: int
    polls: Sequence[int]
    work: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Run:
    """Some executions on one entity, in the order of their works.

    Attributes:
        way: the setting of the hand-over.
        requests: each request of the lock's functions: when it was sent, and its operation.
    """

    way: str
    executions: Sequence[Execution]
    requests: Sequence[tuple[int, str]]

    @property
    def gaps(self) -> list[int]:
        """From the end of each task to the start of the next one, in milliseconds."""
        return [then.work[0] - now.work[1] for now, then in pairwise(self.executions)]


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded runs; the note says where they were recorded."""

    note: str
    runs: Sequence[Run]

    def save(self, path: Path) -> None:
        """Save the recording as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Read what ``save`` has written."""
        stored = json.loads(path.read_text())
        runs = [
            Run(
                run["way"],
                [Execution(each["started"], each["polls"], (*each["work"],)) for each in run["executions"]],
                [(at, operation) for at, operation in run["requests"]],
            )
            for run in stored["runs"]
        ]
        return cls(stored["note"], runs)


def hand_overs(recording: Recording) -> str:
    """Draw the runs, one below the other."""
    return _Drawing(recording).to_svg()


class _Drawing:
    def __init__(self, recording: Recording) -> None:
        self._runs = recording.runs
        self._last = max(each.work[1] for run in self._runs for each in run.executions) + 150
        notes = wrap(recording.note, _NOTE_COLUMNS)
        self._stacks = [_stacks(run, self._x) for run in self._runs]
        heights = [
            _PANEL_HEAD + len(run.executions) * _LANE + max(map(len, stacks)) * _DOT_GAP + _PANEL_GAP
            for run, stacks in zip(self._runs, self._stacks, strict=True)
        ]
        head = _TITLE + _NOTE_LINE * len(notes) + 4
        self._bottom = head + sum(heights)
        height = self._bottom + _AXIS + 2 * _LEGEND_LINE + 14
        title = "Hand-over by callback and by polling"
        spoken = ". ".join(f"{run.way}: {_gaps(run)} from one task to the next" for run in self._runs)
        self._svg = canvas(title, f"{recording.note} {spoken}.", _WIDTH, height)
        write_text(self._svg, _MARGIN, _TITLE, title, size=16, weight="600")
        for line, note in enumerate(notes, 1):
            write_text(self._svg, _MARGIN, _TITLE + line * _NOTE_LINE + 2, note, size=13, fill=QUIET)
        self._axis(head + _PANEL_HEAD - 6)
        y = float(head)
        for run, stacks, panel in zip(self._runs, self._stacks, heights, strict=True):
            self._run(run, stacks, y)
            y += panel
        self._legend(self._bottom + _AXIS + _LEGEND_LINE)

    def to_svg(self) -> str:
        return finished(self._svg)

    def _axis(self, top: float) -> None:
        for second in range(self._last // 1_000 + 1):
            x = self._x(second * 1_000)
            ends = {"x1": px(x), "x2": px(x), "y1": px(top), "y2": px(self._bottom)}
            self._add("line", {**ends, "stroke": _GRID})
            write_text(self._svg, x, self._bottom + 16, f"{second} s", size=12, fill=QUIET, anchor="middle")

    def _run(self, run: Run, stacks: Sequence[Sequence[tuple[float, str]]], y: float) -> None:
        write_text(self._svg, _MARGIN, y + 26, run.way, size=14, weight="600", halo=True)
        gap = f"from task to task: {_gaps(run)}"
        write_text(self._svg, _WIDTH - _MARGIN, y + 26, gap, size=13, fill=QUIET, anchor="end", halo=True)
        y += _PANEL_HEAD
        before: Execution | None = None
        for number, each in enumerate(run.executions, 1):
            middle = y + _LANE / 2
            write_text(self._svg, _MARGIN, middle + 4, f"execution {number}", size=12)
            self._bar(each.started, each.work[0], middle, 3, _WAIT)
            if before is not None:
                self._bar(before.work[1], each.work[0], middle, _BAR, _IDLE)
            self._bar(*each.work, middle, _BAR, _WORK)
            for poll in each.polls:
                self._poll(self._x(poll), middle)
            before = each
            y += _LANE
        bottom = y + max(map(len, stacks)) * _DOT_GAP + 4
        write_text(self._svg, _MARGIN, bottom, "requests", size=12)
        for stack in stacks:
            for height, (x, kind) in enumerate(stack):
                self._dot(x, bottom - _DOT - height * _DOT_GAP, kind)

    def _legend(self, y: float) -> None:
        x = self._label(_MARGIN, y, "waits", lambda at: self._rect(at, y - 4, 18, 3, _WAIT), 18)
        x = self._label(x, y, "polls", lambda at: self._poll(at + 4, y - 4), 8)
        x = self._label(x, y, "its task runs", lambda at: self._rect(at, y - 4, 18, 12, _WORK), 18)
        self._label(x, y, "no task runs", lambda at: self._rect(at, y - 4, 18, 12, _IDLE), 18)
        y += _LEGEND_LINE
        write_text(self._svg, _MARGIN, y, "requests:", size=12, fill=QUIET)
        x = _MARGIN + 64.0
        for kind in _KINDS:
            x = self._label(x, y, kind, lambda at, kind=kind: self._dot(at + 3, y - 4, kind), 6)  # type: ignore[misc]

    def _label(self, x: float, y: float, text: str, draw: Callable[[float], None], width: float) -> float:
        draw(x)
        write_text(self._svg, x + width + 6, y, text, size=12, fill=QUIET)
        return x + width + 6 + len(text) * 6.6 + 18

    def _bar(self, from_ms: int, until_ms: int, middle: float, height: float, fill: str) -> None:
        x = self._x(from_ms)
        self._rect(x, middle, max(1.0, self._x(until_ms) - x), height, fill)

    def _rect(self, x: float, middle: float, width: float, height: float, fill: str) -> None:
        box = {"x": px(x), "y": px(middle - height / 2), "width": px(width), "height": px(height)}
        self._add("rect", {**box, "fill": fill})

    def _poll(self, x: float, middle: float) -> None:
        circle = {"cx": px(x), "cy": px(middle), "r": "3.5", "fill": _CARD, "stroke": _WORK, "stroke-width": "1.5"}
        self._add("circle", circle)

    def _dot(self, x: float, y: float, kind: str) -> None:
        self._add("circle", {"cx": px(x), "cy": px(y), "r": px(_DOT), "fill": _KINDS[kind]})

    def _x(self, at_ms: int) -> float:
        left = _MARGIN + _NAMES
        return left + (_WIDTH - _MARGIN - left) * at_ms / self._last

    def _add(self, tag: str, attributes: dict[str, str]) -> None:
        ElementTree.SubElement(self._svg, tag, attributes)


def _stacks(run: Run, place: Callable[[int], float]) -> list[list[tuple[float, str]]]:
    """The requests from left to right; requests that would cover each other are stacked, the first one lowest."""
    stacks: list[list[tuple[float, str]]] = []
    for at_ms, operation in sorted(run.requests):
        x = place(at_ms)
        kind = operation if operation == _ANSWER else "read" if operation in _READS else "write"
        if stacks and x - stacks[-1][0][0] < _DOT_GAP:
            stacks[-1].append((stacks[-1][0][0], kind))
        else:
            stacks.append([(x, kind)])
    return stacks


def _gaps(run: Run) -> str:
    return " and ".join(f"{gap:,}" for gap in run.gaps) + " ms"
