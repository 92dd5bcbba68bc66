"""A table with its workflow."""

import pytest
from security.workflows import Table


@pytest.fixture
def table() -> Table:
    return Table()
