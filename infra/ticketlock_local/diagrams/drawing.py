"""Graphs as one standalone SVG, readable on light and dark pages."""

from collections.abc import Sequence
from xml.etree import ElementTree

from ticketlock_local.diagrams.graph import Columns, Edge, Graph, Node, Slot

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_INK, QUIET, _CARD, _EDGE, _LINE = "#111827", "#4b5563", "#ffffff", "#d1d5db", "#6b7280"
_HUES = {
    "plain": ("#f9fafb", "#9ca3af"),
    "start": ("#eef2ff", "#4338ca"),
    "wait": ("#e0e7ff", "#6366f1"),
    "hold": ("#ccfbf1", "#0f766e"),
    "fail": ("#fee2e2", "#dc2626"),
}
_PADDING, _GAP, _BESIDE, _LANE = 28, 44, 18, 14
_NAME_PX, _NOTE_PX, _LABEL_PX = 7.6, 6.1, 6.0
_HEAD, _NAME_LINE, _NOTE_LINE, _WAY = 34, 26, 15, 22


def drawing(title: str, text: str, graphs: Sequence[Graph]) -> str:
    """Draw graphs, one below the other.

    Args:
        title: what the picture shows; screen readers read it too.
        text: the same in a sentence or two.
        graphs: where each has a title, it is written above it.
    """
    panels = [_Panel(graph.merged()) for graph in graphs]
    width = max(panel.width for panel in panels) + 2 * _PADDING
    height = sum(panel.height for panel in panels) + 2 * _PADDING + _BESIDE * (len(panels) - 1)
    svg = canvas(title, text, width, height)
    tip = {"id": "tip", "viewBox": "0 0 8 8", "refX": "7", "refY": "4", "markerWidth": "7", "markerHeight": "7"}
    marker = ElementTree.SubElement(ElementTree.SubElement(svg, "defs"), "marker", {**tip, "orient": "auto"})
    ElementTree.SubElement(marker, "path", {"d": "M0 0 L8 4 L0 8 z", "fill": _LINE})
    y = float(_PADDING)
    for panel in panels:
        place = {"transform": f"translate({_PADDING} {px(y)})"}
        panel.draw(ElementTree.SubElement(svg, "g", place))
        y += panel.height + _BESIDE
    return finished(svg)


def canvas(title: str, text: str, width: float, height: float) -> ElementTree.Element:
    """An empty card, with a title and a text for screen readers."""
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width:.0f} {height:.0f}",
            "width": f"{width:.0f}",
            "height": f"{height:.0f}",
            "role": "img",
            "font-family": _FONT,
        },
    )
    ElementTree.SubElement(svg, "title").text = title
    ElementTree.SubElement(svg, "desc").text = text
    card = {"x": "0.5", "y": "0.5", "width": f"{width - 1:.0f}", "height": f"{height - 1:.0f}", "rx": "12"}
    ElementTree.SubElement(svg, "rect", {**card, "fill": _CARD, "stroke": _EDGE})
    return svg


def finished(svg: ElementTree.Element) -> str:
    """The file's content."""
    ElementTree.indent(svg)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


class _Panel:
    """One graph, and the position of each of its parts."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._columns = Columns(graph)
        self._nodes = {node.name: node for node in graph.nodes}
        self._head = _HEAD if graph.title else 0
        order = self._columns.order
        heights = [sum(map(self._height_of, column)) + _BESIDE * (len(column) - 1) for column in order]
        self._inner = max(heights)
        self._y: dict[tuple[int, Slot], float] = {}
        for number, (column, height) in enumerate(zip(order, heights, strict=True)):
            y = self._head + (self._inner - height) / 2
            for slot in column:
                self._y[number, slot] = y + self._height_of(slot) / 2
                y += self._height_of(slot) + _BESIDE
        self._x: list[float] = []
        self._widths = [max((self._width_of(slot) for slot in column), default=0) for column in order]
        x = 0.0
        for number, column_width in enumerate(self._widths):
            x += self._gap_before(number)
            self._x.append(x)
            x += column_width
        self.width = max(x + (_GAP if self._columns.back else 0), len(graph.title) * _NAME_PX)
        self.height = self._head + self._inner + _LANE * (len(self._columns.back) + bool(self._columns.back))

    def draw(self, into: ElementTree.Element) -> None:
        if self._graph.title:
            write_text(into, 0, 14, self._graph.title, size=14, weight="600")
        # Labels are above all lines.
        labels: list[tuple[float, float, str, str]] = []
        for number, edge in self._columns.forward():
            self._draw_forward(into, number, edge, labels)
        for lane, number in enumerate(sorted(self._columns.back)):
            self._draw_back(into, lane, self._graph.edges[number], labels)
        for node in self._graph.nodes:
            self._draw_node(into, node)
        for x, y, label, anchor in labels:
            write_text(into, x, y, label, size=11, fill=QUIET, anchor=anchor, halo=True)

    def _draw_node(self, into: ElementTree.Element, node: Node) -> None:
        rank, slot = self._columns.rank[node.name], (node.name, -1)
        fill, stroke = _HUES[node.hue]
        width, height = self._widths[rank], self._height_of(slot)
        x, y = self._x[rank], self._y[rank, slot] - height / 2
        box = {"x": px(x), "y": px(y), "width": px(width), "height": px(height), "rx": "7"}
        ElementTree.SubElement(into, "rect", {**box, "fill": fill, "stroke": stroke})
        middle = x + width / 2
        write_text(into, middle, y + 18, node.name, size=13, weight="600", anchor="middle")
        for line, note in enumerate(node.notes):
            write_text(into, middle, y + 34 + line * _NOTE_LINE, note, size=11, fill=QUIET, anchor="middle")

    def _draw_forward(
        self, into: ElementTree.Element, number: int, edge: Edge, labels: list[tuple[float, float, str, str]]
    ) -> None:
        way, first = self._columns.way(number), self._columns.rank[edge.source]
        x, y = self._x[first] + self._widths[first], self._port(number, edge.source, leaving=True)
        line = f"M{px(x)} {px(y)}"
        for step in range(1, len(way)):
            column, is_last = first + step, step == len(way) - 1
            to_x = self._x[column] - (1 if is_last else 0)
            to_y = self._port(number, edge.target, leaving=False) if is_last else self._y[column, way[step]]
            bend = (to_x - x) / 2
            line += f" C{px(x + bend)} {px(y)} {px(to_x - bend)} {px(to_y)}"
            line += f" {px(to_x)} {px(to_y)}"
            if step == 1 and edge.label and edge.label != edge.target:
                labels.append((to_x - 12, to_y - 4, edge.label, "end"))
            x, y = to_x, to_y
            if not is_last:
                x = self._x[column] + self._widths[column]
                line += f" L{px(x)} {px(y)}"
        _path(into, line, dashed=edge.dashed)

    def _draw_back(
        self, into: ElementTree.Element, lane: int, edge: Edge, labels: list[tuple[float, float, str, str]]
    ) -> None:
        """Out to the right, down, to the left below everything, up, and in from the left."""
        source, target = self._columns.rank[edge.source], self._columns.rank[edge.target]
        x, y = self._x[source] + self._widths[source], self._y[source, (edge.source, -1)]
        # Below where the usual edges leave and arrive.
        y += self._height_of((edge.source, -1)) / 2 - 8
        right = x + 14 + lane * 8
        below = self._head + self._inner + _LANE * (lane + 1)
        to_x = self._x[target] - 1
        left = to_x - 16 - lane * 8
        to_y = self._y[target, (edge.target, -1)] + self._height_of((edge.target, -1)) / 2 - 8
        turns = [(right, y), (right, below), (left, below), (left, to_y), (to_x, to_y)]
        line = f"M{px(x)} {px(y)}" + "".join(f" L{px(a)} {px(b)}" for a, b in turns)
        _path(into, line, dashed=edge.dashed)
        if edge.label:
            labels.append((right - 8, below - 4, edge.label, "end"))

    def _port(self, number: int, name: str, *, leaving: bool) -> float:
        """Where an edge leaves or reaches a node: in the order of where it comes from or goes to."""
        rank, middle = self._columns.rank[name], self._y[self._columns.rank[name], (name, -1)]
        beside: list[tuple[float, int]] = []
        for other, edge in self._columns.forward():
            if (edge.source if leaving else edge.target) == name:
                slot = self._columns.way(other)[1 if leaving else -2]
                beside.append((self._y[rank + (1 if leaving else -1), slot], other))
        place = [other for _, other in sorted(beside)].index(number)
        room = self._height_of((name, -1)) - 20
        apart = min(16.0, room / max(1, len(beside) - 1))
        return middle + (place - (len(beside) - 1) / 2) * apart

    def _height_of(self, slot: Slot) -> float:
        if slot[1] >= 0:
            return _WAY
        return _NAME_LINE + _NOTE_LINE * len(self._nodes[slot[0]].notes) + (4 if self._nodes[slot[0]].notes else 0)

    def _width_of(self, slot: Slot) -> float:
        if slot[1] >= 0:
            return 0
        node = self._nodes[slot[0]]
        return max(len(node.name) * _NAME_PX, *(len(note) * _NOTE_PX for note in ("", *node.notes))) + 24

    def _gap_before(self, column: int) -> float:
        """The width for the labels of the edges that begin in the column before."""
        if column == 0:
            return 0.0
        longest = [
            len(edge.label)
            for _, edge in self._columns.forward()
            if self._columns.rank[edge.source] == column - 1 and edge.label != edge.target
        ]
        return _GAP + max(longest, default=0) * _LABEL_PX + 8 * len(self._columns.back)


def _path(into: ElementTree.Element, line: str, *, dashed: bool) -> None:
    style = {"d": line, "fill": "none", "stroke": _LINE, "stroke-width": "1.2", "marker-end": "url(#tip)"}
    ElementTree.SubElement(into, "path", style | ({"stroke-dasharray": "5 3"} if dashed else {}))


def write_text(
    into: ElementTree.Element,
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    fill: str = _INK,
    weight: str = "400",
    anchor: str = "start",
    halo: bool = False,
) -> None:
    """Put a line of text at a place."""
    style = {"x": px(x), "y": px(y), "font-size": f"{size}", "font-weight": weight, "fill": fill}
    style["text-anchor"] = anchor
    if halo:
        style |= {"paint-order": "stroke", "stroke": _CARD, "stroke-width": "3"}
    ElementTree.SubElement(into, "text", style).text = text


def px(value: float) -> str:
    """A length, as short as it can be written."""
    return f"{value:.1f}".removesuffix(".0")
