"""Nothing public is left without a word, and the reference has all of it."""

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from kit.pages import ROOT

PAGES = {path.stem: path.read_text() for path in (ROOT / "docs" / "reference").glob("*.rst")}
MODULES = (
    "ticketlock",
    "ticketlock.aio",
    "ticketlock.errors",
    "ticketlock.testing",
    "ticketlock.units",
    "ticketlock_cdk",
)


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Classes and functions of a module, and the methods and properties that classes have of ours."""
    found = importlib.import_module(module)
    for name in found.__all__:
        member = getattr(found, name)
        if inspect.isclass(member):
            yield name, member
            for method in (each for each in dir(member) if not each.startswith("_")):
                given = inspect.getattr_static(member, method)
                given = getattr(given, "fget", None) or getattr(given, "__func__", given)
                if inspect.isfunction(given) and given.__module__.startswith("ticketlock"):
                    yield f"{name}.{method}", given
        elif inspect.isfunction(member):
            yield name, member


@pytest.mark.parametrize("module", MODULES)
def test_every_public_class_and_method_says_what_it_is(module: str) -> None:
    members = list(public(module))
    assert members
    assert [name for name, member in members if not inspect.getdoc(member)] == []


def test_every_public_module_has_a_page() -> None:
    assert {re.findall(r"automodule:: (\S+)", text)[0] for text in PAGES.values()} == set(MODULES)
