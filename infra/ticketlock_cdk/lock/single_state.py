"""The options of a fragment as one state: those of a Parallel with one branch, whose result is a list with one output.

What cannot work is refused here. The service would fail the execution with ``States.Runtime``, which nothing catches,
after the protected work has run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from aws_cdk import aws_stepfunctions as sfn

_FIRST_PATH, _FIRST_EXPRESSION = "$[0]", "{% $states.result[0] %}"
_IN_JSONPATH = ("input_path", "output_path", "parameters", "result_path", "result_selector")
_IN_JSONATA = ("arguments", "outputs")
# A name that is no function such as length(), or an index.
_A_STEP = r"""\.[A-Za-z_][\w-]*(?![\w(-])|\[(?:'[^']*'|"[^"]*"|-?\d+)\]"""
_STEP = re.compile(_A_STEP)
# The beginning of each path from $, which is no variable and no field of the context; in an argument of an intrinsic
# function, too, but not in its texts.
_PATH = re.compile(rf"'(?:\\.|[^'\\])*'|(?<![$\w])(?P<path>\$(?:{_A_STEP})*)(?P<more>[.\[]?)")


@dataclass(frozen=True, slots=True)
class _ListOfOne:
    """The result of the state."""


@dataclass(frozen=True, slots=True)
class _Object:
    """An object: what its fields are, as far as it is known, and whether it may have others."""

    fields: Mapping[str, "_Shape"] = field(default_factory=dict)
    has_more: bool = True


_Shape = _ListOfOne | _Object | None
"""What is known of a value; None for nothing."""

_RESULT = _ListOfOne()


def parallel_options(options: Mapping[str, Any], reads: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with what makes the state's output that of the fragment if they do not shape it.

    Args:
        options: those of the state.
        reads: a payload template with what the fragment reads of its input.

    Raises:
        ValueError: an option is of the other query language, or a path that cannot fit what it is applied to.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if _is_in_jsonata(given):
        _refuse(given, _IN_JSONPATH, "query_language is JSONata; allowed: arguments, outputs, assign")
        return {"outputs": _FIRST_EXPRESSION, **given}
    _refuse(given, _IN_JSONATA, "the state is in JSONPath; allowed with query_language=sfn.QueryLanguage.JSONATA")
    selected = _made_by("result_selector has", _template(given, "result_selector"), _RESULT)
    selected = selected if "result_selector" in given else _RESULT
    try:
        _made_by("assign has", _template(given, "assign"), _RESULT)
    except ValueError:
        # Whether it sees the result or what is selected of it, the documentation leaves open.
        if selected is _RESULT:
            raise
        _made_by("assign has", _template(given, "assign"), selected)
    output = _combined(given.get("result_path", "$"), selected, _input(given, reads))
    if "output_path" in given:
        _follow("output_path is", given["output_path"], output)
    elif output is _RESULT:
        given["output_path"] = _FIRST_PATH
    return given


def constants(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts that are the same in every execution, each with its option; none of a state in JSONata."""
    for name in () if _is_in_jsonata(options) else ("result_selector", "assign"):
        for is_path, text in _texts(_template(options, name)):
            if not is_path:
                yield name, text


def _is_in_jsonata(options: Mapping[str, Any]) -> bool:
    return options.get("query_language") == sfn.QueryLanguage.JSONATA


def _refuse(given: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    for name in names:
        if name in given:
            raise ValueError(f"{name} is {given[name]!r}, and {why}")


def _template(options: Mapping[str, Any], name: str) -> Any:
    return sfn.FieldUtils.render_object(options.get(name) or {})


def _input(given: Mapping[str, Any], reads: Mapping[str, Any]) -> _Shape:
    """The state's input: an object, if it is to have a field."""
    input_path = given.get("input_path", "$")
    template = {"input.$": input_path} if input_path != "$" else _template(given, "parameters") or reads
    texts = (text for is_path, text in _texts(template) if is_path)
    paths = (found["path"] or "" for text in texts for found in _PATH.finditer(text))
    return _Object() if any(path.startswith(("$.", "$['", '$["')) for path in paths) else None


def _combined(result_path: str, result: _Shape, input: _Shape) -> _Shape:
    """The result in the input."""
    found = _PATH.fullmatch(result_path)
    if found is None:
        return input
    _follow("result_path is", result_path, input)
    steps = _STEP.findall(result_path)
    names = list(takewhile(lambda step: not _is_index(step), steps))
    shape = result if names == steps else None
    for name in reversed(names):
        shape = _Object({_named(name): shape})
    return shape


def _made_by(where: str, template: Any, source: _Shape) -> _Shape:
    """What a payload template makes of a value.

    Raises:
        ValueError: a path in it cannot fit the value.
    """
    if isinstance(template, Sequence) and not isinstance(template, str):
        for each in template:
            _made_by(where, each, source)
    if not isinstance(template, Mapping):
        return None
    fields = {
        name.removesuffix(".$"): (_follow if name.endswith(".$") else _made_by)(where, value, source)
        for name, value in template.items()
    }
    return _Object(fields, has_more=False)


def _follow(where: str, text: str, shape: _Shape) -> _Shape:
    """What a path, or the last one in an intrinsic function, leads to in a value of this shape.

    Raises:
        ValueError: it leads nowhere.
    """
    there: _Shape = None
    for found in _PATH.finditer(text):
        there, so_far = shape, "$"
        for step in _STEP.findall(found["path"] or ""):
            _check_step(f"{where} {text!r}, and {so_far}", so_far, step, there, is_definite=not found["more"])
            there = there.fields.get(_named(step)) if isinstance(there, _Object) else None
            so_far += step
    return there if _PATH.fullmatch(text) else None


def _check_step(what: str, so_far: str, step: str, shape: _Shape, *, is_definite: bool) -> None:
    if isinstance(shape, _ListOfOne):
        # Beyond the end a path with a filter finds an empty list.
        if not _is_index(step) or (is_definite and step not in ("[0]", "[-1]")):
            raise ValueError(
                f"{what} is a list with the fragment's one output, as of every Parallel; allowed: paths that begin "
                f"with {so_far}[0], for the output"
            )
    elif isinstance(shape, _Object):
        if _is_index(step):
            raise ValueError(f"{what} is an object; allowed: a path of names, such as $.payment")
        if not shape.has_more and _named(step) not in shape.fields:
            raise ValueError(f"{what} has only {', '.join(shape.fields) or 'no fields'}; allowed: one of its fields")


def _is_index(step: str) -> bool:
    return step[0] == "[" and step[1] not in "'\""


def _named(step: str) -> str:
    return step[1:] if step[0] == "." else step[2:-2]


def _texts(template: Any) -> Iterator[tuple[bool, str]]:
    """The texts of a payload template, each with whether it is a path or an intrinsic function."""
    if isinstance(template, Mapping):
        for name, value in template.items():
            for is_path, text in _texts(value):
                yield is_path or name.endswith(".$"), text
    elif isinstance(template, str):
        yield False, template
    elif isinstance(template, Sequence):
        for value in template:
            yield from _texts(value)
