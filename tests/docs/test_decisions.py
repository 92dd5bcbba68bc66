"""The list of decisions has each of them, by its number and its title."""

from kit.pages import ROOT, rows

FOLDER = ROOT / "docs" / "decisions"


def test_the_list_has_every_decision_in_order() -> None:
    there_are = []
    for file in sorted(FOLDER.glob("0*.md")):
        number, title = file.read_text().splitlines()[0].removeprefix("# ").split(". ", 1)
        assert int(file.name[:4]) == int(number), file.name
        there_are.append([number, f"[{title}]({file.name})"])
    assert [row for row in rows("docs/decisions/README.md", "") if row[0].isdecimal()] == there_are
