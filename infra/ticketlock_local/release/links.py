"""The links of a built site, of which each has to lead to a file, and to an anchor in it."""

from collections.abc import Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The anchors of a page, and what it points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "top"}
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        target = given.get("src") if tag in ("img", "script") else given.get("href") if tag in ("a", "link") else None
        if target is not None:
            self.targets.append(target)


@cache
def page(path: Path) -> _Page:
    """A page, read once."""
    return _Page(path.read_text())


def pages(folder: Path) -> Sequence[Path]:
    """The pages of a site."""
    return sorted(path for path in folder.rglob("*.html") if "_downloads" not in path.parts)


def dead_links(folder: Path) -> Sequence[str]:
    """The links of a site that lead nowhere, each with its page; what is on other sites is not asked."""
    dead = []
    for path in pages(folder):
        for target in page(path).targets:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https"):
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            is_there = to.is_file() and (to.suffix != ".html" or unquote(parts.fragment) in page(to).anchors)
            if parts.scheme or not is_there:
                dead.append(f"{path.relative_to(folder)} -> {target}")
    return dead
