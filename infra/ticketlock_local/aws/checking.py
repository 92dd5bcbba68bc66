"""A check: an assumption, the AWS page that states it, and a function that observes it."""

from collections.abc import Callable
from dataclasses import dataclass

from ticketlock_local.aws.deployed import Deployed
from ticketlock_local.aws.seen import NotSeen, Seen, Verdict

Observation = Callable[[Deployed], tuple[bool, str]]
"""Observes; returns whether all is as assumed, and what it saw. Raises NotSeen if it saw nothing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist.

    Attributes:
        sentence: its subject.
        assumed: what ticketlock relies on.
        link: the AWS page that says so; empty if none does.
        emulator_lacks: why an emulator can show nothing of it; empty if it can.
        observe: the function that observes it.
    """

    sentence: str
    assumed: str
    link: str
    emulator_lacks: str
    observe: Observation

    def seen_in(self, deployed: Deployed) -> Seen:
        """Run the check. If it fails with an error, the result is "not seen"."""
        try:
            as_assumed, what = self.observe(deployed)
        except NotSeen as reason:
            return Seen(Verdict.NOT_SEEN, str(reason))
        except Exception as error:
            return Seen(Verdict.NOT_SEEN, f"{type(error).__name__}: {error}")
        if self.emulator_lacks and not deployed.account.is_aws:
            return Seen(Verdict.NOT_SEEN, f"an emulator: {self.emulator_lacks} (here: {what})")
        return Seen(Verdict.AS_ASSUMED if as_assumed else Verdict.OTHERWISE, what)


def check(*, assumed: str, link: str = "", emulator_lacks: str = "") -> Callable[[Observation], Check]:
    """Make a check from a function whose name is a sentence."""

    def checked(observe: Observation) -> Check:
        # A function has a name; not every Callable does.
        name = str(getattr(observe, "__name__", ""))
        return Check(name.replace("_", " "), assumed, link, emulator_lacks, observe)

    return checked
