"""The changes that became known in a period: as text, Markdown and JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from almanac.core.errors import InvalidArgument, QueryRefused
from almanac.core.statements import Statements
from almanac.core.text import (
    cut_line,
    escape_markdown,
    format_number,
    json_text,
    make_web_address,
    plain,
    plain_line,
)
from almanac.core.timestamps import TimestampLike
from almanac.events import (
    Coins,
    MinImpact,
    Names,
    find_pulls,
    is_stale,
    make_filter_values,
    read_choices,
    read_known_at,
)
from almanac.reader import Reader

TITLES: Final = {
    "cancelled": "Cancelled",
    "rescheduled": "Rescheduled",
    "made_exact": "Date now exact",
    "made_estimated": "Date now estimated",
    "rescored": "Rescored",
    "created": "New",
    "withdrawn": "Withdrawn",
    "restored": "Scheduled again",
    "revised": "Revised",
    "revealed": "First seen",
}
IN_ORDER: Final = tuple(TITLES)
"""The kinds of change, the most important first."""
FLOOD: Final = 20
"""More events than this that are only revealed are a count: a first pull reveals all there are."""
_COINS_MAX: Final = 3
_DATED: Final = frozenset({"rescheduled", "made_exact", "made_estimated"})
_FIELDS_HIDDEN: Final = {"displayed_date": "date", "source_url": "source", "snapshot_url": "source"}
_OF_THE_DATE: Final = frozenset({"date", "date_end", "date_type", "displayed_date", "is_estimated"})
_OF_THE_SCORE: Final = frozenset({"impact", "impact_band"})
_SQL = Statements("almanac")


Rows = Sequence[dict[str, Any]]
"""The changes of one kind to one event in the period, oldest first. A row has the columns of
`changes`, the date, source and status of the version, and how far a date moved, in days."""


@dataclass(frozen=True, slots=True)
class Section:
    """The changes of one kind: their number, and the rows of the first events."""

    kind: str
    changes: int
    events: int
    entries: Sequence[Rows]

    @property
    def more(self) -> int:
        """The number of events without an entry."""
        return self.events - len(self.entries)


@dataclass(frozen=True, slots=True)
class Digest:
    """The changes that became known after `since`, until `until`.

    Attributes:
        first_pull_at, last_pull_at: of events, by `until`; None if there was none.
        sections: the kinds that occurred, the most important first.
        min_impact: the least impact, None for all; `unscored` changes have no known impact, and
            are left out if there is a least one.
        coins, categories: slugs and names that an event has one of, None for all.
    """

    since: datetime
    until: datetime
    first_pull_at: datetime | None
    last_pull_at: datetime | None
    sections: Sequence[Section]
    min_impact: float | None = None
    unscored: int = 0
    coins: Sequence[str] | None = None
    categories: Sequence[str] | None = None
    tickers: Mapping[str, str] = field(default_factory=dict)
    """The ticker of each coin that has one, by its slug."""

    @property
    def is_stale(self) -> bool:
        """Whether the last pull was too old at the end of the period."""
        return is_stale(self.last_pull_at, self.until)


class LastKnown(NamedTuple):
    """The time of the last published pull, and the last position in the change feed."""

    at: datetime
    feed_id: str
    place: int


def read_last_known(reader: Reader) -> LastKnown:
    """Return the end of the published history: its last pull and feed position."""
    (row,) = reader.rows(_SQL["last_known"])
    if row["known_at"] is None:
        raise QueryRefused("nothing was pulled yet, so there is nothing to report")
    return LastKnown(row["known_at"], row["feed_id"], row["place"])


def compute_digest(
    reader: Reader,
    *,
    since: TimestampLike,
    until: TimestampLike | None = None,
    coins: Coins | None = None,
    kinds: Names | None = None,
    min_impact: MinImpact | None = None,
    limit: int | None = None,
    categories: Names | None = None,
) -> Digest:
    """Return what became known after `since`, until `until` (now by default).

    Before the first pull nothing was known, so a period may begin before it. `limit` is the largest
    number of events listed per kind; None lists all. Many events that were only revealed are
    counted but not listed, unless `kinds` names them.
    """
    with reader.pinned():
        after, before = read_known_at(reader, since, "since"), read_known_at(reader, until, "until")
        if before < after:
            raise InvalidArgument(f"until={until!r} is before since={since!r}")
        if limit is not None and limit < 1:
            raise InvalidArgument(f"limit={limit}: expected at least 1")
        named = read_choices(kinds, "kinds", IN_ORDER)
        values = {
            "since": after,
            "until": before,
            "kinds": named,
            **make_filter_values(reader, coins, categories, min_impact, before),
        }
        counts = reader.rows(_SQL["digest_counts"], values)
        events = {row["kind"]: row["events"] for row in counts}
        with_revealed = "revealed" in (named or ()) or events.get("revealed", 0) <= FLOOD
        values |= {"limit": limit, "revealed": with_revealed}
        rows = reader.rows(_SQL["digest_rows"], values)
        pulls = find_pulls(reader, before)
        symbols = {row["coin"]: row["symbol"] for row in reader.rows(_SQL["coin_names"])}
        tickers = {coin: symbol.upper() for coin, symbol in symbols.items() if symbol}
    entries: dict[str, list[Rows]] = {kind: [] for kind in IN_ORDER}
    for (kind, _), of_event in groupby(rows, key=lambda row: (row["kind"], row.pop("place"))):
        entries[kind].append(list(of_event))
    sections = [
        Section(row["kind"], row["changes"], row["events"], entries[row["kind"]])
        for row in sorted(counts, key=lambda row: IN_ORDER.index(row["kind"]))
        if row["events"]
    ]
    unscored = sum(row["unscored"] for row in counts)
    filters = values["min_impact"], unscored, values["coins"], values["categories"]
    return Digest(after, before, *pulls, sections, *filters, tickers=tickers)


def place_values(places: tuple[int, int] | None) -> dict[str, int | None]:
    """Return the parameters of statements on a part of the feed; None is all of it."""
    after, through = places or (None, None)
    return {"after": after, "through": through}


def summary(digest: Digest) -> str:
    """Return how many events had each kind of change, in one line, without the period."""
    found = (f"{each.events:,} {each.kind.replace('_', ' ')}" for each in digest.sections)
    return ", ".join(found) or "nothing changed"


def period(digest: Digest) -> str:
    return f"{_minute(digest.since)} to {_minute(digest.until)} UTC"


def notes(digest: Digest) -> list[str]:
    """Return one sentence on the age of the data and one on what the filters leave out."""
    if digest.last_pull_at is None or digest.first_pull_at is None:
        return ["No pull had succeeded by then: nothing was known."]
    found = [f"Last pull: {_minute(digest.last_pull_at)} UTC."]
    if digest.is_stale:
        found = [f"STALE: {found[0]} Later changes are not known."]
    if digest.first_pull_at > digest.since:
        first = _minute(digest.first_pull_at)
        found.append(f"The first pull was at {first} UTC; before it nothing was known.")
    for named in (digest.coins, digest.categories):
        found += [] if named is None else [f"Only events of {', '.join(named)}."]
    if digest.min_impact is not None:
        least, unscored = format_number(digest.min_impact), f"{digest.unscored:,}"
        found.append(
            f"Only changes of events with an impact of at least {least}; {unscored} without a "
            "known impact are left out."
        )
    return found


def heading(section: Section) -> str:
    """Return the title of a section with its number of events."""
    return f"{TITLES[section.kind]} ({section.events:,})"


def _lines(
    section: Section, escape: Callable[[str], str], link: Callable[[str, str], str]
) -> Iterator[str]:
    for rows in section.entries:
        row = rows[-1]
        title, url = escape(_title(row)), make_web_address(row["source_url"])
        coins = escape(_join_coins(row["coins"] or ()))
        what = escape(cut_line(_what(section.kind, rows)))
        impact = "" if section.kind == "rescored" else escape(show_impact(row))
        yield (
            f"{link(title, url) if url else title}{coins and f' ({coins})'}: {what}"
            f"{impact and f' · impact {impact}'}"
        )


def _title(row: Mapping[str, Any]) -> str:
    return cut_line(row["title"] or row["event_id"])


def _join_coins(names: Sequence[str]) -> str:
    more = f" +{len(names) - _COINS_MAX}" if len(names) > _COINS_MAX else ""
    return cut_line(", ".join(names[:_COINS_MAX])) + more


def _rest(section: Section) -> list[str]:
    """Return how many events of a section have no line, nothing if all have one."""
    listed = f"and {section.more:,} more"
    hidden = f"not listed; --kinds {section.kind} lists them"
    return [listed if section.entries else hidden] if section.more else []


def as_text(digest: Digest) -> str:
    """Return a digest as lines of tickers, impact, change and title; the address is last."""
    lines = {section.kind: list(_text_lines(digest, section)) for section in digest.sections}
    width = max([0, *(cell_len(coins) for found in lines.values() for coins, _ in found)])
    parts = [f"Almanac, {period(digest)}: {summary(digest)}.", *notes(digest)]
    for section in digest.sections:
        parts += ["", heading(section)]
        parts += [f"  {set_cell_size(coins, width)}  {line}" for coins, line in lines[section.kind]]
        parts += [f"  {line}" for line in _rest(section)]
    if any(section.more and section.entries for section in digest.sections):
        parts += ["", "--limit N lists more events of each kind."]
    return "\n".join(plain(part) for part in parts) + "\n"


def _text_lines(digest: Digest, section: Section) -> Iterator[tuple[str, str]]:
    """Yield the tickers of each event, and the rest of its line."""
    for rows in section.entries:
        row = rows[-1]
        names = [cut_line(digest.tickers.get(slug, slug), 12) for slug in row["coins"] or ()]
        url = make_web_address(row["source_url"]) or ""
        impact, what = show_impact(row), cut_line(_what(section.kind, rows))
        line = f"{impact:>4}  {_title(row)}: {what}  {url}".rstrip()
        yield plain_line(_join_coins(names)), line


def as_markdown(digest: Digest) -> str:
    """Return a digest as Markdown; no text of the service acts as markup."""
    parts = [f"**Almanac, {period(digest)}**: {escape_markdown(summary(digest))}.", ""]
    parts += [f"{escape_markdown(note)}  " for note in notes(digest)]
    for section in digest.sections:
        found = _lines(section, escape_markdown, lambda title, url: f"[{title}](<{url}>)")
        parts += ["", f"### {escape_markdown(heading(section))}", ""]
        parts += [f"- {line}" for line in (*found, *_rest(section))]
    return "\n".join(parts) + "\n"


def _what(kind: str, rows: Rows) -> str:
    """Return what changed, as `old → new`, or the date where there is nothing older."""
    row = rows[-1]
    last_date = _dates(row["last_date"] or "no date")
    values = _without_repeats(each[name] for each in rows for name in ("old_value", "new_value"))
    found = last_date
    if kind in _DATED:
        # Another kind of change may have moved the date between these changes, or after them.
        dates = _without_repeats([*values, row["last_date"]])
        found = " → ".join(map(_dates, dates))
        if dates == values:
            found += _moved(rows) or ("" if len(values) > 1 else _time_of_day(rows))
    elif kind in ("rescored", "restored"):
        found = f"{'impact ' * (kind == 'rescored')}{' → '.join(values)}, {last_date}"
    elif kind in ("cancelled", "withdrawn"):
        found = f"was {_dates(row['displayed_date'] or 'no date')}"
    elif kind == "revised":
        names = (_FIELDS_HIDDEN.get(name, name) for name in list_other_fields(rows))
        found = ", ".join(dict.fromkeys(name.replace("_", " ") for name in names))
    return found


def list_other_fields(rows: Rows) -> list[str]:
    """Return the fields that changed, without those that another kind of change shows."""
    fields: list[str] = []
    for row in rows:
        kinds = set(row["change_kinds"])
        shown = _OF_THE_DATE if kinds & _DATED else frozenset()
        shown |= _OF_THE_SCORE if "rescored" in kinds else frozenset()
        fields += [name for name in row["changed_fields"] or () if name not in shown]
    return fields or list(rows[-1]["changed_fields"] or ())


def _without_repeats(given: Iterable[str | None]) -> list[str]:
    known = [value for value in given if value is not None]
    return [value for n, value in enumerate(known) if n == 0 or value != known[n - 1]]


def _dates(text: str) -> str:
    """Return a date as text. A range has no arrow, since an arrow shows a change."""
    return text.replace(" → ", " – ")


def _moved(rows: Rows) -> str:
    """Return how far a date moved, empty if that is not known."""
    shifts = [row["shift_days"] for row in rows]
    days = 0 if None in shifts else sum(shifts)
    return f", {show_days(abs(days))} {'later' if days > 0 else 'earlier'}" if days else ""


def _time_of_day(rows: Rows) -> str:
    """Return the change of a date whose text is the same as before; empty if only its end
    changed."""
    row = rows[-1]
    if not any("date" in (change["changed_fields"] or ()) for change in rows):
        return ""
    if row["date_precision"] == "instant":
        return f", now at {row['earliest'].astimezone(UTC):%H:%M} UTC"
    return ", now without a time of day" if row["date_precision"] == "day" else ""


def show_days(days: float) -> str:
    """Return a length of time: in days, or in hours if it is less than one."""
    if days >= 1:
        shown = format_number(round(days, 1))
        return f"{shown} day{'' if shown == '1' else 's'}"
    return f"{format_number(round(days * 24, 1))} h"


def show_impact(row: dict[str, Any]) -> str:
    return format_number(row["impact"]) if row["impact"] is not None else row["impact_band"] or ""


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


LISTED: Final = 10
"""The most events of a section that people are shown by default."""

_SHOWN: Final = (
    *("since", "until", "first_pull_at", "last_pull_at"),
    *("coins", "categories", "min_impact", "unscored"),
)
_ROW: Final = (
    *("kind", "event_id", "version", "known_from", "title", "coins", "categories", "status"),
    *("old_value", "new_value", "shift_days", "displayed_date", "date_precision", "earliest"),
    *("latest", "impact", "impact_band", "source_url"),
)


def format_digest(digest: Digest, form: str) -> str:
    """Return a digest as `table`, `markdown` or `json`, with a line end."""
    if form == "markdown":
        return as_markdown(digest)
    return as_text(digest) if form == "table" else json_text(as_json(digest)) + "\n"


def as_json(digest: Digest) -> dict[str, Any]:
    """Return a digest as a value of JSON; timestamps are datetimes.

    `counts` has every kind that occurred; `rows` the changes, one per version and kind. `text` is
    the digest in one line, which chats show.
    """
    return {
        "text": f"Almanac, {period(digest)}: {summary(digest)}.",
        **{name: getattr(digest, name) for name in _SHOWN},
        "stale": digest.is_stale,
        "counts": {
            section.kind: {"changes": section.changes, "events": section.events}
            for section in digest.sections
        },
        "not_listed": {section.kind: section.more for section in digest.sections if section.more},
        "rows": [
            {name: row[name] for name in _ROW}
            for section in digest.sections
            for rows in section.entries
            for row in rows
        ],
    }
