"""A digest of what became known in a period: as text, Markdown, JSON and a Slack message."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final, Literal

from almanac.coins import slugs_of
from almanac.errors import InvalidArgument
from almanac.events import (
    Coins,
    Names,
    category_names,
    find_pulls,
    impact_values,
    known_at,
    listed,
)
from almanac.forms import (
    cut_line,
    json_text,
    markdown,
    mrkdwn,
    plain,
    rounded,
    web_address,
)
from almanac.instants import Instant
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

IN_ORDER: Final = (
    *("cancelled", "rescheduled", "made_exact", "made_estimated", "rescored", "created"),
    *("withdrawn", "restored", "revised", "revealed"),
)
"""The kinds of change, the most important first."""
STALE_AFTER: Final = timedelta(hours=26)
"""A home is pulled once a day; a last pull older than this is said to be old."""
_FLOOD: Final = 20
"""More events than this that are only revealed are a count: a first pull reveals all there are."""
_OF_THE_DATE: Final = frozenset({"date", "date_end", "date_type", "displayed_date", "is_estimated"})
_OF_THE_SCORE: Final = frozenset({"impact", "impact_band"})
_TO_A_PRECISION: Final = frozenset({"made_exact", "made_estimated"})
_SQL = NamedStatements("almanac")


@dataclass(frozen=True, slots=True)
class Entry:
    """The changes of one kind to one event in the period: a row per change, oldest first.

    A row has the columns of `changes`, the date, source and status of the version, and how far a
    date moved, in days.
    """

    rows: Sequence[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        return self.rows[-1]

    @property
    def values(self) -> list[str]:
        """The old value, and the new value after each change, without repeats."""
        return _without_repeats(
            row[name] for row in self.rows for name in ("old_value", "new_value")
        )

    @property
    def dates(self) -> list[str]:
        """The old date, the new dates, and the date as known at the end of the period.

        Another kind of change may have moved the date between these changes, or after them.
        """
        return _without_repeats([*self.values, self.last["last_date"]])

    @property
    def other_fields(self) -> list[str]:
        """The fields that changed, without those that another kind of change shows."""
        fields: list[str] = []
        for row in self.rows:
            kinds = set(row["change_kinds"])
            shown: frozenset[str] = frozenset()
            if kinds & {"rescheduled", *_TO_A_PRECISION}:
                shown |= _OF_THE_DATE
            if "rescored" in kinds:
                shown |= _OF_THE_SCORE
            fields += [
                name
                for name in row["changed_fields"] or ()
                if name not in shown and name not in fields
            ]
        return fields or list(self.last["changed_fields"] or ())


@dataclass(frozen=True, slots=True)
class Section:
    """The changes of one kind: how many there are, and the first events of them.

    `apart` of the events are not in the text of this section: each of their moves made the date
    exact or estimated, and is in the section of that kind.
    """

    kind: str
    changes: int
    events: int
    apart: int
    entries: Sequence[Entry]

    @property
    def shown(self) -> list[Entry]:
        """The entries of the text of this section."""
        return [entry for entry in self.entries if not entry.last["is_apart"]]

    @property
    def more(self) -> int:
        """How many events of the text have no entry."""
        return self.events - self.apart - len(self.shown)


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

    @property
    def stale_for(self) -> timedelta | None:
        """The age of the last pull at the end of the period, if it is old; else None."""
        if self.last_pull_at is None:
            return None
        age = self.until - self.last_pull_at
        return age if age > STALE_AFTER else None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all entries."""
        for section in self.sections:
            for entry in section.entries:
                yield from entry.rows


def last_known(reader: Reader) -> datetime | None:
    """Return the timestamp of the last pull whose changes are published; None if there was none."""
    (row,) = reader.rows(_SQL["last_known"])
    found: datetime | None = row["last_known"]
    return found


def digest_of(
    reader: Reader,
    *,
    since: Instant,
    until: Instant | None = None,
    coins: Coins | None = None,
    kinds: Names | None = None,
    min_impact: float | None = None,
    limit: int | None = None,
    categories: Names | None = None,
) -> Digest:
    """Return what became known after `since`, until `until` (now by default).

    Before the first pull nothing was known, so a period may begin before it. `limit` is the most
    events of a kind that have an entry; None is all. Events that were only revealed have none if
    they are many, unless `kinds` names them.
    """
    with reader.pinned():
        after, before = known_at(reader, since, "since"), known_at(reader, until, "until")
        if before < after:
            raise InvalidArgument(f"until={until!r} is before since={since!r}")
        if limit is not None and limit < 1:
            raise InvalidArgument(f"limit={limit}: expected at least 1")
        named, slugs = listed(kinds, "kinds", IN_ORDER), slugs_of(reader, coins)
        names = category_names(reader, categories)
        values = {
            "since": after,
            "until": before,
            "kinds": named,
            "coins": slugs,
            "categories": names,
            "apart": named is None or set(named) >= _TO_A_PRECISION,
            **impact_values(min_impact),
        }
        counts = reader.rows(_SQL["digest_counts"], values)
        events = {row["kind"]: row["events"] for row in counts}
        with_revealed = "revealed" in (named or ()) or events.get("revealed", 0) <= _FLOOD
        values |= {"limit": limit, "revealed": with_revealed}
        rows = reader.rows(_SQL["digest_rows"], values)
        first_pull_at, last_pull_at = find_pulls(reader, before)
    entries: dict[str, list[Entry]] = {kind: [] for kind in IN_ORDER}
    for (kind, _), of_event in groupby(rows, key=lambda row: (row["kind"], row.pop("place"))):
        entries[kind].append(Entry(list(of_event)))
    sections = [
        Section(row["kind"], row["changes"], row["events"], row["apart"], entries[row["kind"]])
        for row in sorted(counts, key=lambda row: IN_ORDER.index(row["kind"]))
        if row["events"]
    ]
    return Digest(
        since=after,
        until=before,
        first_pull_at=first_pull_at,
        last_pull_at=last_pull_at,
        sections=sections,
        min_impact=values["min_impact"],
        unscored=sum(row["unscored"] for row in counts),
        coins=slugs,
        categories=names,
    )


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
            f"{_minute(digest.last_pull_at)} UTC. Later changes are not known."
        ]
    if digest.first_pull_at > digest.since:
        found.append(
            f"The first pull was at {_minute(digest.first_pull_at)} UTC; before it nothing was "
            "known."
        )
    if digest.coins is not None:
        found.append(f"Only events of {', '.join(digest.coins)}.")
    if digest.categories is not None:
        found.append(f"Only events of the categories {', '.join(digest.categories)}.")
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
    return f"{count}, {describe_apart(section)}" if section.apart else count


def describe_apart(section: Section) -> str:
    """Return where the rescheduled events are that have no line in their section."""
    kinds = " or ".join(f'"{TITLES[kind]}"' for kind in ("made_exact", "made_estimated"))
    return f"and {section.apart:,} more under {kinds}"


def lines(section: Section) -> Iterator[Line]:
    for entry in section.shown:
        row = entry.last
        yield Line(
            impact=_impact(row),
            title=cut_line(row["title"] or row["event_id"]),
            coins=_coins(row["coins"]),
            what=cut_line(_what(section.kind, entry)),
            url=web_address(row["source_url"]),
            is_rescored=section.kind == "rescored",
        )


def more(section: Section) -> str:
    """Return how many events of a section have no line, empty if all have one."""
    if not section.more:
        return ""
    if section.shown:
        return f"and {section.more:,} more"
    return f"not listed; --kinds {section.kind} lists them"


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
    if any(section.more and section.shown for section in digest.sections):
        parts += ["", "--limit N lists more events of each kind."]
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
        if entry.dates != entry.values:
            return " → ".join(map(_dates, entry.dates))
        moved = _moved(entry) or ("" if len(entry.values) > 1 else _time_of_day(entry))
        return " → ".join(map(_dates, entry.values)) + moved
    if kind == "rescored":
        return f"impact {' → '.join(entry.values)}, {_last_date(row)}"
    if kind in ("cancelled", "withdrawn"):
        return f"was {_date(row)}"
    if kind == "restored":
        return f"{' → '.join(entry.values)}, {_last_date(row)}"
    if kind == "revised":
        names = (_FIELDS_HIDDEN.get(name, name) for name in entry.other_fields)
        return ", ".join(dict.fromkeys(name.replace("_", " ") for name in names))
    return _last_date(row)


def _date(row: dict[str, Any]) -> str:
    return _dates(row["displayed_date"] or "no date")


def _last_date(row: dict[str, Any]) -> str:
    """Return the date as known at the end of the period."""
    return _dates(row["last_date"] or "no date")


def _without_repeats(given: Iterable[str | None]) -> list[str]:
    known = [value for value in given if value is not None]
    return [value for n, value in enumerate(known) if n == 0 or value != known[n - 1]]


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
    return f"({cut_line(', '.join(slugs[:_COINS_MAX]))}{more})"


def _after(coins: str) -> str:
    return coins and f" {coins}"


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _age(age: timedelta) -> str:
    hours = age / timedelta(hours=1)
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{max(0, age // timedelta(minutes=1))} min"


DigestForm = Literal["table", "markdown", "json", "slack"]
LISTED: Final = 10
"""The most events of a section that people are shown by default."""

SLACK_TEXT_MAX: Final = 3_000
"""Characters of a text object (docs.slack.dev, text object)."""
SLACK_ALL_MAX: Final = 12_000
"""Characters of all texts. The documentation gives no limit, but Slack refused 13,200
(msg_blocks_too_long, slackapi/bolt-js issue 2509)."""
_ROW: Final = (
    *("kind", "event_id", "version", "known_from", "title", "coins", "categories", "status"),
    *("old_value", "new_value", "shift_days", "displayed_date", "date_precision", "earliest"),
    *("latest", "impact", "impact_band", "source_url"),
)


def in_form(digest: Digest, form: DigestForm) -> str:
    """Return a digest as a text that ends with a line end."""
    if form == "markdown":
        return as_markdown(digest)
    if form == "table":
        return as_text(digest)
    return json_text(as_slack(digest) if form == "slack" else as_json(digest)) + "\n"


def as_json(digest: Digest) -> dict[str, Any]:
    """Return a digest as a value of JSON; timestamps are datetimes.

    `counts` has every kind that occurred; `rows` the changes, one per version and kind. `text` is
    the digest in one line, which chats show.
    """
    return {
        "text": f"Almanac, {period(digest)}: {summary(digest)}.",
        "since": digest.since,
        "until": digest.until,
        "first_pull_at": digest.first_pull_at,
        "last_pull_at": digest.last_pull_at,
        "stale": digest.stale_for is not None or digest.last_pull_at is None,
        "coins": digest.coins,
        "categories": digest.categories,
        "min_impact": digest.min_impact,
        "unscored": digest.unscored,
        "counts": {
            section.kind: {"changes": section.changes, "events": section.events}
            for section in digest.sections
        },
        "not_listed": {section.kind: section.more for section in digest.sections if section.more},
        "rows": [{name: row[name] for name in _ROW} for row in digest.rows()],
    }


def as_slack(digest: Digest) -> dict[str, Any]:
    """Return a digest as the body of a message for a webhook of Slack.

    Texts of the service make no link and no mention. Omitted changes are counted.
    """
    head = f"Almanac, {period(digest)}: {summary(digest)}."
    blocks = [_block("*" + mrkdwn(f"Almanac, {period(digest)}") + "*: " + mrkdwn(summary(digest)))]
    blocks.append({"type": "context", "elements": [_text(mrkdwn(" ".join(notes(digest))))]})
    room = SLACK_ALL_MAX - sum(map(_size, blocks))
    for number, section in enumerate(digest.sections):
        # Each section may use what those before it left.
        share = min(SLACK_TEXT_MAX, room // (len(digest.sections) - number))
        block = _block(_section(section, share))
        room -= _size(block)
        blocks.append(block)
    return {"text": mrkdwn(head)[:SLACK_TEXT_MAX], "blocks": blocks}


def _section(section: Section, room: int) -> str:
    """Return the heading and as many lines as have room, with the count of the others."""
    found, listed = [f"*{mrkdwn(heading(section))}*"], list(lines(section))
    used, reserve = len(found[0]), len("\n_and 1,000,000 more_")
    for number, line in enumerate(listed):
        text = _line(line)
        rest = section.more + len(listed) - number - 1
        if used + len(text) + 1 + (reserve if rest else 0) > room:
            found.append(f"_and {section.more + len(listed) - number:,} more_")
            return "\n".join(found)
        found.append(text)
        used += len(text) + 1
    if rest_text := more(section):
        found.append(f"_{rest_text}_")
    return "\n".join(found)


def _line(line: Line) -> str:
    title = mrkdwn(line.title)
    linked = f"<{line.url.replace('&', '&amp;')}|{title}>" if line.url else title
    impact = f"  ·  impact {mrkdwn(line.impact)}" if line.says_impact else ""
    coins = f" {mrkdwn(line.coins)}" if line.coins else ""
    return f"• {linked}{coins}: {mrkdwn(line.what)}{impact}"


def _block(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _text(text)}


def _text(text: str) -> dict[str, Any]:
    # Verbatim: Slack turns no address, channel or name in a title into a link.
    return {"type": "mrkdwn", "text": text[:SLACK_TEXT_MAX], "verbatim": True}


def _size(block: dict[str, Any]) -> int:
    texts = block["elements"] if "elements" in block else [block["text"]]
    return sum(len(text["text"]) for text in texts)
