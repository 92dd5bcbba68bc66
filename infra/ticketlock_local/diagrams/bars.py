"""Figures of a benchmark as horizontal bars, in one standalone SVG, readable on light and dark pages and on a phone.

The figures are a JSON file under ``docs/figures``, which the benchmark writes: a title, what is measured, and groups of
bars, each group with a unit and a scale of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from xml.etree import ElementTree

from ticketlock_local.diagrams.drawing import QUIET, canvas, finished, px, write_text

_COLOURS = ("#0f766e", "#2dd4bf", "#6b7280", "#d1d5db", "#9ca3af")
# No wider: a page on a phone has about 350 px for it.
_WIDTH, _MARGIN = 480, 20
_LINE, _GROUP_GAP, _NOTE_LINE, _TITLE = 22, 16, 18, 34
_NAME_PX, _NOTE_COLUMNS = 7.2, 64


@dataclass(frozen=True, slots=True)
class Bar:
    """One side of a comparison."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that are compared with each other; each value is followed by the unit."""

    name: str
    unit: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one benchmark.

    Attributes:
        title: what is compared.
        note: what was measured and where, and whether less or more is better.
    """

    title: str
    note: str
    groups: Sequence[Group]

    def save(self, path: Path) -> None:
        """Save the figures as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Figures":
        """Read what ``save`` has written."""
        stored = json.loads(path.read_text())
        groups = [
            Group(group["name"], group["unit"], [Bar(**bar) for bar in group["bars"]]) for group in stored["groups"]
        ]
        return cls(stored["title"], stored["note"], groups)


def bars(figures: Figures) -> str:
    """Draw them."""
    every_bar = [(group, bar) for group in figures.groups for bar in group.bars]
    names = max(len(bar.name) for _, bar in every_bar) * _NAME_PX + 10
    longest = _WIDTH - 2 * _MARGIN - names - max(len(_told(group, bar)) for group, bar in every_bar) * _NAME_PX - 10
    notes = wrap(figures.note, _NOTE_COLUMNS)
    head = _TITLE + _NOTE_LINE * len(notes)
    height = head + (len(every_bar) + len(figures.groups)) * _LINE + _GROUP_GAP * len(figures.groups) + _MARGIN
    spoken = "; ".join(
        f"{group.name}: " + ", ".join(f"{bar.name} {_told(group, bar)}" for bar in group.bars)
        for group in figures.groups
    )
    svg = canvas(figures.title, f"{figures.note} {spoken}.", _WIDTH, height)
    write_text(svg, _MARGIN, _TITLE, figures.title, size=16, weight="600")
    for line, note in enumerate(notes, 1):
        write_text(svg, _MARGIN, _TITLE + line * _NOTE_LINE + 2, note, size=13, fill=QUIET)
    colours = _colours(figures.groups)
    left, y = _MARGIN + names, float(head)
    for group in figures.groups:
        y += _GROUP_GAP + _LINE
        write_text(svg, _MARGIN, y - 8, group.name, size=13, weight="600")
        most = max(bar.value for bar in group.bars)
        for bar in group.bars:
            length = longest * bar.value / most
            write_text(svg, left - 10, y + 14, bar.name, size=13, anchor="end")
            box = {"x": px(left), "y": px(y + 2), "height": "15", "rx": "2"}
            ElementTree.SubElement(svg, "rect", {**box, "width": px(max(1.0, length)), "fill": colours[bar.name]})
            write_text(svg, left + length + 8, y + 14, _told(group, bar), size=13, fill=QUIET)
            y += _LINE
    return finished(svg)


def _told(group: Group, bar: Bar) -> str:
    value = f"{bar.value:,.0f}" if bar.value >= 100 or bar.value == int(bar.value) else f"{bar.value:.1f}"
    return f"{value} {group.unit}".rstrip()


def _colours(groups: Sequence[Group]) -> Mapping[str, str]:
    names = list(dict.fromkeys(bar.name for group in groups for bar in group.bars))
    return {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(names)}
