"""The site: `make docs` builds it of README.md, the pages under docs and the docstrings, with warnings as errors."""

import hashlib
import html
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mermaidx
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import ticketlock

project = "ticketlock"
release = ticketlock.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]

# The whole repository is the source, so that a link leads to the same page in the repository and on the site.
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/reference/*.rst",
    "examples/*/README.md",
    "spec/*.md",
]
exclude_patterns = [".*", "build", "dist", "node_modules", "cdk.out"]

# The anchors that code hosts make of headings.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
_DRAWN = "_diagrams"
# Dense; and with a seed, or no two pictures of one text are alike.
_DIAGRAMS = {"handDrawnSeed": 1, "flowchart": {"nodeSpacing": 20, "rankSpacing": 30}}
highlight_language = "none"
# What a reader types of a sample of a terminal.
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

autodoc_default_options = {
    "members": True,
    # What a class has from a base of its own package belongs to it for readers; from Python's or the CDK's it does not.
    "inherited-members": "BaseException,Enum,str,tuple,Construct,Stack",
    "member-order": "bysource",
}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"ticketlock {release}"
html_favicon = "static/favicon.svg"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["root"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("search.js"))

# The order of the pages at the side of the site, of which no page of the repository has to speak.
_SECTIONS: Mapping[str, Sequence[str]] = {
    "Decide": ("deciding", "costs", "coming-from", "leaving"),
    "Understand": ("how-it-works", "guarantees", "glossary"),
    "Use": ("construct", "workflows", "python", "durable", "recipes", "units", "save-and-resume", "command"),
    "Operate": ("deploying", "permissions", "operations", "units-table", "runbook", "threat-model"),
    "Reference": tuple(
        f"reference/{module}" for module in ("locks", "errors", "units", "asyncio", "durable", "testing", "cdk")
    ),
}
_PROJECT = ("docs/proof", "spec/README", "docs/decisions/README", "examples/*/README")
_PROJECT_FILES = ("CONTRIBUTING", "CHANGELOG", "SECURITY")


def _tree(pages: Sequence[str], *options: str) -> str:
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def _contents_of(page: str) -> str:
    """What is added to a page before it is read: the front page lists all sections, that of decisions the decisions."""
    if page == "docs/decisions/README":
        return _tree(["0*"], ":glob:", ":hidden:")
    if page != "README":
        return ""
    sections = {name: [f"docs/{each}" for each in pages] for name, pages in _SECTIONS.items()}
    sections["Project"] = [*_PROJECT, *_PROJECT_FILES]
    return "".join(_tree(pages, ":hidden:", ":glob:", f":caption: {name}") for name, pages in sections.items())


class Diagram(SphinxDirective):
    """A picture of what is written in Mermaid's language, drawn when the page is read."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw it beside what else is known of the pages, and show it; alone it can be made larger."""
        text = "\n".join(self.content)
        drawn = mermaidx.render(text, theme="neutral", config=_DIAGRAMS).svg()
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.svg"
        folder = Path(self.env.doctreedir, _DRAWN)
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(drawn)
        width, *_ = re.findall(r"max-width: (\S+)px", drawn)
        to = "../" * self.env.docname.count("/") + f"{_DRAWN}/{name}"
        img = f'<img src="{to}" width="{float(width):.0f}" alt="{html.escape(text)}">'
        return [nodes.raw("", f'<a class="diagram" href="{to}">{img}</a>', format="html")]


def _add_diagrams(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        shutil.copytree(app.doctreedir / _DRAWN, app.outdir / _DRAWN, dirs_exist_ok=True)


def setup(app: Sphinx) -> None:
    """Let pages and docstrings be as they are in the repository."""
    app.add_directive("mermaid", Diagram)
    app.connect("build-finished", _add_diagrams)
    app.connect("html-page-context", _describe)
    app.connect("source-read", _add_contents)
    # Before napoleon, which makes lists of "Args:".
    app.connect("autodoc-process-docstring", _mark_code, priority=400)
    app.connect("autodoc-skip-member", _leave_errors_to_their_page)


def _add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    source[0] += _contents_of(page)


def _describe(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    """Describe a page by its first paragraph, for search engines and previews of links."""
    first = None if document is None else document.next_node(nodes.paragraph)
    if first is not None:
        said = html.escape(" ".join(first.astext().split()))
        context["metatags"] += f'<meta name="description" content="{said}">'


def _mark_code(_app: Sphinx, _what: str, _name: str, _member: Any, _options: Any, lines: list[str]) -> None:
    """Mark what is indented after an empty line as code, which reStructuredText takes for a quotation."""
    marked: list[str] = []
    for line in lines:
        said = [each for each in marked if each]
        begins = line.startswith("    ") and marked and not marked[-1] and said and not said[-1].startswith(" ")
        if begins and not said[-1].endswith("::"):
            marked += ["::", ""]
        marked.append(line)
    lines[:] = marked


def _leave_errors_to_their_page(app: Sphinx, _what: str, _name: str, member: Any, skip: bool, _options: Any) -> bool:
    of_errors = getattr(member, "__module__", "") == "ticketlock.errors"
    return skip or (of_errors and app.env.docname == "docs/reference/locks")
