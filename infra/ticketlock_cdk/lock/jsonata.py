"""The states of a fragment in JSONata, translated from those in JSONPath, the language of the definition.

The five fields of JSONPath for what goes in and out become two, ``Arguments`` and ``Output``:
https://docs.aws.amazon.com/step-functions/latest/dg/transforming-data.html and https://states-language.net/spec.html.
"""

import re
from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_stepfunctions as sfn

_INPUT, _RESULT, _FAILURE = "$states.input", "$states.result", "$states.errorOutput"
_FORMAT = re.compile(r"States\.Format\('([^'{}]*)\{\}', (\$[\w.]+)\)")
_PARSE = re.compile(r"States\.StringToJson\((\$[\w.]+)\)")
# Without this ending, the field holds an expression.
_PATHS = ("SecondsPath", "ErrorPath", "CausePath")
OF_JSONPATH = {"InputPath", "Parameters", "ResultSelector", "ResultPath", "OutputPath", "Variable", *_PATHS}
"""Fields that no state in JSONata has, nor its Catch or its choices."""


class TaskInJsonata(sfn.CustomState):
    """A task in JSONata. The CDK takes every CustomState for one in JSONPath, and drops the outputs of its Catch."""

    @property
    def _query_language(self) -> sfn.QueryLanguage:
        return sfn.QueryLanguage.JSONATA


class PayloadInJsonata(sfn.Parallel):
    """A Parallel whose branches get the payload, by an expression in place of the object that the CDK takes."""

    @property
    def _arguments(self) -> Any:
        return expression("$.payload")


def in_jsonata(state: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a state in JSONata; its choices are ``condition``s, and the output of its Catch is ``caught``."""
    written = {field: value for field, value in state.items() if field not in OF_JSONPATH}
    written |= {field.removesuffix("Path"): expression(state[field]) for field in _PATHS if field in state}
    result = _RESULT
    if state["Type"] == "Pass":
        result = _object(state["Parameters"], _INPUT) if "Parameters" in state else _found(state.get("InputPath", "$"))
    elif "Parameters" in state:
        written["Arguments"] = _template(state["Parameters"])
    if "ResultSelector" in state:
        result = _object(state["ResultSelector"], _RESULT)
    output = _found(state.get("OutputPath", "$"), _combined(state.get("ResultPath", "$"), result))
    if state["Type"] in ("Task", "Parallel", "Pass") and output != _RESULT:
        written["Output"] = _braced(output)
    return written


def expression(path: str) -> str:
    """What a path into a state's input is in JSONata."""
    return _braced(_found(path))


def condition(choice: Mapping[str, Any]) -> str:
    """The condition of a choice that compares a text; of a missing one it is false."""
    return _braced(f"{_found(choice['Variable'])} = '{choice['StringEquals']}'")


def caught(result_path: str | None, *, is_json: bool = False) -> str:
    """The output of a Catch: the state's input with the failure at a path.

    Args:
        result_path: the path; None to drop the failure.
        is_json: whether the failure's cause is JSON, and kept in place of the failure.
    """
    return _braced(_combined(result_path, f"$parse({_FAILURE}.Cause)" if is_json else _FAILURE))


def _braced(found: str) -> str:
    return f"{{% {found} %}}"


def _found(path: str, root: str = _INPUT) -> str:
    """An expression for what a path, or an intrinsic function, finds in a value."""
    if parsed := _PARSE.fullmatch(path):
        return f"$parse({_found(parsed[1], root)})"
    if formatted := _FORMAT.fullmatch(path):
        return f"'{formatted[1]}' & {_found(formatted[2], root)}"
    assert path.startswith("$"), path  # No other function is in the definition.
    return f"$states.context{path[2:]}" if path.startswith("$$") else f"{root}{path[1:]}"


def _template(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    return {
        name.removesuffix(".$"): expression(value) if name.endswith(".$") else _template(value)
        for name, value in given.items()
    }


def _object(paths: Mapping[str, str], root: str) -> str:
    """An expression for the object that a payload template, with paths alone, makes of a value."""
    return "{" + ", ".join(f"'{name.removesuffix('.$')}': {_found(path, root)}" for name, path in paths.items()) + "}"


def _combined(result_path: str | None, result: str) -> str:
    """An expression for the state's input with the result at a path."""
    if result_path is None:
        return _INPUT
    names = result_path.split(".")[1:]
    return _merged(_INPUT, names, result) if names else result


def _merged(into: str, names: list[str], result: str) -> str:
    name, *more = names
    if more:
        inner = f"{into}.{name}"
        # $merge would make one object of a list of objects.
        failed = f"$exists({inner}) and $type({inner}) != 'object' ? $error('{name} is no object')"
        result = f"({failed} : {_merged(inner, more, result)})"
    return f"$merge([{into}, {{'{name}': {result}}}])"
