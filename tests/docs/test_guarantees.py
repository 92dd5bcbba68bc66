"""Each promise of docs/guarantees.md has tests, and `make test` runs some of them."""

from pathlib import Path

import pytest
from tables import promises


def test_make_test_asks_every_promise() -> None:
    asked = {each.promise for each in promises.shown() if each.in_make_test}
    missing = {name for group in promises.PROMISES.values() for name in group} - asked
    assert missing == set(), "no test of `make test` shows it: the marker `always` adds one"


LEFT = 'pytestmark = [pytest.mark.verify("slow"), pytest.mark.shows("order")]\n'


@pytest.mark.parametrize(
    ("source", "is_run"),
    [
        ('pytestmark = pytest.mark.shows("order")\n', True),
        (LEFT, False),
        (LEFT + '@pytest.mark.always("needed")\ndef test_it(): ...\n', True),
        ('@pytest.mark.shows("order")\ndef test_it(): ...\n', True),
        ('@pytest.mark.verify("slow")\n@pytest.mark.shows("order")\ndef test_it(): ...\n', False),
        ('class TestIt:\n    @pytest.mark.shows("order")\n    def test_it(self): ...\n', True),
    ],
)
def test_a_file_that_make_test_does_not_run_is_distinguished_from_others(
    tmp_path: Path, source: str, is_run: bool
) -> None:
    (tmp_path / "test_it.py").write_text(source)
    assert list(promises.shown(tmp_path)) == [promises.Shown("order", "test_it.py", is_run)]
