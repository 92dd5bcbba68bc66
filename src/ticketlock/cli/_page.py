"""The page of ``ticketlock report``: one reading of the tables as HTML that loads nothing and runs nothing.

Those who read the page did not choose its names: owners, entities and data are texts of other users.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element

import ticketlock
from ticketlock.cli._advice import Advice, advice_on_unit, needs_you, tone_of_unit
from ticketlock.cli._html import document, element, style_sheet
from ticketlock.cli._reading import Line, TableReader, TableReading
from ticketlock.cli._show import Listed, decisions
from ticketlock.cli._units_reports import ListedUnit, items_told, state_of, unfinished_told
from ticketlock.cli._verdicts import TimedVerdict, Tone, Word, left_ms, tone_of, verdict_on
from ticketlock.cli._wording import lease, permits_and_who_set_them, short_owner, span
from ticketlock.locks import DEFAULT_NAMESPACE, Holder, Row

# Of more, the page says only how many there are.
MOST_LOCKS = 50
MOST_HOLDERS = 5
MOST_WAITERS = 10
MOST_UNITS = 50

_STYLE_SHEET = Path(__file__).with_suffix(".css")
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


def page(reader: TableReader, place: str, reading: TableReading) -> str:
    """A reading as a page.

    Args:
        reader: what was asked for.
        place: the table's Region, and its endpoint if it is not that of AWS.
        reading: the first ``MOST_LOCKS`` locks with their whole queues.
    """
    locks, units = reading.shown_locks[:MOST_LOCKS], (reading.shown_units or [])[:MOST_UNITS]
    table = reader.settings.table_name
    ages_ms = [age for line in locks for age in _ages_ms(line.listed)] + [each.unit.age_s * 1_000 for each in units]
    scale = Scale.up_to(max(ages_ms, default=0))
    stuck = sum(line.judged.is_stuck for line in reading.locks)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="robots", content="noindex"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{stuck:,} stuck: locks of {table}"),
        style_sheet(_STYLE_SHEET.read_text(encoding="utf-8")),
    )
    main = element(
        "main",
        element("h1", "Locks in the table ", element("bdi", table)),
        element("p", *_when_and_what(reader, place, reading), class_="faint"),
        element("dl", *_counts(reading, stuck), class_="counts"),
        *_of_locks(reading, scale),
        *_of_units(reader, reading, scale),
        _footer(),
        style=scale.lines(),
    )
    for code in main.iter("code"):
        code.text = reader.settings.command(code.text or "", anywhere=True)
    return document(element("html", head, element("body", main), lang="en"))


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


def _counts(reading: TableReading, stuck: int) -> Iterator[Element]:
    yield _count("stuck", stuck, is_alarm=stuck > 0)
    yield _count("busy", len(reading.locks))
    yield _count("waiting", sum(line.listed.waiting for line in reading.locks))
    waited_ms = [line.listed.now_ms - line.listed.first.created_at_ms for line in reading.locks if line.listed.first]
    yield _count("longest wait", span(max(waited_ms)) if waited_ms else "none")
    if reading.units is not None:
        states = [state_of(each.unit) for each in reading.units]
        each = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
        is_alarm = any(map(needs_you, reading.units))
        yield _count(f"open units{each and ': '}{each}", len(states), is_alarm=is_alarm, is_wide=True)
    if reading.strange:
        yield _count("rows of no unit in the units table", reading.strange, is_alarm=True)


def _count(what: str, number: int | str, *, is_alarm: bool = False, is_wide: bool = False) -> Element:
    shown = f"{number:,}" if isinstance(number, int) else number
    kinds = " ".join(["alarm"] * is_alarm + ["wide"] * is_wide) or None
    return element("div", element("dt", what), element("dd", shown), class_=kinds)


def _of_locks(reading: TableReading, scale: Scale) -> Iterator[Element]:
    locks = reading.shown_locks
    if not locks:
        yield element("h2", "Locks")
        yield element("p", "No lock is stuck." if reading.locks else "No lock is busy.", class_="card")
    groups: dict[str, list[Line]] = {}
    for line in locks[:MOST_LOCKS]:
        is_waited_for = line.listed.first is not None or line.listed.front is None
        title = _STUCK if line.judged.is_stuck else _WAITED_FOR if is_waited_for else _IDLE
        groups.setdefault(title, []).append(line)
    for title, lines in groups.items():
        yield element("h2", title)
        if title == _IDLE:
            yield element(
                "div", _table("Lock and holder", scale, [_idle(line, scale) for line in lines]), class_="card"
            )
        else:
            yield from (_waited_for(line, scale) for line in lines)
    yield from _more(len(locks) - MOST_LOCKS, "lock", "ticketlock ls --busy")


def _waited_for(line: Line, scale: Scale) -> Element:
    listed, name, is_stuck = line.listed, line.listed.lock.lock, line.judged.is_stuck
    title = element("h3", element("bdi", name.entity), class_="clipped", title=name.entity)
    head = element("header", title, *_namespace_and_state(line))
    parts = [head, *_next(listed.advice), *_people(listed, scale), *_facts(listed)]
    return element("article", *parts, class_="card stuck" if is_stuck else "card")


def _idle(line: Line, scale: Scale) -> Element:
    listed, name = line.listed, line.listed.lock.lock
    title = [element("bdi", name.entity, class_="clipped", title=name.entity), *_namespace_and_state(line)]
    rows = _holders(listed, scale)
    under = [*_next(listed.advice)]
    if crashed := len(listed.front.rows) if listed.front is not None else 0:
        under.append(element("p", f"In line: {crashed:,}, all crashed.", class_="next"))
    if under:
        rows.append(element("tr", element("td", *under, colspan="3"), class_="under"))
    return _group(element("header", *title), rows)


def _namespace_and_state(line: Line) -> Iterator[Element]:
    namespace, word = line.listed.lock.lock.namespace, line.judged.verdict.word
    if namespace != DEFAULT_NAMESPACE:
        yield element("span", "in ", element("bdi", namespace), class_="faint")
    yield _chip(line.judged.tone, _in_words(line.judged.verdict))
    if line.listed.lock.permits == 0 and word != "closed":
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
    rows += _more_rows(len(waiters) - MOST_WAITERS, "waiter")
    yield _table("Name", scale, [*groups, _group(f"In line: {len(waiters):,}", rows)])


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
    said = listed.judged().verdict.word if len(found) == 1 else None
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
    yield element("h2", "Open units in the table ", element("bdi", reader.settings.units_table_name))
    if not units:
        yield element("p", "No unit needs you." if reading.units else "No unit is open.", class_="card")
        return
    groups = [element("tbody", *_unit(each, scale)) for each in units[:MOST_UNITS]]
    yield element("div", _table("Unit", scale, groups), class_="card units")
    yield from _more(len(units) - MOST_UNITS, "unit", "ticketlock units ls")


def _unit(listed: ListedUnit, scale: Scale) -> Iterator[Element]:
    unit = listed.unit
    state, ends_in_s = state_of(unit), unit.lease_ends_in_s
    items = items_told(unit.items) + ("" if state != "committed" else f", {unfinished_told(listed)} unfinished")
    by = f"rolled back by {unit.rolled_back_by}" if unit.rolled_back_by else ""
    notes = _notes(items, f"of {short_owner(unit.owner)}" if unit.owner else "", by)
    shown = "-" if ends_in_s is None else lease(round(ends_in_s * 1_000))
    yield element(
        "tr",
        element("td", element("code", unit.unit), " ", _chip(tone_of_unit(listed), state), *notes),
        element("td", scale.age(unit.age_s * 1_000, "open", tone_of_unit(listed))),
        element("td", shown),
    )
    if (advice := advice_on_unit(listed)) is not None:
        yield element("tr", element("td", *_next(advice), colspan="3"), class_="under")


def _footer() -> Element:
    words = (part for word, tone, shown in _WORDS for part in (element("dt", _chip(tone, word)), element("dd", shown)))
    return element(
        "footer",
        element(
            "p",
            "A lock is stuck if someone waits for it, and not just for a holder at work. Ages and leases are those of "
            "the moment of the reading, by the table's time; the scale of the bars is logarithmic.",
        ),
        element("dl", *words),
        element("p", "The commands need credentials of the table's account."),
        element("p", f"ticketlock {ticketlock.__version__}"),
    )
