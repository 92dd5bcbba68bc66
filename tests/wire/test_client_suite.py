"""The tests of the client pass with fault injection too."""

import pytest
from kit.sentences.acquiring import *  # noqa: F403 -- pytest collects the tests that it brings

pytestmark = [
    pytest.mark.shows("lost requests"),
    pytest.mark.usefixtures("random_faults"),
    pytest.mark.verify("the client's suite once more, on a network that fails at random"),
]
