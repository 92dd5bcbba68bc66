"""A directed graph in columns from left to right: the column of each node, and the order within each column."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Node:
    """One box.

    Attributes:
        notes: the lines under the name.
        hue: which colour it has.
    """

    name: str
    notes: tuple[str, ...] = ()
    hue: str = "plain"


@dataclass(frozen=True, slots=True)
class Edge:
    """One arrow; dashed if it is not the usual path."""

    source: str
    target: str
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, the first of which is the start, and the edges between them."""

    title: str
    nodes: Sequence[Node]
    edges: Sequence[Edge]

    def merged(self) -> "Graph":
        """The same graph with at most one edge from one node to another."""
        found: dict[tuple[str, str], list[Edge]] = {}
        for edge in self.edges:
            found.setdefault((edge.source, edge.target), []).append(edge)
        edges = [
            Edge(source, target, _labels(several), all(each.dashed for each in several))
            for (source, target), several in found.items()
        ]
        return Graph(self.title, self.nodes, edges)


def _labels(edges: Sequence[Edge]) -> str:
    labels = [edge.label for edge in edges if edge.label]
    return ("or " if len(labels) < len(edges) else "") + " or ".join(labels) if labels else ""


Slot = tuple[str, int]
"""A node by its name and -1; or the passage of an edge through a column: its target, and its number among the edges."""


class Columns:
    """The columns of a graph.

    Attributes:
        rank: the column of each node.
        back: the numbers of the edges that lead back to the left.
        order: the slots of each column, from above.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._leaving: Mapping[str, list[int]] = {
            node.name: [n for n, edge in enumerate(graph.edges) if edge.source == node.name] for node in graph.nodes
        }
        self.back: set[int] = set()
        finished: list[str] = []
        self._visit(graph.nodes[0].name, finished, [])
        self.rank = dict.fromkeys(finished, 0)
        for name in reversed(finished):
            for number in self._leaving[name]:
                if number not in self.back:
                    target = graph.edges[number].target
                    self.rank[target] = max(self.rank[target], self.rank[name] + 1)
        self.order: list[list[Slot]] = [[] for _ in range(max(self.rank.values()) + 1)]
        for node in graph.nodes:
            self.order[self.rank[node.name]].append((node.name, -1))
        for number, edge in self.forward():
            for column in range(self.rank[edge.source] + 1, self.rank[edge.target]):
                self.order[column].append((edge.target, number))
        self._untangle()

    def forward(self) -> Iterator[tuple[int, Edge]]:
        """The edges that lead to the right, with their numbers."""
        return ((number, edge) for number, edge in enumerate(self._graph.edges) if number not in self.back)

    def way(self, number: int) -> list[Slot]:
        """The slots that an edge passes, its ends included."""
        edge = self._graph.edges[number]
        between = [(edge.target, number)] * (self.rank[edge.target] - self.rank[edge.source] - 1)
        return [(edge.source, -1), *between, (edge.target, -1)]

    def _visit(self, name: str, finished: list[str], path: list[str]) -> None:
        path.append(name)
        for number in self._leaving[name]:
            target = self._graph.edges[number].target
            if target in path:
                self.back.add(number)
            elif target not in finished:
                self._visit(target, finished, path)
        path.pop()
        finished.append(name)

    def _untangle(self) -> None:
        """Order the columns so that few edges cross: each slot at its neighbours' mean, to and fro; the best stays."""
        best, fewest = [list(column) for column in self.order], self._crossings()
        columns = range(len(self.order))
        for sweep in range(_SWEEPS):
            to_the_right = sweep % 2 == 0
            for column in list(columns)[1:] if to_the_right else list(columns)[-2::-1]:
                beside = self.order[column - 1 if to_the_right else column + 1]
                self.order[column].sort(key=lambda slot, beside=beside: self._mean(slot, beside))  # type: ignore[misc]
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(column) for column in self.order], crossings
        self.order = best

    def _steps(self) -> Iterator[tuple[int, Slot, Slot]]:
        for number, edge in self.forward():
            way = self.way(number)
            for step, (left, right) in enumerate(pairwise(way)):
                yield self.rank[edge.source] + step, left, right

    def _mean(self, slot: Slot, beside: list[Slot]) -> float:
        places = [
            beside.index(other)
            for _, left, right in self._steps()
            for mine, other in ((left, right), (right, left))
            if mine == slot and other in beside
        ]
        return sum(places) / len(places) if places else len(beside) / 2

    def _crossings(self) -> int:
        places = [{slot: place for place, slot in enumerate(column)} for column in self.order]
        steps = [(column, places[column][left], places[column + 1][right]) for column, left, right in self._steps()]
        return sum(a[0] == b[0] and (a[1] - b[1]) * (a[2] - b[2]) < 0 for a, b in combinations(steps, 2))
