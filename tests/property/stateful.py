"""The same world driven by Hypothesis: each rule lets one thing happen, and what fails is shrunk to a short story.

Every step is a choice of Hypothesis': who goes on, how much time passes, what befalls whom. Afterwards nothing fails
any more, and everybody has to come to an end.

A failure is told as the rules that lead to it, and with the seed that finds it again.
"""

from collections.abc import Callable
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
from property.chance import Recorded
from property.clocks import Machine
from property.explore import begun
from property.faults import ON_A_REQUEST, Faults
from property.invariants import Broken
from property.world import OPERATOR, World

_RULES = 120
_LAST_STEPS = 10_000
_ANYBODY = st.integers(0, 8)


class Drawn:
    """Choices by Hypothesis, which it can shrink."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pick(self, choices: int) -> int:
        return self._random.randrange(choices)


class Schedules(RuleBasedStateMachine):
    """One world; each of its promises is kept after each step."""

    world: World

    @initialize(random=st.randoms(use_true_random=False))
    def begins(self, random: Random) -> None:
        self.world = begun(Drawn(random), Faults())

    @precondition(lambda self: self.world.ready())
    @rule(who=_ANYBODY, times=st.integers(1, 8))
    def goes_on(self, who: int, times: int) -> None:
        """The same machine several times in a row: a request and its answer are two steps."""
        ready = self.world.ready()
        machine = ready[who % len(ready)]
        for _ in range(times):
            if machine.is_ready():
                self._lets(lambda: self.world.go_on(machine))

    @precondition(lambda self: not self.world.is_over)
    @rule(ms=st.sampled_from([1, 20, 700, 5_000]))
    def time_passes(self, ms: int) -> None:
        """Even if somebody is ready: whatever is on its way is slow."""
        self.world.witness.struck()
        self._lets(lambda: self.world.let_time_pass(ms))

    @precondition(lambda self: not self.world.is_over and not self.world.ready())
    @rule()
    def everybody_sleeps(self) -> None:
        self._lets(self.world.let_time_pass)

    @precondition(
        lambda self: any(each.pending is not None and not each.pending.applied for each in self.world.ready())
    )
    @rule(who=_ANYBODY, fault=st.sampled_from(ON_A_REQUEST))
    def a_request_meets_a_fault(self, who: int, fault: str) -> None:
        asking = [each for each in self.world.ready() if each.pending is not None and not each.pending.applied]
        self._lets(lambda: self.world.befalls(fault, asking[who % len(asking)]))

    @precondition(lambda self: self.world.late)
    @rule(which=_ANYBODY)
    def a_late_copy_arrives(self, which: int) -> None:
        self._lets(lambda: self.world.late_one_arrives(which % len(self.world.late)))

    @precondition(lambda self: not self.world.is_over)
    @rule(who=_ANYBODY, fault=st.sampled_from(["pause", "freeze", "jump"]), how=st.integers(0, 3))
    def a_machine_is_struck(self, who: int, fault: str, how: int) -> None:
        alive = [each for each in self.world.machines if not each.is_over]
        self._lets(lambda: self.world.strikes(fault, alive[who % len(alive)], how))

    @precondition(lambda self: self._mortal())
    @rule(who=_ANYBODY)
    def a_machine_crashes(self, who: int) -> None:
        mortal = self._mortal()
        self._lets(lambda: self.world.strikes("crash", mortal[who % len(mortal)]))

    @rule()
    def time_to_live_deletes(self) -> None:
        self.world.expires()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.chance = Recorded([])
        self.world.late.clear()
        last_step = self.world.steps + _LAST_STEPS
        while self._lets(self.world.step):
            if self.world.steps > last_step:
                raise Broken(f"liveness: {_LAST_STEPS} steps after the last fault somebody is still waiting")
        self.world.witness.is_left_to_itself()

    def _mortal(self) -> list[Machine]:
        """An operator who has closed the lock opens it again."""
        return [each for each in self.world.machines if not each.is_over and each.name != OPERATOR]

    def _lets(self, happen: Callable[[], object]) -> object:
        told = len(self.world.witness.log)
        happened = happen()
        for line in self.world.witness.log[told:]:
            note(line)
        return happened


def told_by_hypothesis(from_seed: int, examples: int, each: Callable[[World], object] = lambda _: None) -> str | None:
    """Search; returns the shortest story that breaks a promise, if there is one.

    Args:
        each: is told of each world that came to its end.
    """

    class Told(Schedules):
        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "world"):
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
        run_state_machine_as_test(seed(from_seed)(Told), settings=chosen)
    except Broken as broken:
        return "\n".join([str(broken), *broken.__notes__])
    return None
