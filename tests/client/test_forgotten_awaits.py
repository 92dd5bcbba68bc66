"""An acquisition that is never awaited warns, and has no truth value."""

import pytest

from ticketlock.aio import LockClient


def forget(_acquisition: object) -> None:
    """Nothing refers to it any more when this has returned."""


@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
def test_it_is_neither_true_nor_false(verb: str) -> None:
    asking = getattr(LockClient("locks"), verb)("order-42")
    with pytest.raises(TypeError, match="await it"):
        bool(asking)
    asking.close()


@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
def test_it_warns_as_a_coroutine_does(verb: str) -> None:
    locks = LockClient("locks")
    with pytest.warns(RuntimeWarning, match="never awaited"):
        forget(getattr(locks, verb)("order-42"))
