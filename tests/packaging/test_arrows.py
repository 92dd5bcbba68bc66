"""Who may import whom."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ALLOWED = {
    "src/ticketlock": {"boto3", "botocore", "mypy_boto3_dynamodb", "mypy_boto3_stepfunctions", "ticketlock"},
    "functions": {"_observed", "aws_lambda_powertools", "boto3", "ticketlock"},
    "infra/ticketlock_cdk": {"aws_cdk", "constructs", "ticketlock", "ticketlock_cdk"},
}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_stands_below_it(folder: str) -> None:
    files = sorted((ROOT / folder).glob("*.py"))
    assert files
    foreign = {
        (file.name, name)
        for file in files
        for name in imported(file)
        if name not in ALLOWED[folder] and name not in sys.stdlib_module_names
    }
    assert foreign == set()
