"""The options of a fragment as one state: those of a Parallel with one branch, whose result is a list with one output.

What cannot work is refused here. The service would fail the execution with ``States.Runtime``, which nothing catches,
after the protected work has run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import aws_stepfunctions as sfn

_FIRST_PATH, _FIRST_EXPRESSION = "$[0]", "{% $states.result[0] %}"
_IN_JSONPATH = ("input_path", "output_path", "parameters", "result_path", "result_selector")
_IN_JSONATA = ("arguments", "outputs")
# The beginning of a path that names a field of $, which is no function such as length() and no field of the context;
# in an argument of an intrinsic function, too.
_FIELD = re.compile(r"(?<![$\w])\$(?:\.[A-Za-z_][\w-]*(?![\w(-])|\[['\"])")
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'")
_ELEMENT = re.compile(r"\$\[[\d*-]")


def parallel_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with what makes the state's output that of the fragment if they do not shape it.

    Raises:
        ValueError: an option is of the other query language, or a path that cannot fit what it is applied to.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("query_language") == sfn.QueryLanguage.JSONATA:
        _refuse(given, _IN_JSONPATH, "query_language is JSONata; allowed: arguments, outputs, assign")
        return {"outputs": _FIRST_EXPRESSION, **given}
    _refuse(given, _IN_JSONATA, "the state is in JSONPath; allowed with query_language=sfn.QueryLanguage.JSONATA")
    stays_a_list = given.get("result_path", "$") == "$" and "result_selector" not in given
    if stays_a_list and "output_path" not in given:
        given["output_path"] = _FIRST_PATH
    for name in ("result_selector", "assign"):
        for path in _paths(sfn.FieldUtils.render_object(given.get(name, {}))):
            _check_field(f"{name} has", path)
    output_path = given.get("output_path", "$")
    if stays_a_list:
        _check_field("output_path is", output_path)
    elif _ELEMENT.match(output_path) and _makes_an_object(given):
        raise ValueError(
            f"output_path is {output_path!r}, of an object, since result_path or result_selector is given; allowed: a "
            "path of names, such as $.payment[0] after result_path='$.payment'"
        )
    return given


def _refuse(given: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    for name in names:
        if name in given:
            raise ValueError(f"{name} is {given[name]!r}, and {why}")


def _makes_an_object(given: Mapping[str, Any]) -> bool:
    path = given.get("result_path", "$")
    return "result_selector" in given if path == "$" else path.startswith("$.")


def _check_field(where: str, path: str) -> None:
    if _FIELD.search(_QUOTED.sub("''", path)):
        raise ValueError(
            f"{where} {path!r}; the state's result is a list with the fragment's output, as of every Parallel; "
            f"allowed: paths that begin with {_FIRST_PATH}, for the output"
        )


def _paths(template: Any) -> Iterator[str]:
    """The paths and intrinsic functions of a payload template."""
    if isinstance(template, Mapping):
        for name, value in template.items():
            if name.endswith(".$"):
                yield value
            else:
                yield from _paths(value)
    elif isinstance(template, Sequence) and not isinstance(template, str):
        for value in template:
            yield from _paths(value)
