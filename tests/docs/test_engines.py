"""docs/engines.md tells of the versions that are pinned."""

import re

from kit.pages import rows, text
from ticketlock_local.engines import dynoxide

PAGE = "docs/engines.md"


def pinned(package: str, file: str) -> str:
    found = re.search(rf"^{package}(?:\[[\w,]+\])?==(\S+)$", text(file), re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_engines_that_were_compared_are_those_that_are_pinned() -> None:
    crate, _, version = dynoxide._CRATE[0].partition("@")
    assert f"`{crate}` {version}" in text(PAGE)
    (heads, *_) = rows(PAGE, "Where the engines differ")
    assert heads[2:] == [
        f"moto {pinned('moto', 'requirements.txt')}",
        "ours, in memory",
        f"ministack {pinned('ministack', 'infra/ticketlock_local/engines/ministack-requirements.txt')}",
        f"dynoxide {version}",
    ]
