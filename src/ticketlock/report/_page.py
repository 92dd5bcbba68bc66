"""The page of ``ticketlock report``, and the same on a dashboard: one reading of the tables as HTML that loads nothing
and runs nothing.

Those who read the page did not choose its names: owners, entities and data are texts of other users.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element

from ticketlock._version import __version__
from ticketlock.locks import DEFAULT_NAMESPACE, Holder, Row
from ticketlock.report._advice import Advice
from ticketlock.report._html import element, markup, style_sheet
from ticketlock.report._reading import Listed, TableReader, TableReading
from ticketlock.report._units import ListedUnit, items_told, state_of
from ticketlock.report._verdicts import TimedVerdict, Tone, Word, left_ms, tone_of, verdict_on
from ticketlock.report._wording import decisions, lease, permits_and_who_set_them, short_owner, span, with_options

# Of more, the page says only how many there are.
MOST_LOCKS = 50
# Lambda returns 6 MB, and other users choose names: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
MOST_ON_DASHBOARD = 20
MOST_HOLDERS = 5
MOST_WAITERS = 10
MOST_UNITS = 50

_STYLE_SHEET = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_TICKS = (
    (1_000, "1 s"),
    (10_000, "10 s"),
    (_MINUTE_MS, "1 min"),
    (10 * _MINUTE_MS, "10 min"),
    (_HOUR_MS, "1 h"),
    (6 * _HOUR_MS, "6 h"),
    (_DAY_MS, "1 d"),
    (7 * _DAY_MS, "7 d"),
    (30 * _DAY_MS, "30 d"),
    (365 * _DAY_MS, "1 y"),
)
_LEAST_TICKS = 4
_LABEL_PERCENT = 16
"""How much of the scale a label takes, at most."""

_STUCK, _WAITED_FOR, _IDLE = "Stuck", "Others wait", "No one waits"

_WORDS: Sequence[tuple[str, Tone, str]] = (
    ("renewing", "good", "the holder renews its lease: it is alive"),
    ("granted", "good", "the holder has not renewed its lease yet, and need not have"),
    ("suspended", "plain", "the holder is a durable execution of Lambda that waits; nothing of it runs"),
    (
        "silent",
        "late",
        "the holder should have renewed: it has crashed, is paused, cannot reach the table or has no heartbeat",
    ),
    ("expired", "bad", "the lease has ended without a renewal: the first in line, or the next caller, takes the lock"),
    ("limited", "shut", "the holders are alive, and an operator lets fewer hold the lock than its users ask for"),
    ("closed", "shut", "no one can take the lock until an operator opens it"),
    ("free", "open", "no one holds the lock"),
    ("newer format", "plain", "a newer version of ticketlock has written the lock, and can read it"),
)


@dataclass(frozen=True)
class Scale:
    """The logarithmic scale of all ages on the page: on it a second can be seen beside hours.

    Attributes:
        ticks: its marks in milliseconds, each with its label; from the first to the last.
    """

    ticks: Sequence[tuple[int, str]]

    @classmethod
    def up_to(cls, longest_ms: float) -> "Scale":
        """The scale for ages up to this one."""
        needed = sum(at_ms < longest_ms for at_ms, _ in _TICKS) + 1
        return cls(_TICKS[: max(_LEAST_TICKS, needed)])

    def percent(self, age_ms: float) -> float:
        """Where an age is on the scale: 0 to 100; what is beyond an end is at the end."""
        least_ms, most_ms = self.ticks[0][0], self.ticks[-1][0]
        return 100 * math.log(min(max(age_ms, least_ms), most_ms) / least_ms) / math.log(most_ms / least_ms)

    def lines(self) -> str:
        """The style of what has bars in it: a line behind them at each mark."""
        inner = (self.percent(at_ms) for at_ms, _ in self.ticks[1:-1])
        return "--grid: " + ", ".join(
            f"linear-gradient(var(--line) 0 0) {at:.1f}% 0 / 1px 100% no-repeat" for at in inner
        )

    def axis(self) -> Element:
        """The labels of the marks, but for those that would touch others."""
        marks = [(self.percent(at_ms), label) for at_ms, label in self.ticks]
        shown = [marks[-1]]
        for at, label in marks[-2:0:-1]:
            if min(at, shown[-1][0] - at) >= _LABEL_PERCENT:
                shown.append((at, label))
        shown.append(marks[0])
        labels = (
            # Where there is little room, the page has those at the ends.
            element("span", label, class_=None if at in (0, 100) else "minor", style=f"left: {at:.1f}%")
            for at, label in reversed(shown)
        )
        return element("div", *labels, class_="axis", aria_hidden="true")

    def age(self, age_ms: float, what: str, tone: Tone | Literal["gone"] | None = None) -> Element:
        """An age, in words and as a bar.

        Args:
            age_ms: the age.
            what: what has lasted for so long.
            tone: its colour; None for that of waiting.
        """
        shown = span(round(max(0, age_ms)))
        fill = element("i", class_=tone and f"is-{tone}", style=f"width: {self.percent(age_ms):.1f}%")
        bar = element("span", fill, class_="track", role="img", aria_label=f"{what} for {shown}")
        return element("div", element("span", shown), bar, class_="age")


def page(reader: TableReader, reading: TableReading, place: str, typed: Callable[[str], str]) -> str:
    """A reading as a page.

    Args:
        reader: what was asked for.
        reading: the first ``MOST_LOCKS`` locks with their queues.
        place: the table's Region, and its endpoint if it is not that of AWS.
        typed: makes of a command what is to be typed.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="robots", content="noindex"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{_stuck(reading):,} stuck: locks of {reader.name}"),
        style_sheet(_STYLE_SHEET),
    )
    main = _main(reader, reading, place, typed, MOST_LOCKS)
    body = element("body", main, class_="ticketlock")
    return f"<!doctype html>\n{markup(element('html', head, body, lang='en'))}\n"


def widget(reader: TableReader, reading: TableReading, region: str, *, dark: bool) -> str:
    """The same for a dashboard of CloudWatch, dark or not, in the table's Region; turns the dashboard's styles off."""
    typed = partial(with_options, given={"table": reader.name, "units_table": reader.units_name, "region": region})
    main = _main(reader, reading, region, typed, MOST_ON_DASHBOARD)
    kind, scheme = "ticketlock cwdb-no-default-styles", f"color-scheme: {'dark' if dark else 'light'}"
    # The style sheet is not the first element: who cleans HTML may take it for a part of the head, and drop it.
    return markup(element("div", main, style_sheet(_STYLE_SHEET), class_=kind, style=scheme))


def _main(
    reader: TableReader, reading: TableReading, place: str, typed: Callable[[str], str], most_locks: int
) -> Element:
    locks, units = reading.shown_locks[:most_locks], (reading.shown_units or [])[:MOST_UNITS]
    ages_ms = [age for each in locks for age in _ages_ms(each)] + [each.unit.age_s * 1_000 for each in units]
    scale, is_of_locks = Scale.up_to(max(ages_ms, default=0)), reader.table is not None
    main = element(
        "main",
        element("h1", f"{'Locks' if is_of_locks else 'Open units'} in the table ", element("bdi", reader.name)),
        element("p", *_when_and_what(reader, place, reading), class_="faint"),
        *_unread(reading, "ticketlock report -o report.html" if is_of_locks else "ticketlock units ls"),
        element("dl", *_counts(reading, is_of_locks=is_of_locks), class_="counts"),
        *(_of_locks(reading, scale, most_locks) if is_of_locks else ()),
        *_of_units(reader, reading, scale),
        _footer(is_of_locks=is_of_locks),
        style=scale.lines(),
    )
    for code in main.iter("code"):
        code.text = typed(code.text or "")
    return main


def _unread(reading: TableReading, command: str) -> Iterator[Element]:
    if reading.unread:
        shown = f"This is not all: {'; '.join(reading.unread)}. The whole: "
        yield element("p", shown, element("code", command), class_="card unread")


def _stuck(reading: TableReading) -> int:
    return sum(each.judged.is_stuck for each in reading.locks)


def _ages_ms(listed: Listed) -> Iterator[float]:
    if listed.front is not None and listed.front.item is not None:
        since_ms = [each.since_ms for each in listed.front.item.holders] + [
            row.created_at_ms for row in listed.front.rows
        ]
        yield from (listed.now_ms - each for each in since_ms)


def _when_and_what(reader: TableReader, place: str, reading: TableReading) -> Iterator[Element | str]:
    read_at = datetime.fromtimestamp(reading.now_ms / 1_000, UTC)
    yield f"{place}, read at "
    yield element("time", f"{read_at:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{read_at:%Y-%m-%dT%H:%M:%SZ}")
    asked = {
        "what is stuck": reader.stuck,
        f"the namespace “{reader.namespace}”": reader.namespace is not None,
        f"entities that begin with “{reader.prefix}”": bool(reader.prefix),
    }
    if only := [shown for shown, is_asked in asked.items() if is_asked]:
        yield f"; only {', '.join(only)}"


def _counts(reading: TableReading, *, is_of_locks: bool) -> Iterator[Element]:
    if is_of_locks:
        yield _count("stuck", _stuck(reading), is_alarm=_stuck(reading) > 0)
        yield _count("busy", len(reading.locks))
        yield _count("waiting", sum(each.waiting for each in reading.locks))
        waited_ms = [each.now_ms - each.first.created_at_ms for each in reading.locks if each.first]
        yield _count("longest wait", span(max(waited_ms)) if waited_ms else "none")
    if reading.units is not None:
        states = [state_of(each.unit) for each in reading.units]
        each = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
        is_alarm = any(each.needs_you for each in reading.units)
        yield _count(f"open units{each and ': '}{each}", len(states), is_alarm=is_alarm, is_wide=True)
    if reading.strange:
        yield _count("rows of no unit in the units table", reading.strange, is_alarm=True)


def _count(what: str, number: int | str, *, is_alarm: bool = False, is_wide: bool = False) -> Element:
    shown = f"{number:,}" if isinstance(number, int) else number
    kinds = " ".join(["alarm"] * is_alarm + ["wide"] * is_wide) or None
    return element("div", element("dt", what), element("dd", shown), class_=kinds)


def _of_locks(reading: TableReading, scale: Scale, most: int) -> Iterator[Element]:
    locks = reading.shown_locks
    if not locks:
        yield element("h2", "Locks")
        yield element("p", "No lock is stuck." if reading.locks else "No lock is busy.", class_="card")
    groups: dict[str, list[Listed]] = {}
    for listed in locks[:most]:
        is_waited_for = listed.first is not None or listed.front is None
        title = _STUCK if listed.judged.is_stuck else _WAITED_FOR if is_waited_for else _IDLE
        groups.setdefault(title, []).append(listed)
    for title, group in groups.items():
        yield element("h2", title)
        if title == _IDLE:
            yield element(
                "div", _table("Lock and holder", scale, [_idle(each, scale) for each in group]), class_="card"
            )
        else:
            yield from (_waited_for(each, scale) for each in group)
    yield from _more(len(locks) - most, "lock", "ticketlock ls --busy")


def _waited_for(listed: Listed, scale: Scale) -> Element:
    name, is_stuck = listed.lock.lock, listed.judged.is_stuck
    title = element("h3", element("bdi", name.entity), class_="clipped", title=name.entity)
    head = element("header", title, *_namespace_and_state(listed))
    parts = [head, *_next(listed.advice), *_people(listed, scale), *_facts(listed)]
    return element("article", *parts, class_="card stuck" if is_stuck else "card")


def _idle(listed: Listed, scale: Scale) -> Element:
    name = listed.lock.lock
    title = [element("bdi", name.entity, class_="clipped", title=name.entity), *_namespace_and_state(listed)]
    rows = _holders(listed, scale)
    under = [*_next(listed.advice)]
    if crashed := len(listed.front.rows) if listed.front is not None else 0:
        under.append(element("p", f"In line: {crashed:,}, all crashed.", class_="next"))
    if under:
        rows.append(element("tr", element("td", *under, colspan="3"), class_="under"))
    return _group(element("header", *title), rows)


def _namespace_and_state(listed: Listed) -> Iterator[Element]:
    namespace, word = listed.lock.lock.namespace, listed.judged.verdict.word
    if namespace != DEFAULT_NAMESPACE:
        yield element("span", "in ", element("bdi", namespace), class_="faint")
    yield _chip(listed.judged.tone, _in_words(listed.judged.verdict))
    if listed.lock.permits == 0 and word != "closed":
        yield _chip("shut", "closed")


def _chip(tone: Tone, shown: str) -> Element:
    return element("span", shown, class_=f"chip {tone}")


def _in_words(verdict: TimedVerdict) -> str:
    if verdict.word == "?":
        return "not readable"
    if verdict.for_ms is None or verdict.word in ("renewing", "granted"):
        return verdict.word
    lasted = span(verdict.for_ms)
    return f"expired {lasted} ago" if verdict.word == "expired" else f"{verdict.word} for {lasted}"


def _next(advice: Advice | None) -> Iterator[Element]:
    if advice is None:
        return
    shown = (element("code", part) if place % 2 else part for place, part in enumerate(advice.text.split("`")))
    yield element("p", element("strong", "Next: "), *shown, "." if advice.command is None else ":", class_="next")
    if advice.command is not None:
        yield element("code", advice.command, class_="command")


def _people(listed: Listed, scale: Scale) -> Iterator[Element]:
    """The holders of a lock, and those in line from the first one that has not crashed."""
    if listed.front is None or listed.first is None:
        return
    first, holders, groups = listed.first, _holders(listed, scale), []
    if holders:
        groups.append(_group("Holders" if len(holders) > 1 else "Holder", holders))
    waiters = [row for row in listed.front.rows if row.ticket >= first.ticket]
    rows = [_waiter(place, row, listed.now_ms, scale) for place, row in enumerate(waiters[:MOST_WAITERS], 1)]
    number = len(waiters) if listed.is_whole else max(len(waiters), listed.waiting)
    rows += _more_rows(number - min(len(waiters), MOST_WAITERS), "waiter")
    yield _table("Name", scale, [*groups, _group(f"In line: {number:,}", rows)])


def _table(what: str, scale: Scale, groups: Sequence[Element]) -> Element:
    """Groups of rows: a name, an age on the scale, and a lease."""
    head = element(
        "tr",
        element("th", what, scope="col", class_="who"),
        element("th", element("span", "For how long", class_="heard"), scale.axis(), scope="col"),
        element("th", "Lease", scope="col", class_="lease"),
    )
    return element("table", element("thead", head), *groups)


def _group(title: Element | str, rows: Sequence[Element]) -> Element:
    return element("tbody", element("tr", element("th", title, colspan="3", scope="rowgroup")), *rows)


def _more_rows(number: int, what: str) -> list[Element]:
    cell = element("td", f"and {_number_more(number, what)}", class_="more", colspan="3")
    return [element("tr", cell)] if number > 0 else []


def _more(number: int, what: str, command: str) -> Iterator[Element]:
    if number > 0:
        yield element("p", f"And {_number_more(number, what)}: ", element("code", command), class_="more")


def _number_more(number: int, what: str) -> str:
    return f"1 more {what}" if number == 1 else f"{number:,} more {what}s"


def _holders(listed: Listed, scale: Scale) -> list[Element]:
    """Rows for the holders, first those whose leases end first."""
    found = () if listed.front is None or listed.front.item is None else listed.front.item.holders
    by_lease = sorted(found, key=lambda holder: holder.lease_until_ms)[:MOST_HOLDERS]
    # The word of a single holder is that of the lock, usually.
    said = listed.judged.verdict.word if len(found) == 1 else None
    rows = [_holder(each, listed.now_ms, scale, said=said) for each in by_lease]
    return rows + _more_rows(len(found) - MOST_HOLDERS, "holder")


def _holder(holder: Holder, now_ms: int, scale: Scale, *, said: Word | None) -> Element:
    verdict, left = verdict_on(holder, now_ms), left_ms(holder, now_ms)
    tone = tone_of(holder, verdict)
    notes = ["" if verdict.word == said else _in_words(verdict), "shared" if holder.shared else "", holder.data or ""]
    shown = f"{span(left)} of {span(holder.lease_ms)} left" if left else lease(holder.lease_until_ms - now_ms)
    fill = element("i", class_=f"is-{tone}", style=f"width: {100 * left / holder.lease_ms:.1f}%")
    renewed = "" if verdict.word == "granted" else f"renewed {span(max(0, now_ms - holder.renewed_ms))} ago"
    return element(
        "tr",
        element("td", _name(holder.owner), *_notes(*notes)),
        element("td", scale.age(now_ms - holder.since_ms, "held", tone)),
        element(
            "td", shown, element("span", fill, class_="track meter", role="img", aria_label=shown), *_notes(renewed)
        ),
    )


def _waiter(place: int, row: Row, now_ms: int, scale: Scale) -> Element:
    has_crashed = row.lease_until_ms <= now_ms
    notes = ["crashed" if has_crashed else "", "parked" if row.session else "", "shared" if row.shared else ""]
    return element(
        "tr",
        element("td", _name(row.owner, place), *_notes(*notes)),
        element("td", scale.age(now_ms - row.created_at_ms, "waiting", "gone" if has_crashed else None)),
        element("td", lease(row.lease_until_ms - now_ms)),
    )


def _name(owner: str, place: int | None = None) -> Element:
    rank = None if place is None else element("span", f"{place:,}.", class_="rank")
    return element("div", rank, element("bdi", short_owner(owner), title=owner), class_="name")


def _notes(*notes: str) -> Iterator[Element]:
    if parts := _joined(notes):
        yield element("small", *parts)


def _joined(texts: Iterable[str]) -> list[Element | str]:
    """Texts with semicolons between them; the direction of one does not change that of another."""
    return [part for text in texts if text for part in ("; ", element("bdi", text))][1:]


def _facts(listed: Listed) -> Iterator[Element]:
    item = listed.front and listed.front.item
    if not item:
        return
    are_deployed = bool(item.permits_since_ms)
    facts = [permits_and_who_set_them(item.permits, are_set=item.permits_are_set, are_deployed=are_deployed)]
    if item.mean_hold_ms is not None:
        facts.append(f"held for {span(item.mean_hold_ms)} on average")
    yield element("p", *_joined([*facts, *decisions(item, listed.now_ms, wide=True)]), class_="facts")


def _of_units(reader: TableReader, reading: TableReading, scale: Scale) -> Iterator[Element]:
    units = reading.shown_units
    if units is None:
        return
    if reader.table is not None:
        yield element("h2", "Open units in the table ", element("bdi", reader.units_name))
    if not units:
        yield element("p", "No unit needs you." if reading.units else "No unit is open.", class_="card")
        return
    groups = [element("tbody", *_unit(each, scale)) for each in units[:MOST_UNITS]]
    yield element("div", _table("Unit", scale, groups), class_="card units")
    yield from _more(len(units) - MOST_UNITS, "unit", "ticketlock units ls")


def _unit(listed: ListedUnit, scale: Scale) -> Iterator[Element]:
    unit = listed.unit
    state, ends_in_s = state_of(unit), unit.lease_ends_in_s
    items = items_told(unit.items) + ("" if state != "committed" else f", {listed.unfinished_told} unfinished")
    by = f"rolled back by {unit.rolled_back_by}" if unit.rolled_back_by else ""
    notes = _notes(items, f"of {short_owner(unit.owner)}" if unit.owner else "", by)
    shown = "-" if ends_in_s is None else lease(round(ends_in_s * 1_000))
    yield element(
        "tr",
        element("td", element("code", unit.unit), " ", _chip(listed.tone, state), *notes),
        element("td", scale.age(unit.age_s * 1_000, "open", listed.tone)),
        element("td", shown),
    )
    if (advice := listed.advice) is not None:
        yield element("tr", element("td", *_next(advice), colspan="3"), class_="under")


def _footer(*, is_of_locks: bool) -> Element:
    words = (part for word, tone, shown in _WORDS for part in (element("dt", _chip(tone, word)), element("dd", shown)))
    stuck = "A lock is stuck if someone waits for it, and not just for a holder at work. " if is_of_locks else ""
    return element(
        "footer",
        element(
            "p",
            f"{stuck}Ages and leases are those of the moment of the reading, by the table's time; the scale of the "
            "bars is logarithmic.",
        ),
        element("dl", *words) if is_of_locks else None,
        element("p", "The commands need credentials of the table's account."),
        element("p", f"ticketlock {__version__}"),
    )
