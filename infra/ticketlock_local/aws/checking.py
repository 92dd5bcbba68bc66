"""What a check is: what is assumed, where AWS says so, and a function that looks."""

from collections.abc import Callable
from dataclasses import dataclass

from ticketlock_local.aws.deployed import Deployed
from ticketlock_local.aws.seen import NotSeen, Seen, Verdict

Look = Callable[[Deployed], tuple[bool, str]]
"""Looks; returns whether all is as assumed, and what it saw. Raises NotSeen if it saw nothing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist.

    Attributes:
        sentence: what it is about.
        assumed: what ticketlock relies on.
        link: the page of AWS that says so; empty where none does.
        emulator_lacks: why an emulator shows nothing of it, whatever it does; empty where it shows something.
        look: how it is looked at.
    """

    sentence: str
    assumed: str
    link: str
    emulator_lacks: str
    look: Look

    def seen_in(self, deployed: Deployed) -> Seen:
        """Look. Whatever fails on the way is nothing seen, and no verdict."""
        try:
            as_assumed, what = self.look(deployed)
        except NotSeen as reason:
            return Seen(Verdict.NOT_SEEN, str(reason))
        except Exception as error:
            return Seen(Verdict.NOT_SEEN, f"{type(error).__name__}: {error}")
        if self.emulator_lacks and not deployed.account.is_aws:
            return Seen(Verdict.NOT_SEEN, f"an emulator: {self.emulator_lacks} (here: {what})")
        return Seen(Verdict.AS_ASSUMED if as_assumed else Verdict.OTHERWISE, what)


def check(*, assumed: str, link: str = "", emulator_lacks: str = "") -> Callable[[Look], Check]:
    """Make a check of a function whose name is a sentence."""

    def checked(look: Look) -> Check:
        # A Callable need not have one; a function does.
        name = str(getattr(look, "__name__", ""))
        return Check(name.replace("_", " "), assumed, link, emulator_lacks, look)

    return checked
