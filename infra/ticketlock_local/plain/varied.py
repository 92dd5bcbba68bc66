"""Merges templates of one construct that differ by a setting: the differing parts become references to a parameter.

The construct itself shows which parts depend on a setting: it is synthesised once for each value.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ticketlock_local.errors import LocalCloudError

Template = dict[str, Any]
# Integers, or with a fraction.
_NUMBERS = re.compile(r"(\d+(?:\.\d+)?)")


class TemplateError(LocalCloudError):
    """A template cannot be merged; the message names the part of it."""


@dataclass(frozen=True, slots=True)
class Varied:
    """Templates of one construct, which differ by one setting.

    Attributes:
        parameter: the name of the template's parameter.
        values: the values of the setting; the first is that of the base.
        templates: the template of each value.
    """

    parameter: str
    values: Sequence[int]
    templates: Mapping[int, Any]


def with_parameters(base: Template, varied: Sequence[Varied]) -> Template:
    """Merge templates into one.

    Args:
        base: with the first value of every setting.
        varied: for each setting its templates, with the other settings as in the base.

    Returns:
        The template, with ``Mappings`` for numbers that are derived from a setting, such as half of it.

    Raises:
        TemplateError: templates differ in more than numbers, or a number depends on two settings, or a function with a
            version depends on a setting: its alias would still point to the old version after a change of the
            parameter.
    """
    mappings: dict[str, dict[str, dict[str, str]]] = {}
    merged: Template = _Merging(mappings).merge(
        base, [(each.parameter, each.values, [each.templates[value] for value in each.values]) for each in varied], ""
    )
    _check_versions(base, merged)
    return {**merged, "Mappings": mappings}


# The name of the parameter, the values of the setting, and what each of them has at one position in the template.
_Found = tuple[str, Sequence[int], Sequence[Any]]


class _Merging:
    def __init__(self, mappings: dict[str, dict[str, dict[str, str]]]) -> None:
        self._mappings = mappings

    def merge(self, base: Any, found: Sequence[_Found], place: str) -> Any:
        differing = [each for each in found if any(there != base for there in each[2])]
        if not differing:
            return base
        nodes = [there for each in differing for there in each[2]]
        if isinstance(base, dict) and all(isinstance(node, dict) and node.keys() == base.keys() for node in nodes):
            return {key: self.merge(base[key], _at(differing, key), f"{place}/{key}") for key in base}
        if isinstance(base, list) and all(isinstance(node, list) and len(node) == len(base) for node in nodes):
            return [self.merge(each, _at(differing, at), f"{place}/{at}") for at, each in enumerate(base)]
        if isinstance(base, str) and all(isinstance(node, str) for node in nodes):
            return self._merge_text(base, differing, place)
        if isinstance(base, int) and all(isinstance(node, int) for node in nodes):
            return self._number(base, differing, place)
        raise TemplateError(f"{place} differs by {[each[0] for each in differing]} in more than numbers")

    def _merge_text(self, base: str, found: Sequence[_Found], place: str) -> Any:
        split = [(name, values, [_NUMBERS.split(text) for text in texts]) for name, values, texts in found]
        parts = _NUMBERS.split(base)
        if any(len(each) != len(parts) for _, _, texts in split for each in texts):
            raise TemplateError(f"{place} differs by {[each[0] for each in found]} in more than numbers")
        merged = [self._number(part, _differing(part, _at(split, at)), place) for at, part in enumerate(parts)]
        return joined(merged)

    def _number(self, base: Any, found: Sequence[_Found], place: str) -> Any:
        if not found:
            return base
        if len(found) > 1:
            raise TemplateError(f"{place} differs by {[each[0] for each in found]}; only one of them can be its cause")
        ((parameter, values, numbers),) = found
        texts = [str(number) for number in numbers]
        if not all(_NUMBERS.fullmatch(text) for text in texts):
            raise TemplateError(f"{place} differs by {parameter} in more than numbers")
        if [float(text) for text in texts] == list(values):
            return {"Ref": parameter}
        # Such as LeaseSeconds: 60: Of60Is30: 30. The row is found by the parameter's value, the column is the name.
        rows = self._mappings.setdefault(parameter, {str(value): {} for value in values})
        column = f"Of{values[0]}Is{texts[0]}"
        for value, text in zip(values, texts, strict=True):
            if rows[str(value)].setdefault(column, text) != text:
                raise TemplateError(f"{place} is another number by {parameter} than one that is {texts[0]} too")
        return {"Fn::FindInMap": [parameter, {"Ref": parameter}, column]}


def joined(parts: Sequence[Any]) -> Any:
    """Concatenate texts and expressions, and join adjacent texts."""
    together: list[Any] = []
    for part in parts:
        if isinstance(part, str) and together and isinstance(together[-1], str):
            together[-1] += part
        elif part != "":
            together.append(part)
    if len(together) == 1:
        return together[0]
    return {"Fn::Join": ["", together]}


def _at(found: Sequence[_Found], key: Any) -> list[_Found]:
    return [(name, values, [there[key] for there in nodes]) for name, values, nodes in found]


def _differing(base: Any, found: Sequence[_Found]) -> list[_Found]:
    return [each for each in found if any(there != base for there in each[2])]


def _check_versions(base: Template, merged: Template) -> None:
    for name, resource in base["Resources"].items():
        if resource["Type"] == "AWS::Lambda::Version":
            function = resource["Properties"]["FunctionName"]["Ref"]
            if merged["Resources"][function] != base["Resources"][function]:
                raise TemplateError(f"{function} depends on a parameter, and {name} would not be published again")
