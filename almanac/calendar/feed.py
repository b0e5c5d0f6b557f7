"""Events as an iCalendar feed (RFC 5545), as they were known at a timestamp.

    with almanac.open("data") as db:
        feed = write_feed(db, FeedQuery(coins=["slug:bitcoin"], min_impact=7))
        Path("bitcoin.ics").write_bytes(feed.content)

The same knowledge and query give the same bytes. docs/serve.md states the rules.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, get_args

from almanac.coins import keep_ranked, resolve_slugs
from almanac.core.errors import InvalidArgument, UnknownName, WarehouseError
from almanac.core.statements import Statements
from almanac.core.text import format_number, make_web_address, plain_line, plain_with_joiners
from almanac.core.timestamps import TimestampLike, read_timestamp, subtract_time
from almanac.database import Database
from almanac.events import (
    Coins,
    Estimated,
    MinImpact,
    Names,
    check_choice,
    make_impact_values,
    make_window_values,
    read_observed,
    resolve_categories,
)
from almanac.reader import Ambiguous, Reader

Cancelled = Literal["show", "drop"]
LIMIT: Final = 10_000
LIMIT_MOST: Final = 100_000
PAST: Final = timedelta(days=30)
"""How far back a feed begins if the query names no start."""
SUFFIX: Final = "@crypto-almanac"
"""The end of each UID: fixed, so that every machine writes the same."""
_REFRESH: Final = b"PT1H"
_SEQUENCE_FROM: Final = datetime(2017, 1, 1, tzinfo=UTC)
_TICKERS_MAX: Final = 3
_OCTETS_MAX: Final = 75
_PREFIX: Final = {"cancelled": "Cancelled: ", "withdrawn": "Withdrawn: "}
_SQL: Final = Statements("almanac.calendar")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedQuery:
    """The events of a feed, and the form in which they are shown.

    Attributes:
        coins, categories, min_impact: as in `Database.events`.
        max_rank: the worst rank of a coin, as it was known at `as_of`; None is any.
        q: a part of the title, in any case.
        estimated: `include` shows a period or deadline on its last day, `drop` leaves it out,
            `only` shows no other. None is `include` with `event_ids`, else `drop`.
        cancelled: `show` keeps cancelled and withdrawn events with STATUS:CANCELLED, `drop` leaves
            them out.
        event_ids: these events alone, of any date; None is all.
        starts, ends: the window of event dates, as in `Database.events`. Without `starts` a feed
            begins 30 days before `as_of`.
        as_of: the timestamp; None is now.
        ambiguous: as in `almanac.open`; None is as it was opened.
        limit: the most events; those farthest in the future are left out.
    """

    coins: Coins | None = None
    categories: Names | None = None
    min_impact: MinImpact | None = None
    max_rank: int | None = None
    q: str | None = None
    estimated: Estimated | None = None
    cancelled: Cancelled = "show"
    event_ids: tuple[str, ...] | None = None
    starts: TimestampLike | None = None
    ends: TimestampLike | None = None
    as_of: TimestampLike | None = None
    ambiguous: Ambiguous | None = None
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class Feed:
    """A calendar: its bytes, the number of its events, and the number that the query selects."""

    content: bytes
    events: int
    total: int
    notes: tuple[str, ...] = ()

    @property
    def is_truncated(self) -> bool:
        return self.events < self.total


def write_feed(database: Database, query: FeedQuery) -> Feed:
    """Return the iCalendar file for a query.

    Raises:
        InvalidArgument: an argument is wrong, or `as_of` is still to come.
        QueryRefused: nothing was observed yet at `as_of`.
        UnknownName, AmbiguousCoin: a coin, category or event does not exist, or is not unique.
        WarehouseError: the package icalendar is not installed.
    """
    _require_icalendar()
    reader = database.reader
    with reader.pinned():
        values = _read_values(reader, query)
        known, shown = _SQL["calendar_known"], _SQL["calendar_events"]
        limited = {**values, "limit": query.limit}
        rows = reader.rows(f"WITH known AS ({known}\n) {shown}", limited)
        slugs: list[str] = values["coins"] or []
        coins = () if query.coins is None else slugs
        named = {slug for row in rows for slug in row["coins"] or ()}.union(slugs)
        found = reader.rows(_SQL["calendar_coins"], {"slugs": sorted(named)})
        if not rows:
            _check_known(database, query, values["at"])
    total = rows[0]["total"] if rows else 0
    tickers = {row["slug"]: row["symbol"].upper() for row in found if row["symbol"]}
    names = {row["slug"]: row["name"] for row in found}
    for row in rows:
        # The coins of the filter first: the title names only three.
        row["coins"] = sorted(row["coins"] or (), key=lambda slug: slug not in slugs)
        row["tickers"] = _list_tickers(row["coins"], tickers)
        row["coin_names"] = ", ".join(
            (names.get(slug) or slug) + (f" ({tickers[slug]})" if slug in tickers else "")
            for slug in row["coins"]
        )
    name = _name(query, values, _list_tickers(coins, tickers))
    head = _head(name, values["estimated"], query.limit, len(rows), total)
    lines = [*head, *_events(rows), b"END:VCALENDAR"]
    notes = getattr(values["coins"], "notes", ())
    return Feed(b"\r\n".join(lines) + b"\r\n", len(rows), total, notes)


def count_events(database: Database, query: FeedQuery) -> int:
    """Return the number of events of a query, without its limit.

    Raises: as `write_feed`.
    """
    reader = database.reader
    with reader.pinned():
        counted = f"SELECT count(*) AS total FROM ({_SQL['calendar_known']}\n)"
        values = _read_values(reader, query)
        total: int = reader.rows(counted, values)[0]["total"]
        if not total:
            _check_known(database, query, values["at"])
    return total


def _read_values(reader: Reader, query: FeedQuery) -> dict[str, Any]:
    """Return the parameters of `calendar_known`."""
    estimated = query.estimated or ("drop" if query.event_ids is None else "include")
    check_choice(estimated, "estimated", get_args(Estimated))
    check_choice(query.cancelled, "cancelled", get_args(Cancelled))
    if not 1 <= query.limit <= LIMIT_MOST:
        raise InvalidArgument(f"limit={query.limit!r}; expected 1 to {LIMIT_MOST:,}")
    at = read_observed(reader, query.as_of, "as_of")
    for name, bound in (("from", query.starts), ("to", query.ends)):
        if bound is not None:
            read_timestamp(bound, name, reader.tz, now=at)
    coins = resolve_slugs(reader, query.coins, at, query.ambiguous)
    starts = query.starts
    if starts is None and query.event_ids is None:
        starts = default_start(at)
    return {
        "at": at,
        "coins": keep_ranked(reader, coins, query.max_rank, at),
        "categories": resolve_categories(reader, query.categories),
        "words": query.q.strip().lower() or None if query.q else None,
        "event_ids": None if query.event_ids is None else list(query.event_ids),
        "estimated": estimated,
        "cancelled": query.cancelled == "show",
        **make_window_values(reader, (starts, query.ends)),
        **make_impact_values(query.min_impact),
    }


def default_start(at: datetime) -> datetime:
    """Return the midnight at which a feed begins if its query names no start."""
    first = subtract_time(at.astimezone(UTC), PAST)
    return first.replace(hour=0, minute=0, second=0, microsecond=0)


def _require_icalendar() -> None:
    try:
        import icalendar  # noqa: F401
    except ModuleNotFoundError as error:
        raise WarehouseError(
            "a calendar needs the package icalendar, which is not installed. Nothing was written. "
            "Run: pip install 'crypto-almanac[calendar]'"
        ) from error


def _check_known(database: Database, query: FeedQuery, at: datetime) -> None:
    """Raise UnknownName if one of the query's events was never observed by a timestamp."""
    for event_id in query.event_ids or ():
        first = database.history(event_id).rows()[0]
        if first["event_id"] != event_id or first["known_from"] > at:
            raise UnknownName(f"no event with the id {event_id!r} was known at {at.isoformat()}")


def _name(query: FeedQuery, values: Mapping[str, Any], tickers: str) -> str:
    least, given = values["min_impact"], query.categories
    parts = (
        tickers,
        given if isinstance(given, str) else ", ".join(map(str, given or ())),
        "" if least is None else f"impact {format_number(least)}+",
        "" if query.max_rank is None else f"rank 1 to {query.max_rank}",
        f"“{query.q.strip()}”" if values["words"] and query.q else "",
        "" if query.as_of is None else f"as of {query.as_of}",
    )
    return plain_line(" · ".join(["Crypto events", *filter(None, parts)]))


def _list_tickers(slugs: Sequence[str], tickers: Mapping[str, str]) -> str:
    shown = ", ".join(tickers.get(slug, slug) for slug in slugs[:_TICKERS_MAX])
    more = len(slugs) - _TICKERS_MAX
    return f"{shown} +{more}" if more > 0 else shown


def _head(name: str, estimated: Estimated, limit: int, events: int, total: int) -> Iterator[bytes]:
    note = "Dates in [brackets] are not exact: the event is shown on the last possible day."
    if estimated == "drop":
        note = "Events without an exact date are left out."
    left_out = (
        f"Truncated: {events:,} of {total:,} events, the earliest dates. Select fewer events, "
        f"or raise the limit ({limit:,})."
    )
    if events < total:
        note = f"{left_out} {note}"
    yield from (
        *(b"BEGIN:VCALENDAR", b"VERSION:2.0", b"PRODID:-//crypto-almanac//Almanac//EN"),
        *(b"CALSCALE:GREGORIAN", b"METHOD:PUBLISH"),
        text_line("NAME", name),
        text_line("X-WR-CALNAME", name),
        text_line("X-WR-CALDESC", note),
        b"REFRESH-INTERVAL;VALUE=DURATION:" + _REFRESH,
        b"X-PUBLISHED-TTL:" + _REFRESH,
    )
    if events < total:
        yield text_line("X-ALMANAC-TRUNCATED", left_out)


def _events(rows: list[dict[str, Any]]) -> Iterator[bytes]:
    for row in rows:
        changed = _instant(row["changed_at"])
        yield b"BEGIN:VEVENT"
        yield text_line("UID", plain_line(row["event_id"]) + SUFFIX)
        yield b"DTSTAMP:" + changed
        yield b"LAST-MODIFIED:" + changed
        yield b"SEQUENCE:%d" % sequence_number(
            row["version_from"], row["version"], row["removed"] or ()
        )
        yield from _when(row)
        yield text_line("SUMMARY", _summary(row))
        yield text_line("DESCRIPTION", _description(row))
        if row["categories"]:
            names = (_escaped(plain_line(name)) for name in row["categories"])
            yield _folded(f"CATEGORIES:{','.join(names)}")
        if (address := make_web_address(row["source_url"])) is not None:
            yield _folded(f"URL:{address}")
        yield _status(row)
        yield b"TRANSP:TRANSPARENT"
        yield b"END:VEVENT"


def sequence_number(version_from: datetime, version: int, removed: Sequence[datetime] = ()) -> int:
    """Return the SEQUENCE of an event: whole seconds from 2017 to its version, and its number.

    Later knowledge has a greater number, also within a second, and after a refold that numbers the
    versions anew. Each removed version adds three, minus one while the newest of them is not known
    again. So both a removal and a return raise the number.
    """
    current = _seconds(version_from)
    newest = max((current, *map(_seconds, removed)))
    return newest + version + 3 * len(removed) - (newest > current)


def _seconds(moment: datetime) -> int:
    return max(0, (moment - _SEQUENCE_FROM) // timedelta(seconds=1))


def _when(row: Mapping[str, Any]) -> Iterator[bytes]:
    if row["starts_at"] is None:
        yield f"DTSTART;VALUE=DATE:{row['first_day']:%Y%m%d}".encode()
        yield f"DTEND;VALUE=DATE:{row['end_day']:%Y%m%d}".encode()
        return
    yield b"DTSTART:" + _instant(row["starts_at"])
    if row["ends_at"] is not None:
        yield b"DTEND:" + _instant(row["ends_at"])


def _status(row: Mapping[str, Any]) -> bytes:
    if row["status"] != "scheduled":
        return b"STATUS:CANCELLED"
    is_sure = row["is_exact"] and row["missing_since"] is None
    return b"STATUS:CONFIRMED" if is_sure else b"STATUS:TENTATIVE"


def _summary(row: Mapping[str, Any]) -> str:
    period = "" if row["is_exact"] else f"[{row['displayed_date_full']}] "
    coins = f"{row['tickers']}: " if row["tickers"] else ""
    title = row["title"] or "Untitled event"
    line = f"{_PREFIX.get(row['status'], '')}{period}{coins}{title}"
    return plain_with_joiners(" ".join(line.split()))


def _description(row: Mapping[str, Any]) -> str:
    """Return the description: a line for each fact that is known; a hidden fact says so."""
    lines = []
    if row["status"] != "scheduled":
        since = row["cancelled_at"] or row["version_from"]
        lines.append(f"This event was {row['status']} ({_minute(since)}).")
    elif row["missing_since"] is not None:
        lines.append(f"The service stopped listing this event ({_minute(row['missing_since'])}).")
    if not row["is_exact"]:
        lines.append(f"Date: {row['displayed_date_full']}. This is not an exact date.")
    band = f" ({row['impact_band']})" if row["impact_band"] else ""
    facts = {
        "coins": row["coin_names"],
        "categories": ", ".join(row["categories"] or ()),
        "impact": "" if row["impact"] is None else f"{row['impact']:g} of 10{band}",
    }
    for field, fact in facts.items():
        shown = "not shown by the plan" if field in (row["unknown_fields"] or ()) else fact
        lines += [f"{field.capitalize()}: {shown}"] if shown else []
    if row["description"]:
        lines += ["", row["description"], ""]
    known = f"First seen {_minute(row['first_seen_at'])}"
    if row["version_from"] != row["first_seen_at"]:
        known += f", last changed {_minute(row['version_from'])}"
    lines.append(f"{known}.")
    if (address := make_web_address(row["source_url"])) is not None:
        lines.append(f"Source: {address}")
    return plain_with_joiners("\n".join(lines).replace("\r\n", "\n").replace("\r", "\n"))


def _minute(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _instant(instant: datetime) -> bytes:
    return f"{instant.astimezone(UTC):%Y%m%dT%H%M%SZ}".encode()


def text_line(name: str, text: str) -> bytes:
    """Return the content line of a property that is a text: escaped and folded."""
    return _folded(f"{name}:{_escaped(text)}")


def _escaped(text: str) -> str:
    from icalendar import vText

    # icalendar takes a backslash before N for a line break; in a title it is neither.
    parts = text.split("\\N")
    return r"\\N".join(vText(part).to_ical().decode() for part in parts)


def _folded(line: str) -> bytes:
    """Return a content line in lines of at most 75 octets, cut between characters and escapes.

    icalendar folds one character after another, which takes half of the time of a feed.
    """
    data = line.encode()
    if len(data) <= _OCTETS_MAX:
        return data
    parts, start, room = [], 0, _OCTETS_MAX
    while len(data) - start > room:
        end = start + room
        while data[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        backslashes = end - start - len(data[start:end].rstrip(b"\\"))
        end -= backslashes % 2  # inside an escape
        parts.append(data[start:end])
        start, room = end, _OCTETS_MAX - 1  # a blank begins each of the next lines
    parts.append(data[start:])
    return b"\r\n ".join(parts)
