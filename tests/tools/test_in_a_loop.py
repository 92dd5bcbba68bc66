"""The loop in which tests await the client for tasks."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.in_a_loop import Loop

pytestmark = pytest.mark.verify("tests no part of the product")


@pytest.mark.parametrize("ask", [lambda loop: loop.dynamodb(config={}), lambda loop: loop.do(lambda: None)])
def test_a_coroutine_in_the_loop_that_would_wait_for_the_loop_fails_at_once(ask: Callable[[Loop], Any]) -> None:
    with Loop() as loop, pytest.raises(RuntimeError, match="would wait for itself"):
        loop.do(lambda: ask(loop))
