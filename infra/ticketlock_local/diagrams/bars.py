"""Figures of a benchmark as horizontal bars, in one standalone SVG, readable on light and dark pages.

The figures are a JSON file under ``docs/figures``, which the benchmark writes: a title, what is measured, and groups of
bars, each group with a scale of its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from ticketlock_local.diagrams.drawing import QUIET, canvas, finished, px, write_text

_COLOURS = ("#0f766e", "#2dd4bf", "#6b7280", "#d1d5db", "#9ca3af")
_LINE, _GROUP_GAP, _HEAD = 22, 16, 62
_NAMES, _LONGEST, _VALUES = 190, 420, 90
_NAME_PX = 6.6


@dataclass(frozen=True, slots=True)
class Bar:
    """One side of a comparison."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that are compared with each other."""

    name: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one benchmark.

    Attributes:
        title: what is compared.
        note: what was measured and where, and whether less or more is better.
        unit: of the values.
    """

    title: str
    note: str
    unit: str
    groups: Sequence[Group]

    def save(self, path: Path) -> None:
        """Save the figures as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Figures":
        """Read what ``save`` has written."""
        told = json.loads(path.read_text())
        groups = [Group(group["name"], [Bar(**bar) for bar in group["bars"]]) for group in told["groups"]]
        return cls(told["title"], told["note"], told["unit"], groups)


def bars(figures: Figures) -> str:
    """Draw them."""
    lines = sum(len(group.bars) + 1 for group in figures.groups)
    width = 2 * 28 + _NAMES + _LONGEST + _VALUES
    height = _HEAD + lines * _LINE + _GROUP_GAP * len(figures.groups) + 12
    spoken = "; ".join(
        f"{group.name}: " + ", ".join(f"{bar.name} {_told(bar.value)} {figures.unit}" for bar in group.bars)
        for group in figures.groups
    )
    svg = canvas(figures.title, f"{figures.note}. {spoken}.", width, height)
    write_text(svg, 28, 32, figures.title, size=15, weight="600")
    write_text(svg, 28, 52, figures.note, size=11, fill=QUIET)
    colours = _colours(figures.groups)
    y = float(_HEAD)
    for group in figures.groups:
        y += _GROUP_GAP + _LINE
        write_text(svg, 28, y - 8, group.name, size=12, weight="600")
        longest = max(bar.value for bar in group.bars)
        for bar in group.bars:
            length = _LONGEST * bar.value / longest
            write_text(svg, 28 + _NAMES - 10, y + 13, bar.name, size=11, anchor="end")
            box = {"x": px(28 + _NAMES), "y": px(y + 2), "height": "15", "rx": "2"}
            ElementTree.SubElement(svg, "rect", {**box, "width": px(length), "fill": colours[bar.name]})
            told = f"{_told(bar.value)} {figures.unit}"
            write_text(svg, 28 + _NAMES + length + 8, y + 13, told, size=11, fill=QUIET)
            y += _LINE
    return finished(svg)


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _colours(groups: Sequence[Group]) -> Mapping[str, str]:
    names = list(dict.fromkeys(bar.name for group in groups for bar in group.bars))
    return {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(names)}
