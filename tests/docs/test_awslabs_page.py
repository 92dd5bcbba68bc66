"""The page for those who come from awslabs/dynamodb-transactions, beside our tests: what it lists is there."""

import ast
import re
from collections import Counter

import pytest
from kit.pages import ROOT, text

PAGE = "docs/coming-from-awslabs-transactions.md"
OF_THEIRS = {
    "TransactionsIntegrationTest": 60,
    "MapperTransactionsIntegrationTest": 14,
    "TransactionManagerDBFacadeIntegrationTest": 6,
    "ReadCommittedIsolationHandlerImplUnitTest": 22,
    "ReadUncommittedIsolationHandlerImplUnitTest": 5,
    "RequestTest": 25,
    "TransactionDynamoDBFacadeTest": 9,
    "ImmutableAttributeValueTest": 3,
}
"""How many tests each of their classes has."""


def listed() -> dict[str, list[list[str]]]:
    """The rows below the name of each class: their test, ours, what is changed on purpose."""
    section = text(PAGE).partition("\n## Their tests and ours\n")[2]
    found = {}
    for part in section.split("\n### ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")][2:]
        found[part.partition(":")[0]] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return found


LISTED = listed()
OURS = sorted({node for rows in LISTED.values() for row in rows for node in re.findall(r"`([^`]+)`", row[1])})


def test_the_144_tests_are_listed() -> None:
    assert sum(OF_THEIRS.values()) == 144
    assert {name: len(rows) for name, rows in LISTED.items()} == OF_THEIRS


def test_the_numbers_on_the_page_are_those_of_its_tables() -> None:
    counts = {name: int(count) for name, count in re.findall(r"^### (\w+): (\d+)$", text(PAGE), re.MULTILINE)}
    assert counts == {name: len(rows) for name, rows in LISTED.items()}
    assert f"list all {sum(counts.values())} tests" in text(PAGE)


@pytest.mark.parametrize("of", LISTED)
def test_each_of_theirs_has_one_row_with_tests_of_ours(of: str) -> None:
    assert [name for name, count in Counter(row[0] for row in LISTED[of]).items() if count > 1] == []
    assert [row[0] for row in LISTED[of] if not re.fullmatch(r"`[^`]+`(, `[^`]+`)*", row[1])] == []


@pytest.mark.parametrize("node", OURS)
def test_each_of_ours_is_one_test(node: str) -> None:
    path, _, name = node.partition("::")
    file = ROOT / (path if "/" in path else f"tests/units/{path}")
    named = [each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.FunctionDef)]
    assert [each.name for each in named].count(name) == 1
