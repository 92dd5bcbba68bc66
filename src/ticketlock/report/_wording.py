"""What operators read of locks and units: values in words, and commands as they are typed."""

import re
import shlex
from collections.abc import Iterator, Mapping

from ticketlock.locks import Decided, LockItem

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_TYPED_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))

_EXECUTION = re.compile(r"arn:[^:]+:states:[^:]*:[^:]*:(?:execution|express):(.+)")
_OF_A_CLIENT = re.compile(r"(.+)/[0-9a-f]{32}")


def plain(text: str) -> str:
    """A text that another user has chosen, without control characters."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def typed(text: str) -> str:
    """A text as bash, ksh and zsh read it, also one with signs that a terminal does not show."""
    if text == plain(text):
        return shlex.quote(text)
    return f"$'{''.join(map(_sign_typed, text))}'"


def _sign_typed(sign: str) -> str:
    if sign.isprintable() and sign not in "'\\":
        return sign
    return "".join(f"\\x{byte:02x}" for byte in sign.encode())


def with_options(text: str, given: Mapping[str, str | None]) -> str:
    """A command with ``table`` or ``units_table``, ``region``, ``profile``, ``endpoint_url``; other text as it is."""
    if not text.startswith("ticketlock "):
        return text
    is_of_units = text.startswith("ticketlock units ")
    program, table = ("ticketlock units", "units_table") if is_of_units else ("ticketlock", "table")
    found = ((name, given.get(name)) for name in (table, "region", "profile", "endpoint_url"))
    options = [f" --{name.replace('_', '-')} {typed(value)}" for name, value in found if value]
    return f"{program}{''.join(options)}{text.removeprefix(program)}"


def permits_of(number: int) -> str:
    """A number of permits, in words."""
    return "1 permit" if number == 1 else f"{number} permits"


def span(milliseconds: int) -> str:
    """A duration: ``0.4 s``, ``12 s``, ``3.5 min``."""
    seconds = milliseconds / 1_000
    for size, unit in _UNITS:
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) < 10 else f"{seconds:.0f} s"


def short_span(milliseconds: int) -> str:
    """A duration in at most five characters, as users type it: ``14s``, ``3m``, ``36h``, ``12d``."""
    seconds = max(0, milliseconds) / 1_000
    for size, unit in _TYPED_UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def short_owner(owner: str) -> str:
    """An owner for a table: of an execution, the state machine's name and its own; of a client, no random digits."""
    found = _EXECUTION.fullmatch(owner) or _OF_A_CLIENT.fullmatch(owner)
    return owner if found is None else found[1]


def lease(rest_ms: int) -> str:
    """The rest of a lease, or how long ago it expired."""
    return f"expired {span(-rest_ms)} ago" if rest_ms <= 0 else f"{span(rest_ms)} left"


def permits_and_who_set_them(number: int, *, are_set: bool, are_deployed: bool) -> str:
    """A number of permits, and whether an operator has set it, or it is that of a deployment."""
    if not are_set:
        return f"{permits_of(number)}, by deployment" if are_deployed else permits_of(number)
    return "closed by an operator (0 permits)" if number == 0 else f"{permits_of(number)}, set by an operator"


def decided(decision: Decided, now_ms: int) -> str:
    """When an operator has decided something, who, and why: ``3.2 h ago by ann@bastion: INC-7``."""
    why = f": {plain(decision.why)}" if decision.why else ", no reason given"
    return f"{span(max(0, now_ms - decision.at_ms))} ago by {plain(decision.by)}{why}"


def decisions(item: LockItem, now_ms: int, *, wide: bool) -> Iterator[str]:
    """What operators have decided about the lock: who, when and why."""
    if item.limit_set is not None:
        yield f"limit set to {item.limit_set.permits}, {decided(item.limit_set, now_ms)}"
    if item.limit_unset is not None:
        yield f"limit unset, {decided(item.limit_unset, now_ms)}"
    if (forced := item.last_forced) is not None:
        owner = plain(forced.owner if wide else short_owner(forced.owner))
        yield f"taken by force from {owner}, fencing token {forced.fencing_token}, {decided(forced, now_ms)}"
