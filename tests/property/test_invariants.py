"""What a promise requires in cases that the search meets too rarely to show it."""

import pytest
from kit.invariants import Broken, own_token


def test_a_holder_may_receive_an_earlier_grant_of_its_own_and_no_other_owners_token() -> None:
    own_token("d/1", 3, {3, 10})
    with pytest.raises(Broken, match=r"^fencing: d/1 received 4"):
        own_token("d/1", 4, {3, 10})
