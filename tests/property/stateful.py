"""The same world driven by Hypothesis: each rule lets one thing happen, and a failure is shrunk to a short story.

Hypothesis chooses every step: which machine continues, how much time passes, which fault affects which machine. Then no
more faults are injected, and every machine must come to an end.

A failure is reported as the rules that lead to it; ``make replay ARGS='--ruled SEED'`` finds it again.
"""

from collections.abc import Callable
from contextlib import ExitStack
from random import Random

from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kit.invariants import Broken
from property import caps
from property.chance import Recorded
from property.explore import begun
from property.failures import FAILURES, noted, story_of
from property.faults import ON_A_REQUEST, SKEWS_MS, Faults
from property.scripts import left_to_itself
from property.world import World

RULED = 500
"""Schedules that are drawn from one seed."""
_RULES = 120
_LAST_STEPS = 10_000
_INDEX = st.integers(0, 8)


class Drawn:
    """Choices by Hypothesis, which can shrink them."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(self, choices: int) -> int:
        return self._random.randrange(choices)


class Schedules(RuleBasedStateMachine):
    """One world; each of its promises must hold after each step."""

    world: World
    has_failed = False

    @initialize(random=st.randoms(use_true_random=False))
    def begins(self, random: Random) -> None:
        chance = Drawn(random)
        limits = caps.drawn(chance)
        self.caps = ExitStack()
        self.caps.enter_context(limits.set())
        self.world = begun(chance, Faults(), limits)

    @precondition(lambda self: self.world.ready())
    @rule(who=_INDEX, times=st.integers(1, 8))
    def lets_a_machine_continue(self, who: int, times: int) -> None:
        """The same machine several times in a row: a request and its answer are two steps."""
        ready = self.world.ready()
        machine = ready[who % len(ready)]
        for _ in range(times):
            if machine.is_ready():
                self._lets(lambda: self.world.go_on(machine))

    @precondition(lambda self: not self.world.is_over)
    @rule(ms=st.sampled_from([1, 20, 700, 5_000]))
    def time_passes(self, ms: int) -> None:
        """Even if a machine is ready: what was sent is slow."""
        self.world.checker.struck()
        self._lets(lambda: self.world.let_time_pass(ms))

    @precondition(lambda self: not self.world.is_over and not self.world.ready())
    @rule()
    def every_machine_sleeps(self) -> None:
        self._lets(self.world.let_time_pass)

    @precondition(
        lambda self: any(each.pending is not None and not each.pending.applied for each in self.world.ready())
    )
    @rule(who=_INDEX, fault=st.sampled_from(ON_A_REQUEST))
    def a_request_meets_a_fault(self, who: int, fault: str) -> None:
        asking = [each for each in self.world.ready() if each.pending is not None and not each.pending.applied]
        self._lets(lambda: self.world.befalls(fault, asking[who % len(asking)]))

    @precondition(lambda self: self.world.late)
    @rule(which=_INDEX)
    def a_late_copy_arrives(self, which: int) -> None:
        self._lets(lambda: self.world.late_one_arrives(which % len(self.world.late)))

    @precondition(lambda self: self.world.may_meet("jump"))
    @rule(who=_INDEX, to=st.integers(0, 3))
    def a_wall_clock_is_set(self, who: int, to: int) -> None:
        self._strikes("jump", who, to)

    @precondition(lambda self: self.world.may_meet("crash"))
    @rule(who=_INDEX, fault=st.sampled_from(["pause", "freeze", "crash"]), how=st.integers(0, 3))
    def a_machine_stops(self, who: int, fault: str, how: int) -> None:
        self._strikes(fault, who, how)

    @rule(skew_ms=st.sampled_from(SKEWS_MS))
    def another_server_replies(self, skew_ms: int) -> None:
        self.world.time.skew_ms = skew_ms

    @rule()
    def time_to_live_deletes(self) -> None:
        self._lets(self.world.expires)

    def teardown(self) -> None:
        # After a failure nothing more may happen: another failure would hide it.
        with getattr(self, "caps", ExitStack()):
            self._comes_to_its_end()

    def _comes_to_its_end(self) -> None:
        if self.has_failed or not hasattr(self, "world"):
            return
        self.world.chance = Recorded([])
        self.world.time.skew_ms = 0
        last_step = self.world.steps + _LAST_STEPS
        while self._lets(self.world.step):
            if self.world.steps > last_step:
                raise Broken(f"liveness: {_LAST_STEPS} steps after the last fault a machine is still waiting")
        self._lets(lambda: left_to_itself(self.world))

    def _strikes(self, fault: str, who: int, how: int) -> None:
        victims = self.world.may_meet(fault)
        self._lets(lambda: self.world.strikes(fault, victims[who % len(victims)], how))

    def _lets(self, happen: Callable[[], object]) -> object:
        log = self.world.checker.log
        known = len(log)
        try:
            with noted():
                return happen()
        except FAILURES:
            self.has_failed = True
            raise
        finally:
            for line in log[known:]:
                note(line)


def found_by_hypothesis(
    from_seed: int, examples: int = RULED, each: Callable[[World], object] = lambda _: None
) -> str | None:
    """Search; returns the shortest story that breaks a promise, if there is one.

    Args:
        each: called with each world that has ended.
    """

    class Observed(Schedules):
        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "world") and not self.has_failed:
                each(self.world)

    chosen = settings(
        max_examples=examples,
        stateful_step_count=_RULES,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    try:
        with noted():
            run_state_machine_as_test(seed(from_seed)(Observed), settings=chosen)
    except FAILURES as failure:
        return story_of(failure)
    return None
