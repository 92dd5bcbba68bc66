"""The parameters of the plain template.

Merges templates of one construct that differ by a setting: the differing parts become references to a parameter.

The construct itself shows which parts depend on a setting: it is synthesised once for each value.
"""

import json
import re
from collections import Counter
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
        # Such as LeaseSeconds: 60: Of60Is30Or60: 30, for 60 s and 120. The row is found by the parameter's value.
        rows = self._mappings.setdefault(parameter, {str(value): {} for value in values})
        column = f"Of{values[0]}Is{'Or'.join(texts)}"
        for value, text in zip(values, texts, strict=True):
            rows[str(value)][column] = text
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


# The targets of a deployment as two parameters: lists of ARNs of unknown length.

# Placeholders for the lists while the construct is synthesised.
_ACCOUNT = "us-east-1:123456789012"
A_FUNCTION = f"arn:aws:lambda:{_ACCOUNT}:function:every-one-of-the-list"
A_MACHINE = f"arn:aws:states:{_ACCOUNT}:stateMachine:every-one-of-the-list"
_ITS_EXECUTIONS = f"arn:aws:states:{_ACCOUNT}:execution:every-one-of-the-list:lock-*"
# As json.dumps writes them into the definition.
_IN_THE_DEFINITION = f'"{A_FUNCTION}", "{A_MACHINE}"'

FUNCTIONS = "TargetFunctionArns"
MACHINES = "TargetStateMachineArns"
_HAS_FUNCTIONS, _HAS_MACHINES, _HAS_BOTH = "HasTargetFunctions", "HasTargetStateMachines", "HasBothKindsOfTargets"
_NOTHING = {"Ref": "AWS::NoValue"}

CONDITIONS = {
    _HAS_FUNCTIONS: {"Fn::Not": [{"Fn::Equals": [{"Fn::Select": [0, {"Ref": FUNCTIONS}]}, ""]}]},
    _HAS_MACHINES: {"Fn::Not": [{"Fn::Equals": [{"Fn::Select": [0, {"Ref": MACHINES}]}, ""]}]},
    _HAS_BOTH: {"Fn::And": [{"Condition": _HAS_FUNCTIONS}, {"Condition": _HAS_MACHINES}]},
}

# An execution's ARN has another word than its machine's, and ends with the pattern of its name.
_ALL_EXECUTIONS = {
    "Fn::Split": [
        ",",
        {
            "Fn::Join": [
                ":execution:",
                {
                    "Fn::Split": [
                        ":stateMachine:",
                        {"Fn::Join": ["", [{"Fn::Join": [":lock-*,", {"Ref": MACHINES}]}, ":lock-*"]]},
                    ]
                },
            ]
        },
    ]
}
_LISTS: dict[str, tuple[str, Any]] = {
    A_FUNCTION: (_HAS_FUNCTIONS, {"Ref": FUNCTIONS}),
    A_MACHINE: (_HAS_MACHINES, {"Ref": MACHINES}),
    _ITS_EXECUTIONS: (_HAS_MACHINES, _ALL_EXECUTIONS),
}

# In characters, without white space: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
_INLINE_POLICIES, _A_MANAGED_POLICY = 10_240, 6_144
LONGEST_LIST = 4_096
"""How long the value of a parameter may be, in characters.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
"""
# An ARN that is known only at deploy time, with the longest names, and its quotes.
_AN_ARN = 150
_SHORTEST_NAME = 1


def _quoted(parameter: str) -> Any:
    return {"Fn::Join": ["", ['"', {"Fn::Join": ['", "', {"Ref": parameter}]}, '"']]}


_LIST_OF_TEXTS: tuple[Any, ...] = (
    {"Fn::If": [_HAS_FUNCTIONS, _quoted(FUNCTIONS), ""]},
    {"Fn::If": [_HAS_BOTH, ", ", ""]},
    {"Fn::If": [_HAS_MACHINES, _quoted(MACHINES), ""]},
)


def with_lists(template: dict[str, Any]) -> dict[str, Any]:
    """Replace the placeholders by the parameters' lists: in the definition, and in the statements of policies.

    Raises:
        TemplateError: a placeholder is somewhere else; or a policy has no room for the longest list.
    """
    resources = {name: one for each in template["Resources"].items() for name, one in _spread(*each).items()}
    changed: dict[str, Any] = _replaced({**template, "Resources": resources})
    for stands_in in _LISTS:
        if stands_in in str(changed):
            raise TemplateError(f"{stands_in} is neither in a definition nor a resource of a policy's statement")
    for resource in changed["Resources"].values():
        if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            _check_that_it_says_something(resource["Properties"]["PolicyDocument"]["Statement"])
    _check_sizes(changed["Resources"])
    return changed


def _spread(name: str, resource: dict[str, Any]) -> dict[str, Any]:
    """A resource; if it is an inline policy with several lists, it keeps the first, and each other one gets a managed
    policy of its own, since the inline policies of a role have no room for all.

    Each keeps what the statement allows beside the list: a policy needs a statement also if the list is empty. Not by a
    condition: CloudFormation does not create what depends on a resource that is not there.
    https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-attribute-condition.html
    """
    if resource["Type"] != "AWS::IAM::Policy":
        return {name: resource}
    document = resource["Properties"]["PolicyDocument"]
    others = [each for each in document["Statement"] if _has_a_list(each)][1:]
    managed = {
        f"{name}More{number}": {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {
                "PolicyDocument": {**document, "Statement": [statement]},
                "Roles": resource["Properties"]["Roles"],
            },
        }
        for number, statement in enumerate(others, 1)
    }
    if not managed:
        return {name: resource}
    left = {**document, "Statement": [each for each in document["Statement"] if each not in others]}
    # An update that moves statements must first create the policies that get them.
    waits = [*resource.get("DependsOn", []), *managed]
    kept = {**resource, "Properties": {**resource["Properties"], "PolicyDocument": left}, "DependsOn": waits}
    return {name: kept, **managed}


def _has_a_list(statement: dict[str, Any]) -> bool:
    resources = statement.get("Resource", [])
    return any(placeholder == resources or placeholder in resources for placeholder in _LISTS)


def _replaced(node: Any) -> Any:
    if isinstance(node, dict):
        if isinstance(node.get("Statement"), list):
            return {**node, "Statement": [part for each in node["Statement"] for part in _statements(each)]}
        return {key: _replaced(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_replaced(each) for each in node]
    if isinstance(node, str) and _IN_THE_DEFINITION in node:
        before, after = node.split(_IN_THE_DEFINITION)
        return joined([before, *_LIST_OF_TEXTS, after])
    return node


def _statements(statement: dict[str, Any]) -> list[Any]:
    """A statement, and one more for each list that it contains: no CloudFormation function concatenates lists."""
    resources = statement.get("Resource", [])
    if not isinstance(resources, list):
        resources = [resources]
    lists = [_LISTS[each] for each in resources if isinstance(each, str) and each in _LISTS]
    if not lists:
        return [statement]
    kept = [each for each in resources if not (isinstance(each, str) and each in _LISTS)]
    more = [{"Fn::If": [condition, {**statement, "Resource": every}, _NOTHING]} for condition, every in lists]
    return [{**statement, "Resource": kept}, *more] if kept else more


def _check_that_it_says_something(statements: list[Any]) -> None:
    if all("Fn::If" in each for each in statements):
        raise TemplateError("without targets a policy would have no statement")


def _check_sizes(resources: Mapping[str, Any]) -> None:
    inline: Counter[str] = Counter()
    for name, resource in resources.items():
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            _check_size(name, _longest(resource["Properties"]["PolicyDocument"]), _A_MANAGED_POLICY)
        if resource["Type"] == "AWS::IAM::Policy":
            for role in resource["Properties"]["Roles"]:
                inline[role["Ref"]] += _longest(resource["Properties"]["PolicyDocument"])
    for role, characters in inline.items():
        _check_size(f"the inline policies of {role}", characters, _INLINE_POLICIES)


def _check_size(what: str, characters: int, most: int) -> None:
    if characters > most:
        raise TemplateError(
            f"{what} may have {characters:,} characters, with parameters of {LONGEST_LIST:,}; allowed: {most:,}"
        )


def _longest(node: Any) -> int:
    """The most characters of a policy, as JSON, for any values of the parameters."""
    for placeholder, (_, every) in _LISTS.items():
        if node == every:
            return _longest_list(placeholder)
    if isinstance(node, list):
        return 2 + sum(_longest(each) + 1 for each in node)
    if not isinstance(node, dict):
        return len(json.dumps(node))
    if list(node) == ["Fn::If"]:
        return max(map(_longest, node["Fn::If"][1:]))
    if any(key == "Ref" or key.startswith("Fn::") for key in node):
        return _AN_ARN
    return 2 + sum(len(key) + 4 + _longest(value) for key, value in node.items())


def _longest_list(placeholder: str) -> int:
    """As JSON, of as many ARNs as the value of a parameter has room for: short ones, each of which has its quotes."""
    given = A_FUNCTION if placeholder == A_FUNCTION else A_MACHINE
    shortest = len(given) - len(given.rpartition(":")[2]) + _SHORTEST_NAME
    most = (LONGEST_LIST + 1) // (shortest + 1)
    # What a placeholder has that stands for more than the parameter has.
    return 2 + LONGEST_LIST + most * (2 + len(placeholder) - len(given))
