"""What the library and the engine in memory cost in calls of Python functions: a budget for each."""

from contextvars import Context

from kit.calls import MOST, counted


def test_the_library_and_the_engine_in_memory_make_no_more_calls_than_their_budgets_allow() -> None:
    # Outside of all blocks: another test may have died in one.
    found = Context().run(lambda: dict(counted()))
    assert found.keys() == MOST.keys()
    over = {
        what: f"{both} calls, at most {MOST[what]}"
        for what, both in found.items()
        if any(count > most for count, most in zip(both, MOST[what], strict=True))
    }
    assert over == {}, "make them faster; if they have to do more: benchmarks/calls.py --renew prints new bounds"
