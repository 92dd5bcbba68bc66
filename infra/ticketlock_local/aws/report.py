"""The report: each assumption, and what was seen."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ticketlock_local.aws.checking import Check
from ticketlock_local.aws.seen import Seen, Verdict

_STYLES = {Verdict.AS_ASSUMED: "green", Verdict.OTHERWISE: "bold red", Verdict.NOT_SEEN: "yellow"}

Line = tuple[Check, Seen]


def table(lines: Sequence[Line]) -> Table:
    """A table with a row for each check: its sentence and page, what is assumed, what was seen."""
    made = Table(box=box.SIMPLE_HEAD, show_lines=True)
    for name in ("", "assumed", "seen"):
        made.add_column(name, overflow="fold", ratio=1)
    for check, seen in lines:
        result = Text(f"{seen.verdict}: ", style=_STYLES[seen.verdict]).append(seen.what, style="default")
        assumed = Text(check.assumed)
        if check.link:
            assumed.append(f"\n{check.link}", style="dim")
        made.add_row(Text(check.sentence), assumed, result)
    return made


def summary(lines: Sequence[Line]) -> str:
    """How many of each."""
    counts = Counter(seen.verdict for _, seen in lines)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)


def exit_code(lines: Sequence[Line], left: Sequence[str]) -> int:
    """0 if all is as assumed and nothing is left; 1 if something differs or is left; 2 if something was not seen."""
    verdicts = {seen.verdict for _, seen in lines}
    if left or Verdict.OTHERWISE in verdicts:
        return 1
    return 0 if verdicts == {Verdict.AS_ASSUMED} else 2
