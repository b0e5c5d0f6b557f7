"""The parts of a report in no format yet: sentences, tables, sections, and values as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from almanac.forms import cut_line, rounded, web_address
from pipeline.report.plots import Plot

_COINS: Final = 4


@dataclass(frozen=True, slots=True)
class Quote:
    """A text of the service, with the web address that it links to, if any."""

    text: str
    url: str | None = None


Sentence = Sequence[str | Quote]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table. `numbers` are the indexes of the columns with numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Quote]]
    numbers: frozenset[int] = frozenset()
    title: str = ""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section: sentences, then tables and plots in their order."""

    name: str
    title: str
    sentences: Sequence[Sentence]
    parts: Sequence[ReportTable | Plot] = ()


def make_text(sentence: Sentence) -> str:
    """Return a sentence as one text, without links."""
    return "".join(part if isinstance(part, str) else part.text for part in sentence)


def quote_title(row: dict[str, Any]) -> Quote:
    return Quote(cut_line(row["title"] or row["event_id"]), web_address(row["source_url"]))


def show_impact(row: dict[str, Any]) -> str:
    return rounded(row["impact"]) if row["impact"] is not None else row["impact_band"] or ""


def join_coins(slugs: Sequence[str] | None, labels: Mapping[str, str]) -> str:
    """Return the labels of coins; the slug of a coin without one."""
    if not slugs:
        return ""
    rest = f" +{len(slugs) - _COINS}" if len(slugs) > _COINS else ""
    return cut_line(", ".join(labels.get(slug, slug) for slug in slugs[:_COINS])) + rest


def show_date(row: dict[str, Any]) -> Quote:
    return Quote(cut_line(row["displayed_date_full"] or "not shown", 80))


def show_share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def show_number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def tally(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def minute(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def exact_time(at: datetime) -> str:
    """Return a time that a command or page reads as the same time."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def show_age(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"
