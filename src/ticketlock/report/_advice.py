"""What an operator should do next about a lock, or expect of it: a sentence, and the command to type."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ticketlock.locks import (
    DEFAULT_NAMESPACE,
    LockName,
    LockState,
    Row,
    ended_by_unsetting,
    follows_deployments,
    live_rows,
)
from ticketlock.report._verdicts import NextStep, judge, taken_by_then_ms
from ticketlock.report._wording import permits_of, plain, short_owner, span, typed


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, or to expect.

    Attributes:
        text: a sentence, in which commands are in backticks.
        command: what to type if it comes to that; None for nothing.
    """

    text: str
    command: str | None = None

    def typed(self, typed: Callable[[str], str]) -> "Advice":
        """The same, with each command as it is to be typed."""
        parts = self.text.split("`")
        parts[1::2] = map(typed, parts[1::2])
        return Advice("`".join(parts), self.command and typed(self.command))


def advice_on(lock: LockName, found: LockState | None) -> Advice | None:
    """What to do about a lock; None for nothing.

    Args:
        lock: its name.
        found: the lock with its queue as far as the first waiter; None if this caller may not read it.
    """
    judged = judge(found)
    if found is None or judged.next is NextStep.NOT_READ:
        return Advice("your role may list the locks, but not read this one: `ticketlock doctor` says what is missing")
    item, now_ms, holder, first = found.item, found.now.likely_ms, judged.holder, judged.first
    if judged.next is NextStep.NOTHING:
        is_free = item is not None and item.permits > 0 and judged.alike == len(item.holders)
        return Advice("the next caller takes it over") if is_free and judged.verdict.word == "expired" else None
    if judged.next is NextStep.LOOK and holder is not None and item is not None:
        usual = span(item.mean_hold_ms or 0)
        held = span(now_ms - holder.since_ms)
        return Advice(f"the holder has had it for {held}, others for {usual} on average: look at its work")
    if judged.next is NextStep.TAKEN and first is not None:
        return Advice(
            f"the first in line takes it within {span(taken_by_then_ms(first))} if it is alive: look again then"
        )
    if judged.next is NextStep.NOT_TAKEN and first is not None:
        return Advice(
            f"the first in line, {_told(short_owner(first.owner))}, has not taken it for {span(judged.late_ms)}: it "
            "has crashed, is paused, or was not the first until now; look again in "
            f"{span(taken_by_then_ms(first))}; if then all waiters stand still, run `ticketlock doctor` with their "
            "role; if only this one, remove it (a live one joins again at the end)",
            command("remove-waiter", lock, str(first.ticket)),
        )
    token = None if holder is None else f"--force --fencing-token {holder.fencing_token}"
    taken_away = token and command("release", lock, options=token)
    if judged.next is NextStep.ASK and holder is not None:
        data = "" if holder.data is None else f" (data: {_told(holder.data)})"
        return Advice(
            f"its lease is {span(holder.lease_ms)}, and has not been renewed: ask {_told(short_owner(holder.owner))}"
            f"{data} whether it works; if it is certainly gone",
            taken_away,
        )
    if judged.next is NextStep.WAIT_OUT:
        return Advice(
            "the holder has crashed, is paused, or has no heartbeat: the first in line takes the lock some seconds "
            "after the end of the lease; if it is certainly gone",
            taken_away,
        )
    if judged.next is NextStep.CLOSED:
        return _advice_on_limit(lock, found, "it may be opened: no one gets the lock before that", "open it")
    if judged.next is NextStep.LIMITED and item is not None:
        more = f"more than {item.permits} may hold it at once"
        return _advice_on_limit(lock, found, more, "unset the limit")
    if judged.verdict.word == "suspended":
        return Advice(
            "the holder is a durable execution that waits: the lock is free once it has gone on and ended its work; if "
            "it never will, stop it, and the clean-up frees the lock"
        )
    return Advice("wait until the holder's work is done")


def _advice_on_limit(lock: LockName, found: LockState, whether: str, to_do: str) -> Advice:
    limited = None if found.item is None else found.item.limit_set
    who = "who has set its limit" if limited is None else _told(limited.by)
    how = unsetting(lock, found)
    numbers = how.text and f"; {how.text}"
    return Advice(f"ask {who} whether {whether}{numbers}; to {to_do}", how.command)


def unsetting(lock: LockName, found: LockState) -> Advice:
    """How to unset the limit of a lock such that none of its waiters ends, and what to know about their numbers.

    Args:
        lock: its name.
        found: the lock with its whole queue.
    """
    before = None if found.item is None else found.item.permits_of_users
    ended = ended_by_unsetting(found, None)
    if found.item is None or (before is not None and not ended):
        return Advice("", command("limit", lock, options="--unset"))
    if follows_deployments(found.item):
        text = f"the number of its deployment, {before}, then applies again: {who_end(ended)}"
        return Advice(text, command("limit", lock, options="--unset"))
    asking = [row for row in live_rows(found) if row.permits is not None]
    # Of several deployments the latest counts; who asks for a number of its own insists on it.
    asking.sort(key=lambda row: (row.permits_since_ms is None, row.permits_since_ms or 0))
    asked = sorted({row.permits for row in asking if row.permits is not None})
    then = "" if before is None else f", its users before the limit for {before}"
    if asking and not ended_by_unsetting(found, asking[-1].permits):
        number = asking[-1].permits or 1
        text = f"its waiters ask for {permits_of(number)}{then}"
        return Advice(text, command("limit", lock, str(number), options="--unset"))
    if asked:
        text = (
            f"its waiters ask for {' or '.join(map(str, asked))} permits{then}: all but those that ask for N will end"
        )
    else:
        text = "N is the number of permits that its users ask for: a waiter that asks for another one will end"
    return Advice(text, command("limit", lock, "N", options="--unset"))


def who_end(ended: Sequence[Row]) -> str:
    """The waiters that a lock's number of permits would end, by the numbers that they ask for."""
    asked = Counter(row.permits or 0 for row in ended)
    parts = (
        f"{number} that {'asks' if number == 1 else 'ask'} for {permits_of(each)}" for each, number in asked.items()
    )
    return f"of its waiters {', '.join(parts)} will end"


def command(verb: str, lock: LockName, *arguments: str, options: str = "") -> str:
    """A command about a lock, for any name that a lock may have."""
    words, more = [typed(lock.entity), *arguments], [options] if options else []
    if lock.namespace != DEFAULT_NAMESPACE:
        more.append(f"--namespace {typed(lock.namespace)}")
    # A name that looks like an option.
    in_order = [*more, "--", *words] if lock.entity.startswith("-") else [*words, *more]
    return " ".join(["ticketlock", verb, *in_order])


def _told(text: str) -> str:
    """A text of another user, within a sentence whose code stands between backticks."""
    return plain(text).replace("`", "'")
