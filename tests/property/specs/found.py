"""What TLC has found: spec/found.json, which ``make spec`` writes.

A search of a model gives the same each time. So what it found counts as long as the specification, the model and TLC
are the same, which their digest says; whoever changes one runs ``make spec`` again.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from property.specs.models import MODELS, TABLES, Needed
from property.specs.tlc import ARTEFACT, SPECIFICATIONS, Model, Result

_FILE = SPECIFICATIONS / "found.json"
_EXTENDS = re.compile(r"^EXTENDS (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Search:
    """A search that has to be made.

    Attributes:
        model: of what.
        without: the condition that is left out; None for none.
        breaks: the promise that must be found broken; None if all must hold.
    """

    model: Model
    without: str | None = None
    breaks: str | None = None

    @property
    def name(self) -> str:
        left_out = "" if self.without is None else f", without {self.without}"
        return f"{self.model.module}: {self.model.name}{left_out}"

    @property
    def digest(self) -> str:
        """Of everything that its result depends on."""
        text = repr((ARTEFACT, replace(self.model, name=""), self.without))
        for module in _modules(self.model.module):
            text += (SPECIFICATIONS / f"{module}.tla").read_text()
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def without(conditions: Iterable[Needed]) -> list[Search]:
    """The searches without each condition."""
    return [Search(each.model, each.condition, each.breaks) for each in conditions]


WHOLE = tuple(map(Search, MODELS))
SEARCHES = (*WHOLE, *(search for _, conditions in TABLES.values() for search in without(conditions)))


def _modules(module: str) -> list[str]:
    """A specification, and those that it extends; the others are TLC's own."""
    path = SPECIFICATIONS / f"{module}.tla"
    if not path.exists():
        return []
    (extended,) = _EXTENDS.findall(path.read_text())
    return [module, *(found for each in extended.split(", ") for found in _modules(each))]


def told() -> Mapping[str, Mapping[str, Any]]:
    """By the name of each search, its digest and what it found."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    return found


def note(results: Iterable[tuple[Search, Result]]) -> None:
    """Write what was found; what others have found stays, unless no one searches for it any more."""
    of = {each.name: each for each in SEARCHES}
    found = {name: each for name, each in told().items() if name in of}
    for search, result in results:
        found[search.name] = {"digest": search.digest, "broken": result.broken, "states": result.states}
    lines = [f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(found[name])}" for name in of if name in found]
    _FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
