"""The targets of a deployment as two parameters: lists of ARNs of unknown length."""

from typing import Any

from ticketlock_local.plain.varied import TemplateError, joined

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
        TemplateError: a placeholder is somewhere else.
    """
    changed: dict[str, Any] = _replaced(template)
    for stands_in in _LISTS:
        if stands_in in str(changed):
            raise TemplateError(f"{stands_in} is neither in a definition nor a resource of a policy's statement")
    for resource in changed["Resources"].values():
        if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            _check_that_it_says_something(resource["Properties"]["PolicyDocument"]["Statement"])
    return changed


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
