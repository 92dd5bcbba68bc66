"""Waits and holds as a picture: one standalone SVG, readable on light and dark pages; and that of the demo."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal
from xml.etree import ElementTree

from ticketlock_local.demo.checks import by_entity
from ticketlock_local.demo.executions import Execution

Kind = Literal["waiting", "holding", "work", "unknown"]

# A page on a phone has about 350 px for it.
_NARROWEST = 520
_LEFT, _MARGIN, _INSET = 152, 32, 20
_TITLE, _SUBTITLE_LINE, _LEGEND_LINE = 38, 18, 20
_LETTER = 6.9
_LANE, _BAR, _LINE, _GROUP_GAP = 22, 12, 3, 30
_AXIS_STEPS = (1, 2, 5, 10, 30, 60, 300)
_PIXELS_A_TICK = 51
_LABEL_WIDTH = 34
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_INK, _QUIET, _GRID, _CARD, _EDGE = "#111827", "#6b7280", "#e5e7eb", "#ffffff", "#d1d5db"
_HUES: Sequence[Mapping[Kind, str]] = (
    {"waiting": "#c7d2fe", "holding": "#a5b4fc", "work": "#4338ca", "unknown": "#fca5a5"},
    {"waiting": "#99f6e4", "holding": "#5eead4", "work": "#0f766e", "unknown": "#fca5a5"},
)
_HEIGHTS: Mapping[Kind, int] = {"waiting": _LINE, "holding": _BAR, "work": _BAR, "unknown": _LINE}


@dataclass(frozen=True, slots=True)
class Span:
    """A time span in a lane, in milliseconds of any one clock; ``label`` is written on it if it fits."""

    kind: Kind
    from_ms: int
    until_ms: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """The lane of one process or execution.

    Attributes:
        note: beside its name.
        spans: its time spans, drawn on top of each other.
        marks: moments at which it took a ticket.
    """

    name: str
    note: str
    spans: Sequence[Span]
    marks: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Legend:
    """The legend of the marks and the spans, and one more line."""

    mark: str
    waiting: str
    holding: str
    work: str
    note: str


class Picture:
    """A drawing of what happened on some entities.

    Args:
        groups: the lanes of each entity, from top to bottom.
        title: the headline.
        subtitle: the line under it.
        pixels_a_second: how wide a second is, unless the picture would be too narrow for its words.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[Lane]],
        *,
        title: str,
        subtitle: str,
        legend: Legend,
        pixels_a_second: int = 48,
    ) -> None:
        self._groups = groups
        lanes = [lane for group in groups.values() for lane in group]
        spans = [span for lane in lanes for span in lane.spans]
        self._origin = min((span.from_ms for span in spans), default=0)
        self._last = max((span.until_ms for span in spans), default=self._origin + 1_000)
        seconds = (self._last - self._origin) / 1_000
        width = max(_NARROWEST, _LEFT + _MARGIN + round(seconds * pixels_a_second))
        self._right = width - _MARGIN
        lines = wrap(subtitle, int((width - 2 * _INSET) / _LETTER))
        self._top = _TITLE + len(lines) * _SUBTITLE_LINE + 26
        self._bottom = self._top + len(lanes) * _LANE + len(groups) * _GROUP_GAP
        height = self._bottom + 2 * _LEGEND_LINE + 34
        self._svg = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {width} {height}",
                "width": f"{width}",
                "height": f"{height}",
                "role": "img",
                "font-family": _FONT,
            },
        )
        self._add("title", title)
        self._add("desc", subtitle)
        self._rect(0.5, 0.5, width - 1, height - 1, _CARD, radius=12, stroke=_EDGE)
        self._text(_INSET, _TITLE, title, size=18, weight="600")
        for number, line in enumerate(lines, 1):
            self._text(_INSET, _TITLE + number * _SUBTITLE_LINE + 4, line, size=13, fill=_QUIET)
        self._axis(seconds)
        self._lanes()
        self._legend(legend, self._bottom + _LEGEND_LINE + 18)

    def to_svg(self) -> str:
        """Return the document."""
        ElementTree.indent(self._svg)
        return ElementTree.tostring(self._svg, encoding="unicode") + "\n"

    def _axis(self, seconds: float) -> None:
        most = (self._right - _LEFT) / _PIXELS_A_TICK
        step = next((s for s in _AXIS_STEPS if seconds / s <= most), _AXIS_STEPS[-1])
        for tick in range(0, int(seconds) + 1, step):
            x = self._x(self._origin + tick * 1_000)
            ends = {"x1": _number(x), "x2": _number(x), "y1": f"{self._top - 8}", "y2": f"{self._bottom - 8}"}
            self._add("line", attributes={**ends, "stroke": _GRID})
            self._text(x, self._bottom + 10, f"{tick} s", size=12, fill=_QUIET, anchor="middle")

    def _lanes(self) -> None:
        y = self._top
        for index, (entity, lanes) in enumerate(self._groups.items()):
            hue = _HUES[index % len(_HUES)]
            self._text(_INSET, y + 12, entity, size=13, weight="600", fill=hue["work"])
            y += _GROUP_GAP - 8
            for lane in lanes:
                self._lane(lane, y, hue)
                y += _LANE
            y += 8

    def _lane(self, lane: Lane, y: int, hue: Mapping[Kind, str]) -> None:
        middle = y + _LANE // 2
        self._text(_INSET, middle + 4, lane.name, size=12)
        self._text(_LEFT - 14, middle + 4, lane.note, size=12, fill=_QUIET, anchor="end")
        for span in lane.spans:
            x, height = self._x(span.from_ms), _HEIGHTS[span.kind]
            width = max(1.0, self._x(span.until_ms) - x)
            box = self._rect(x, middle - height / 2, width, height, hue[span.kind], radius=1.5)
            if span.label:
                # A tooltip, even for a narrow span.
                ElementTree.SubElement(box, "title").text = _printable(span.label)
            if span.label and width >= _LABEL_WIDTH:
                self._text(x + 4, middle + 4, span.label, size=10, fill=_CARD)
        for mark in lane.marks:
            centre = {"cx": _number(self._x(mark)), "cy": f"{middle}", "r": "3.5"}
            self._add("circle", attributes={**centre, "fill": _CARD} | _edge(hue))

    def _legend(self, legend: Legend, y: int) -> None:
        hue = _HUES[0]
        x = float(_INSET)
        self._add("circle", attributes={"cx": _number(x + 4), "cy": f"{y - 4}", "r": "3.5", "fill": _CARD} | _edge(hue))
        x = self._label(x + 14, y, legend.mark)
        kinds: Sequence[tuple[Kind, str]] = (("waiting", legend.waiting), ("holding", legend.holding))
        for kind, label in kinds:
            x = self._kind(kind, x, y, label)
        y += _LEGEND_LINE
        self._text(self._kind("work", _INSET, y, legend.work), y, legend.note, size=12, fill=_QUIET)

    def _kind(self, kind: Kind, x: float, y: int, label: str) -> float:
        height = _HEIGHTS[kind]
        self._rect(x, y - 4 - height / 2, 18, height, _HUES[0][kind], radius=1.5)
        return self._label(x + 24, y, label)

    def _label(self, x: float, y: int, label: str) -> float:
        """Write a word of the legend; returns where the next one begins."""
        self._text(x, y, label, size=12, fill=_QUIET)
        return x + len(label) * _LETTER + 12

    def _x(self, at_ms: int) -> float:
        return _LEFT + (self._right - _LEFT) * (at_ms - self._origin) / max(1, self._last - self._origin)

    def _rect(
        self, x: float, y: float, width: float, height: float, fill: str, *, radius: float, stroke: str = "none"
    ) -> ElementTree.Element:
        box = {"x": _number(x), "y": _number(y), "width": _number(width), "height": _number(height)}
        return self._add("rect", attributes={**box, "rx": _number(radius), "fill": fill, "stroke": stroke})

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int,
        fill: str = _INK,
        weight: str = "400",
        anchor: str = "start",
    ) -> None:
        style = {"font-size": f"{size}", "font-weight": weight, "fill": fill, "text-anchor": anchor}
        self._add("text", text, {"x": _number(x), "y": _number(y), **style})

    def _add(self, tag: str, text: str | None = None, attributes: dict[str, str] | None = None) -> ElementTree.Element:
        added = ElementTree.SubElement(self._svg, tag, attributes or {})
        added.text = None if text is None else _printable(text)
        return added


def _edge(hue: Mapping[Kind, str]) -> dict[str, str]:
    return {"stroke": hue["work"], "stroke-width": "1.5"}


def short(number: int | None) -> str:
    """The last digits of a ticket or a token; nothing for none."""
    return "" if number is None else f"…{str(number)[-4:]}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _printable(text: str) -> str:
    # Entities may have characters that are not allowed in XML.
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


_OF_THE_DEMO = Legend(
    mark="takes its ticket",
    waiting="waits",
    holding="holds the lock",
    work="works",
    note="…  the last digits of the ticket",
)


def picture(executions: Sequence[Execution]) -> Picture:
    """Draw executions, grouped by entity, in the order of their holds."""
    last_ms = max((run.ended_ms or run.started_ms for run in executions), default=0)
    lanes = {entity: [_lane(run, last_ms) for run in runs] for entity, runs in by_entity(executions).items()}
    counts = ", ".join(f"{len(runs)} on {entity}" for entity, runs in lanes.items())
    starts = [run.started_ms for run in executions] or [0]
    within_s = math.ceil((max(starts) - min(starts)) / 1_000)
    return Picture(
        lanes,
        title="One at a time for each entity, in ticket order",
        subtitle=f"{len(executions)} workflows started within {within_s} s: {counts}. Recorded by make demo.",
        legend=_OF_THE_DEMO,
        pixels_a_second=26,
    )


def _lane(run: Execution, last_ms: int) -> Lane:
    spans = [Span("waiting", run.started_ms, run.held_from_ms or run.ended_ms or last_ms)]
    if run.held_from_ms is not None:
        spans.append(Span("holding", run.held_from_ms, run.held_until_ms or last_ms))
    if run.work_started_ms is not None and run.work_ended_ms is not None:
        spans.append(Span("work", run.work_started_ms, run.work_ended_ms))
    return Lane(run.name, short(run.ticket), spans, [run.ticket_ms] if run.ticket_ms is not None else [])
