"""SAM's template and Terraform's configuration of docs/construct.md: parsed, and what they put into the state to copy.

Both grant what AWS asks for a nested execution that is waited for:
https://docs.aws.amazon.com/step-functions/latest/dg/stepfunctions-iam.html
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hcl2.api import loads as decoded
from kit.pages import blocks

PAGE = "docs/construct.md"
(TEMPLATE,) = blocks(PAGE, "yaml")
(CONFIGURATION,) = blocks(PAGE, "hcl")
STATES = blocks("docs/workflows.md", "json")
PLACEHOLDERS = {"LockArn", "ShipOrderArn"}
GRANTS = {
    "machine": {"states:StartExecution"},
    "executions": {"states:DescribeExecution", "states:StopExecution"},
    "rule": {"events:DescribeRule", "events:PutRule", "events:PutTargets"},
}
RULE = "rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"


@pytest.mark.parametrize("text", STATES, ids=["JSONPath", "JSONata"])
def test_the_states_have_the_placeholders_that_both_replace(text: str) -> None:
    assert set(re.findall(r"\$\{(\w+)\}", text)) == PLACEHOLDERS
    # What Terraform's templates would read otherwise.
    assert "%{" not in text


def test_the_template_of_sam_fills_in_the_state_and_grants_what_it_needs() -> None:
    # Here: it loads the schemas of all resources, a second of every worker of the tests.
    from cfnlint.decode.cfn_yaml import loads

    orders = plain(loads(TEMPLATE))["Resources"]["Orders"]["Properties"]
    assert set(orders["DefinitionSubstitutions"]) == PLACEHOLDERS
    lock = {"Fn::GetAtt": ["Locks", "Outputs.StateMachineArn"]}
    assert orders["DefinitionSubstitutions"]["LockArn"] == lock
    ((machine, executions, rule),) = (policy["Statement"] for policy in orders["Policies"])
    assert (machine["Action"], machine["Resource"]) == ("states:StartExecution", lock)
    assert set(executions["Action"]) == GRANTS["executions"]
    names = {"Executions": {"Fn::Join": [":execution:", {"Fn::Split": [":stateMachine:", lock]}]}}
    assert executions["Resource"] == {"Fn::Sub": ["${Executions}:*", names]}
    assert set(rule["Action"]) == GRANTS["rule"]
    assert rule["Resource"]["Fn::Sub"].endswith(f":{RULE}")


def test_the_template_of_sam_has_no_fault(tmp_path: Path) -> None:
    (tmp_path / "sam.yaml").write_text(TEMPLATE)
    (tmp_path / "orders.asl.json").write_text(STATES[0])
    lint = [str(Path(sys.executable).with_name("cfn-lint")), "sam.yaml"]
    done = subprocess.run(lint, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_configuration_of_terraform_fills_in_the_state_and_grants_what_it_needs() -> None:
    found = decoded(CONFIGURATION)
    resources = named(found["resource"])
    machine = resources["aws_sfn_state_machine", "orders"]
    (variables,) = re.findall(r'templatefile\("orders.asl.json", \{(.*)\}\)', machine["definition"])
    assert set(re.findall(r'"(\w+)":', variables)) == PLACEHOLDERS
    # Its role has its permissions by then.
    assert machine["depends_on"] == ["${aws_iam_role_policy.orders}"]
    statements = named(found["data"])["aws_iam_policy_document", "orders"]["statement"]
    granted = {unquoted(each["resources"][0]): set(map(unquoted, each["actions"])) for each in statements}
    executions, rule = "${local.executions}:*", f"${{local.events}}:{RULE}"
    assert granted == dict(zip(("${local.lock}", executions, rule), GRANTS.values(), strict=True))
    # Every name that it refers to is defined in it.
    defined = {".".join(name) for name in resources} | {f"data.{'.'.join(name)}" for name in named(found["data"])}
    defined |= {f"local.{name}" for each in found["locals"] for name in each}
    defined |= {f"var.{unquoted(name)}" for each in found["variable"] for name in each}
    referred = re.findall(r"\b(data\.\w+\.\w+|aws_\w+\.\w+|(?:local|var)\.\w+)", CONFIGURATION)
    assert set(referred) <= defined


def plain(node: Any) -> Any:
    """What cfn-lint decodes, as dictionaries and lists."""
    return json.loads(json.dumps(node))


def named(blocks_of_a_kind: list[Any]) -> dict[tuple[str, str], Any]:
    """Blocks with a type and a name, by both."""
    return {
        (unquoted(kind), unquoted(name)): body
        for each in blocks_of_a_kind
        for kind, names in each.items()
        for name, body in names.items()
    }


def unquoted(text: str) -> str:
    return text.strip('"')
