"""A page of HTML as a tree of elements."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link"}


@dataclass
class Node:
    """An element of a page that was parsed."""

    tag: str
    attributes: dict[str, str]
    inside: list["Node | str"] = field(default_factory=list)

    def all(self, tag: str = "", kind: str = "") -> Iterator["Node"]:
        """Itself and the elements in it with this tag and class."""
        if tag in ("", self.tag) and (not kind or kind in self.attributes.get("class", "").split()):
            yield self
        for each in self.inside:
            if isinstance(each, Node):
                yield from each.all(tag, kind)

    def texts(self, tag: str = "", kind: str = "") -> list[str]:
        """What is written in each of them."""
        return [each.text for each in self.all(tag, kind)]

    @property
    def text(self) -> str:
        return "".join(each if isinstance(each, str) else each.text for each in self.inside)


class Parsed(HTMLParser):
    """The elements of a page, each of which is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open = [Node("", {})]
        self.feed(text)
        self.close()
        (self.root,) = self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Node(tag, {name: value or "" for name, value in attrs})
        self._open[-1].inside.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].inside.append(data)


def shape(node: Node) -> object:
    """The tags and the names of attributes, without any text."""
    return node.tag, sorted(node.attributes), [shape(each) for each in node.inside if isinstance(each, Node)]
