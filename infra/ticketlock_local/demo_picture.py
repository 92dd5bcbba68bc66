"""The timeline as a picture: one standalone SVG, readable on light and dark pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from ticketlock_local.demo_checks import by_entity
from ticketlock_local.executions import Execution

_WIDTH = 960
_LEFT, _RIGHT = 200, 920
_TOP = 104
_LANE, _BAR, _GROUP_GAP = 22, 12, 30
_AXIS_STEPS = (1, 2, 5, 10, 30, 60, 300)
_MOST_TICKS = 14
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_INK, _QUIET, _GRID, _CARD, _EDGE = "#111827", "#6b7280", "#e5e7eb", "#ffffff", "#d1d5db"


@dataclass(frozen=True, slots=True)
class _Hue:
    waiting: str
    holding: str
    work: str


_HUES = (_Hue("#c7d2fe", "#a5b4fc", "#4338ca"), _Hue("#99f6e4", "#5eead4", "#0f766e"))


class Picture:
    """A drawing of ended executions.

    Args:
        executions: grouped by entity; each group is drawn in the order of its holds.
        title: the headline.
        subtitle: the line under it.
    """

    def __init__(self, executions: Iterable[Execution], *, title: str, subtitle: str) -> None:
        runs = list(executions)
        self._groups = by_entity(runs)
        self._origin = min((run.started_ms for run in runs), default=0)
        self._last = max((run.ended_ms or run.started_ms for run in runs), default=self._origin + 1_000)
        lanes, gaps = len(runs) * _LANE, len(self._groups) * _GROUP_GAP
        self._bottom = _TOP + lanes + gaps
        height = self._bottom + 56
        self._svg = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {_WIDTH} {height}",
                "width": f"{_WIDTH}",
                "height": f"{height}",
                "role": "img",
                "font-family": _FONT,
            },
        )
        self._add("title", title)
        self._add("desc", subtitle)
        self._rect(0.5, 0.5, _WIDTH - 1, height - 1, _CARD, radius=12, stroke=_EDGE)
        self._text(32, 42, title, size=20, weight="600")
        self._text(32, 66, subtitle, size=13, fill=_QUIET)
        self._axis()
        self._lanes()
        self._legend(height - 24)

    def to_svg(self) -> str:
        """Return the document."""
        ElementTree.indent(self._svg)
        return ElementTree.tostring(self._svg, encoding="unicode") + "\n"

    def _axis(self) -> None:
        seconds = (self._last - self._origin) / 1_000
        step = next((s for s in _AXIS_STEPS if seconds / s <= _MOST_TICKS), _AXIS_STEPS[-1])
        for tick in range(0, int(seconds) + 1, step):
            x = self._x(self._origin + tick * 1_000)
            ends = {"x1": _number(x), "x2": _number(x), "y1": f"{_TOP - 8}", "y2": f"{self._bottom - 8}"}
            self._add("line", attributes={**ends, "stroke": _GRID})
            self._text(x, self._bottom + 10, f"{tick} s", size=11, fill=_QUIET, anchor="middle")

    def _lanes(self) -> None:
        y = _TOP
        for index, (entity, runs) in enumerate(self._groups.items()):
            hue = _HUES[index % len(_HUES)]
            self._text(32, y + 12, entity, size=13, weight="600", fill=hue.work)
            y += _GROUP_GAP - 8
            for run in runs:
                self._lane(run, y, hue)
                y += _LANE
            y += 8

    def _lane(self, run: Execution, y: int, hue: _Hue) -> None:
        middle = y + _LANE // 2
        self._text(32, middle + 4, f"{run.name}", size=12)
        self._text(_LEFT - 14, middle + 4, f"{_short(run.ticket)}", size=12, fill=_QUIET, anchor="end")
        waited_until = run.held_from_ms or run.ended_ms or self._last
        self._span(run.started_ms, waited_until, middle, 3, hue.waiting)
        if run.held_from_ms is not None:
            self._span(run.held_from_ms, run.held_until_ms or self._last, middle, _BAR, hue.holding)
        if run.work_started_ms is not None and run.work_ended_ms is not None:
            self._span(run.work_started_ms, run.work_ended_ms, middle, _BAR, hue.work)
        if run.ticket_ms is not None:
            centre = {"cx": _number(self._x(run.ticket_ms)), "cy": f"{middle}", "r": "3.5"}
            self._add("circle", attributes={**centre, "fill": _CARD, "stroke": hue.work, "stroke-width": "1.5"})

    def _legend(self, y: int) -> None:
        hue = _HUES[0]
        self._add("circle", attributes={"cx": "36", "cy": f"{y - 4}", "r": "3.5", "fill": _CARD, "stroke": hue.work})
        for x, height, color in ((148, 3, hue.waiting), (306, _BAR, hue.holding), (444, _BAR, hue.work)):
            self._rect(x, y - 4 - height / 2, 24, height, color, radius=1.5)
        labels = ((46, "takes its ticket"), (178, "waits for its turn"), (336, "holds the lock"), (474, "works"))
        for x, label in labels:
            self._text(x, y, label, size=12, fill=_QUIET)
        self._text(_WIDTH - 32, y, "…  the last digits of the ticket", size=12, fill=_QUIET, anchor="end")

    def _span(self, from_ms: int, until_ms: int, middle: int, height: int, color: str) -> None:
        x = self._x(from_ms)
        self._rect(x, middle - height / 2, max(1.0, self._x(until_ms) - x), height, color, radius=1.5)

    def _x(self, at_ms: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (at_ms - self._origin) / max(1, self._last - self._origin)

    def _rect(
        self, x: float, y: float, width: float, height: float, fill: str, *, radius: float, stroke: str = "none"
    ) -> None:
        box = {"x": _number(x), "y": _number(y), "width": _number(width), "height": _number(height)}
        self._add("rect", attributes={**box, "rx": _number(radius), "fill": fill, "stroke": stroke})

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
        look = {"font-size": f"{size}", "font-weight": weight, "fill": fill, "text-anchor": anchor}
        self._add("text", text, {"x": _number(x), "y": _number(y), **look})

    def _add(self, tag: str, text: str | None = None, attributes: dict[str, str] | None = None) -> None:
        ElementTree.SubElement(self._svg, tag, attributes or {}).text = None if text is None else _printable(text)


def _short(ticket: int | None) -> str:
    return "" if ticket is None else f"…{str(ticket)[-4:]}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _printable(text: str) -> str:
    # Entities may have characters that XML cannot write at all.
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def summary(executions: Sequence[Execution]) -> tuple[str, str]:
    """Return a title and a subtitle that say what these executions are."""
    groups = by_entity(executions)
    counts = ", ".join(f"{len(runs)} on {entity}" for entity, runs in groups.items())
    title = "One at a time for each entity, in ticket order"
    return title, f"{len(executions)} workflows started within two seconds: {counts}. Recorded by make demo."
