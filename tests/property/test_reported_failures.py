"""Failures are reported by name, in a short story, with the command that replays them."""

import shlex
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from kit.invariants import Broken
from property import replay
from property.broken import BROKEN_LOCKS, BrokenLock
from property.chance import Recorded, Seeded
from property.every import KINDS, every
from property.explore import begun, run
from property.failures import Unexpected, again, kind_of
from property.faults import Faults
from property.proof import Found, all_of, random_ones
from property.report import Caught, Hunt, Report, first_broken
from property.stateful import Schedules, found_by_hypothesis
from property.units import broken as units
from property.units import every as every_of_units

from ticketlock.locks import _grants

pytestmark = pytest.mark.verify("searches in which something fails; `make test` asks the searches themselves")

VARIANTS = units.VARIANTS
DIRTY = VARIANTS["dirty committed reads"]
REVIVING = next(lock for lock in BROKEN_LOCKS if lock.name == "a heartbeat that revives")
ROTTEN = BrokenLock(
    "rotten",
    "a change that the code has outgrown: it breaks no promise, it only fails",
    frozenset().union(*(lock.caught_by for lock in BROKEN_LOCKS)),
    ((_grants, "take_at_once", lambda: None),),
)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What a command that replays a failure prints."""

    def printed(command: str) -> str:
        make, target, arguments = shlex.split(command)
        assert (make, target) == ("make", "replay")
        monkeypatch.setattr(sys, "argv", ["replay", *shlex.split(arguments.removeprefix("ARGS="))])
        replay.main()
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize("lock", BROKEN_LOCKS, ids=lambda lock: lock.name)
def test_the_command_that_shows_a_broken_lock_again_is_read_as_it_is_meant(lock: BrokenLock) -> None:
    _, _, arguments = shlex.split(again(seed=17, lock=lock.name))
    assert shlex.split(arguments.removeprefix("ARGS=")) == ["--seed", "17", "--lock", lock.name]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_command_that_shows_broken_units_again_is_read_as_it_is_meant(name: str) -> None:
    _, _, arguments = shlex.split(again(seed=17, variant=name))
    assert shlex.split(arguments.removeprefix("ARGS=")) == ["--seed", "17", "--variant", name]


def test_a_lock_that_only_fails_is_not_caught() -> None:
    assert first_broken(ROTTEN, range(20)) is None
    with ROTTEN.instead(), pytest.raises(Unexpected, match="unexpected TypeError"):
        run(Seeded(0))


def test_an_unexpected_error_is_reported_by_every_part_of_the_search() -> None:
    with ROTTEN.instead():
        failures = [random_ones(range(2)).broken[0], all_of(KINDS[0]).broken[0], found_by_hypothesis(0, 1)]
    assert [str(each).partition(":")[0] for each in failures] == ["unexpected TypeError"] * 3


def test_what_a_seed_breaks_is_shown_again_shorter(shown: Callable[[str], str]) -> None:
    caught = first_broken(REVIVING, range(200))
    assert caught is not None
    printed = shown(again(seed=caught.seed, lock=REVIVING.name))
    first, shorter, last, *story = printed.splitlines()
    assert first.partition(":")[0] == last.partition(":")[0] == caught.promise
    fewer, choices = (int(number.strip(":").replace(",", "")) for number in shorter.split() if number[0].isdigit())
    assert fewer < choices
    assert any("granted" in line for line in story)


def test_what_one_of_every_schedule_breaks_is_shown_again(shown: Callable[[str], str]) -> None:
    kind = next(kind for kind in KINDS if kind.name == "a free lock, one fault")
    with REVIVING.instead():
        with pytest.raises(Broken) as broken:
            list(every(kind))
        *_, command = broken.value.__notes__
        printed = shown(command)
    assert printed.startswith(str(broken.value))


def test_what_one_of_every_schedule_of_units_breaks_is_shown_again(shown: Callable[[str], str]) -> None:
    kind = next(kind for kind in every_of_units.KINDS if kind.name == "a marked unit and cuts")
    with DIRTY.instead():
        with pytest.raises(Broken) as broken:
            list(every_of_units.every(kind))
        *_, command = broken.value.__notes__
        printed = shown(command)
    assert printed.startswith(str(broken.value))


def test_a_seed_of_units_that_breaks_nothing_says_so(shown: Callable[[str], str]) -> None:
    assert shown(again(units=True, seed=0)).endswith("commits, every promise kept\n")


def test_a_search_for_broken_units_passes_over_what_does_not_catch_them(shown: Callable[[str], str]) -> None:
    with pytest.raises(SystemExit) as found:
        shown(again(variant=DIRTY.name))
    assert str(found.value).partition(":")[0] in DIRTY.caught_by


@pytest.mark.parametrize("asked", [{"kind": "two marked units"}, {"units": True, "ruled": 3}])
def test_a_world_is_not_asked_for_what_the_other_one_has(
    asked: dict[str, Any], shown: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        shown(again(**asked))
    assert "error: --" in capsys.readouterr().err


def test_what_hypothesis_breaks_is_a_short_story_and_found_again_by_its_seed(shown: Callable[[str], str]) -> None:
    story = shown(again(ruled=2, lock=REVIVING.name))
    assert story.partition(":")[0] in REVIVING.caught_by
    assert story.count("state.") < 15


def test_the_same_choices_are_the_same_schedule() -> None:
    caught = first_broken(REVIVING, range(200))
    assert caught is not None
    with REVIVING.instead():
        chance = Seeded(caught.seed)
        with pytest.raises(Broken) as first:
            run(chance)
        with pytest.raises(Broken) as second:
            run(Recorded(chance.picked))
    assert str(first.value) == str(second.value)
    assert kind_of(first.value) == caught.promise


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        pytest.param(Found(), 10, id="no schedule"),
        pytest.param(Found(9, 90, 9), 10, id="fewer schedules than asked"),
        pytest.param(Found(10, 90, 0), 10, id="no grant"),
        pytest.param(Found(10, 90, 0), None, id="no grant in a search of its own length"),
    ],
)
def test_a_part_that_ran_too_little_has_failed(found: Found, asked: int | None) -> None:
    assert reported(found, asked).failures


def test_a_part_that_ran_as_asked_and_broke_nothing_is_well_and_has_its_figures() -> None:
    report = reported(Found(10, 90, 1_009), 10)
    assert not report.failures
    assert {"schedules": "10", "steps": "90", "grants": "1,009"}.items() <= report.figures["A part"].items()


def reported(found: Found, asked: int | None) -> Report:
    report, part = Report(), Future[Found]()
    part.set_result(found)
    report.counts("A part", Found, [("", part)], asked=asked)
    return report


@pytest.mark.parametrize(
    ("seed", "caught", "failures"), [pytest.param(12, "1", 0, id="caught"), pytest.param(None, "0", 1, id="not caught")]
)
def test_broken_code_that_is_not_caught_is_a_failure_and_the_figures_say_how_much_was_caught(
    seed: int | None, caught: str, failures: int
) -> None:
    report, hunt = Report(), Future[Hunt]()
    hunt.set_result((None if seed is None else Caught(seed, "liveness"), 0.1))
    report.hunts("Broken locks", [(REVIVING, "", hunt)], lambda seed, name: again(seed=seed, lock=name))
    assert len(report.failures) == failures
    assert report.figures["Broken locks"] == {
        "broken on purpose": "1",
        "caught": caught,
        "highest seed needed": str(seed or 0),
    }


def test_after_a_failure_of_a_rule_nothing_more_happens_that_could_hide_it() -> None:
    schedules = Schedules()
    schedules.world = begun(Seeded(0), Faults())
    with ROTTEN.instead():
        with pytest.raises(Unexpected):
            schedules.lets_a_machine_continue(who=0, times=8)
        steps = schedules.world.steps
        schedules.teardown()
    assert schedules.world.steps == steps
