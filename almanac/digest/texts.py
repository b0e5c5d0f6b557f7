"""A digest in words: the head line, each change in one line; as plain text and as Markdown.

Belongs here: what is said, and those two forms. Does not: which changes (content), messages to
programs and chats (messages).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from almanac.digest.content import Digest, Entry, Section
from almanac.forms.markup import markdown, web_address
from almanac.forms.plain_text import plain, plain_line
from almanac.forms.text_table import rounded

TITLES: Final = {
    "cancelled": "Cancelled",
    "rescheduled": "Rescheduled",
    "made_exact": "Now with an exact date",
    "made_estimated": "Now only estimated",
    "rescored": "Rescored",
    "created": "New",
    "withdrawn": "Withdrawn without a cancellation",
    "restored": "Scheduled again",
    "revised": "Other fields changed",
    "revealed": "Shown for the first time",
}
_COUNTED: Final = {
    "made_exact": "made exact",
    "made_estimated": "made estimated",
    "created": "new",
    "revealed": "shown for the first time",
}
_COINS_MAX: Final = 3
_TEXT_MAX: Final = 200
_DATED: Final = frozenset({"rescheduled", "made_exact", "made_estimated"})
_FIELDS_HIDDEN: Final = {"displayed_date": "date", "source_url": "source", "snapshot_url": "source"}


@dataclass(frozen=True, slots=True)
class Line:
    """A change in words, not escaped; `impact` is a score, a band or empty, `url` a web address."""

    impact: str
    title: str
    coins: str
    what: str
    url: str | None
    is_rescored: bool = False

    @property
    def says_impact(self) -> bool:
        """Whether a form without a column for the impact has to add it."""
        return bool(self.impact) and not self.is_rescored


def summary(digest: Digest) -> str:
    """Return how many events had each kind of change, in one line, without the period."""
    return ", ".join(map(_counted, digest.sections)) or "nothing changed"


def period(digest: Digest) -> str:
    return f"{_minute(digest.since)} to {_minute(digest.until)} UTC"


def notes(digest: Digest) -> list[str]:
    """Return how old the knowledge is, and what the filters leave out, a sentence each."""
    if digest.last_pull_at is None or digest.first_pull_at is None:
        return ["No pull had succeeded by then: nothing was known."]
    age = _age(digest.until - digest.last_pull_at)
    found = [f"Last pull: {_minute(digest.last_pull_at)} UTC, {age} before the end of the period."]
    if digest.stale_for is not None:
        found = [
            f"STALE: the last pull was {age} before the end of the period, at "
            f"{_minute(digest.last_pull_at)} UTC. What changed since is not known."
        ]
    if digest.first_pull_at > digest.since:
        found.append(
            f"The first pull was at {_minute(digest.first_pull_at)} UTC; before it nothing was "
            "known."
        )
    if digest.coins is not None:
        found.append(f"Only events of {', '.join(digest.coins)}.")
    if digest.min_impact is not None:
        left_out = f"; {digest.unscored:,} without a known impact are left out"
        found.append(
            f"Only changes of events with an impact of at least {rounded(digest.min_impact)}"
            f"{left_out if digest.unscored else ''}."
        )
    return found


def heading(section: Section) -> str:
    """Return the title of a section with its number of events."""
    count = f"{TITLES[section.kind]} ({section.events - section.apart:,})"
    if not section.apart:
        return count
    return f"{count}, and {section.apart:,} whose date became exact or estimated, below"


def lines(section: Section) -> Iterator[Line]:
    for entry in section.shown:
        row = entry.last
        yield Line(
            impact=_impact(row),
            title=_short(row["title"] or row["event_id"]),
            coins=_coins(row["coins"]),
            what=_short(_what(section.kind, entry)),
            url=web_address(row["source_url"]),
            is_rescored=section.kind == "rescored",
        )


def more(section: Section) -> str:
    """Return how many events of a section have no line, empty if all have one."""
    if not section.more:
        return ""
    return f"and {section.more:,} more" if section.shown else "not listed"


def as_text(digest: Digest) -> str:
    """Return a digest for a terminal."""
    parts = [f"Almanac, {period(digest)}: {summary(digest)}.", *notes(digest)]
    for section in digest.sections:
        found = list(lines(section))
        parts += ["", heading(section)]
        width = max((len(line.impact) for line in found), default=0)
        for line in found:
            parts.append(f"  {line.impact:>{width}}  {line.title}{_after(line.coins)}: {line.what}")
            if line.url:
                parts.append(f"  {'':{width}}  {line.url}")
        if rest := more(section):
            parts.append(f"  {'':{width}}  {rest}")
    return "\n".join(plain(part) for part in parts) + "\n"


def as_markdown(digest: Digest) -> str:
    """Return a digest as Markdown; no text of the service acts as markup."""
    parts = [f"**Almanac, {period(digest)}**: {markdown(summary(digest))}.", ""]
    parts += [f"{markdown(note)}  " for note in notes(digest)]
    for section in digest.sections:
        parts += ["", f"### {markdown(heading(section))}", ""]
        for line in lines(section):
            title = f"**{markdown(line.title)}**"
            linked = f"[{title}](<{line.url}>)" if line.url else title
            impact = f" · impact {markdown(line.impact)}" if line.says_impact else ""
            coins = _after(markdown(line.coins))
            parts.append(f"- {linked}{coins}: {markdown(line.what)}{impact}")
        if rest := more(section):
            parts.append(f"- {rest}")
    return "\n".join(parts) + "\n"


def _counted(section: Section) -> str:
    return f"{section.events:,} {_COUNTED.get(section.kind, section.kind)}"


def _what(kind: str, entry: Entry) -> str:
    """Return what changed, as `old → new`, or the date where there is nothing older."""
    row = entry.last
    if kind in _DATED:
        moved = _moved(entry) or ("" if len(entry.values) > 1 else _time_of_day(entry))
        return " → ".join(map(_dates, entry.values)) + moved
    if kind == "rescored":
        return f"impact {' → '.join(entry.values)}, {_date(row)}"
    if kind in ("cancelled", "withdrawn"):
        return f"was {_date(row)}"
    if kind == "restored":
        return f"{' → '.join(entry.values)}, {_date(row)}"
    if kind == "revised":
        names = (_FIELDS_HIDDEN.get(name, name) for name in entry.other_fields)
        return ", ".join(dict.fromkeys(name.replace("_", " ") for name in names))
    return _date(row)


def _date(row: dict[str, Any]) -> str:
    return _dates(row["displayed_date"] or "no date")


def _dates(text: str) -> str:
    """Return a date so that the arrow of a range is not read as a change."""
    return text.replace(" → ", " – ")


def _moved(entry: Entry) -> str:
    """Return how far a date moved, empty if that is not known."""
    shifts = [row["shift_days"] for row in entry.rows]
    if all(shift is not None for shift in shifts):
        days = sum(shifts)
        return f", {_amount(abs(days))} {'later' if days > 0 else 'earlier'}" if days else ""
    least, most = entry.last["least_shift_days"], entry.last["most_shift_days"]
    if len(shifts) > 1 or least is None or most is None:
        return ""
    if least > 0:
        return f", {rounded(least)} to {_amount(most)} later"
    return f", {rounded(-most)} to {_amount(-least)} earlier" if most < 0 else ""


def _time_of_day(entry: Entry) -> str:
    """Return what changed of a date that reads as before, empty if only its end did."""
    row = entry.last
    if not any("date" in (change["changed_fields"] or ()) for change in entry.rows):
        return ""
    if row["date_precision"] == "instant":
        return f", now at {row['earliest'].astimezone(UTC):%H:%M} UTC"
    return ", now without a time of day" if row["date_precision"] == "day" else ""


def _amount(days: float) -> str:
    if days >= 1:
        shown = rounded(round(days, 1))
        return f"{shown} day{'' if shown == '1' else 's'}"
    minutes = round(days * 1440)
    hours, left = divmod(minutes, 60)
    return " ".join(
        part for part in (f"{hours} h" * bool(hours), f"{left} min" * bool(left)) if part
    )


def _impact(row: dict[str, Any]) -> str:
    return rounded(row["impact"]) if row["impact"] is not None else row["impact_band"] or ""


def _coins(slugs: list[str] | None) -> str:
    if not slugs:
        return ""
    more = f" +{len(slugs) - _COINS_MAX}" if len(slugs) > _COINS_MAX else ""
    return f"({_short(', '.join(slugs[:_COINS_MAX]))}{more})"


def _after(coins: str) -> str:
    return coins and f" {coins}"


def _short(text: str) -> str:
    line = plain_line(text)
    return line if len(line) <= _TEXT_MAX else line[: _TEXT_MAX - 1] + "…"


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _age(age: timedelta) -> str:
    hours = age / timedelta(hours=1)
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{max(0, age // timedelta(minutes=1))} min"
