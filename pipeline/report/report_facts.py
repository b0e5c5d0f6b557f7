"""The facts of a report, as known at a time: rows of the published file, and the home's health.

Nothing here is formatted. No fact of a past time uses anything that became known later.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Annotated, Any, Final

import msgspec

from almanac.coins import slugs_of
from almanac.digest import LISTED, Digest, digest_of, last_known
from almanac.events import (
    category_names,
    check_observed,
    find_pulls,
    impact_values,
    known_at,
)
from almanac.reader import Publication, Reader
from almanac.reading.named_sql import NamedStatements
from catalog.contract.plans import PLANS
from pipeline.health.batches import Coverage, FeedHealth, find_coverage, list_feeds, read_batches
from pipeline.health.checks import read_health
from pipeline.health.facts import HISTORY_DAYS, HealthWarning
from pipeline.secrecy import shareable
from pipeline.settings import Settings
from warehouse.home import Home

FIRST_PERIOD: Final = timedelta(days=7)
"""The first report of a home, and one as of a past time, cover the changes of this time."""
RECENT: Final = timedelta(days=7)
"""A coming event is marked as moved or new for so long, as on the pages."""
WEEKS: Final = 12
LISTED_MISSING: Final = 10
LISTED_REASONS: Final = 5
_WEEK: Final = timedelta(days=7)
_DAY: Final = timedelta(days=1)
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
_SQL = NamedStatements("pipeline.report")


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The contents of a report: its filters, its times, and how many days ahead it shows.

    The filters select coming events and changes; everything else is about all events. `since` None
    is the end of the last report.
    """

    as_of: datetime | None = None
    since: datetime | None = None
    days: int = 14
    coins: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    min_impact: float | None = None

    @property
    def selection(self) -> str:
        """The filters as a text: reports with the same filters follow each other."""
        coins, categories = ",".join(sorted(self.coins)), ",".join(sorted(self.categories))
        least = "" if self.min_impact is None else f"{self.min_impact:g}"
        return f"coins={coins};categories={categories};min_impact={least}".casefold()


class ReportMark(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the period of a report, when it was made, and the start of its changes."""

    until: _Time
    at: _Time
    since: _Time | None = None


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """The requests of the month. `projected` is the use at `reset_at`; None is not known."""

    at: datetime
    used: int | None
    quota: int | None
    projected: int | None
    pace_per_day: float
    reset_at: datetime | None
    is_unlimited: bool = False

    @property
    def runs_out(self) -> bool:
        return self.quota is not None and self.projected is not None and self.projected > self.quota


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """The numbers and rows of a report.

    Attributes:
        at: the time of knowledge; `is_past` if the request named it.
        source: where the home gets its data, as in its stamp.
        last_report: the end of the last report with the same filters; None if there is none.
            It was made at `last_made_at`, with the changes after `last_since`, None if unknown.
        upcoming: the events of `upcoming_as_of` that may begin within `days`.
        marks: the recent moves and creations of these events, by event.
        coin_labels: the tickers of coins, or their names if coins share a ticker, by slug.
        weeks, categories, leads, lead_ranges, batches, reasons, missing: rows of report.sql.
        feeds, coverage: of the last hundred days before `at`.
        warnings: of now; empty for a past time, which has none recorded.
    """

    request: ReportRequest
    at: datetime
    is_past: bool
    publication: Publication
    source: str | None
    first_pull_at: datetime | None
    last_pull_at: datetime | None
    last_report: datetime | None
    last_made_at: datetime | None
    last_since: datetime | None
    digest: Digest
    upcoming: list[dict[str, Any]]
    marks: dict[str, dict[str, Any]]
    coin_labels: dict[str, str]
    weeks: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    leads: list[dict[str, Any]]
    lead_ranges: list[dict[str, Any]]
    batches: dict[str, Any]
    reasons: list[dict[str, Any]]
    missing: list[dict[str, Any]]
    feeds: list[FeedHealth]
    coverage: Coverage
    quota: QuotaFacts | None
    warnings: list[HealthWarning] = field(default_factory=list)

    @property
    def missing_events(self) -> int:
        return self.missing[0]["events"] if self.missing else 0


def collect_facts(
    settings: Settings,
    home: Home,
    reader: Reader,
    request: ReportRequest,
    last: ReportMark | None,
    now: datetime,
) -> ReportFacts:
    """Return the facts of a report from one publication. `now` is by the machine's clock.

    The changes end with the last published pull, so that a pull that is merged
    later is in the next report. A late batch of an earlier time is in neither.

    Raises:
        InvalidArgument: a time is still to come, or `since` is after the end of the period.
        QueryRefused: nothing was pulled by then.
        UnknownName, AmbiguousCoin: a coin or category does not exist, or is not unique.
        WarehouseError: a file of the home can't be read.
    """
    with reader.pinned():
        at = known_at(reader, request.as_of, "as_of")
        check_observed(reader, at, "as_of", request.as_of)
        first_pull_at, last_pull_at = find_pulls(reader, at)
        end = at if request.as_of is not None else last_known(reader) or at
        last_report = None if last is None else last.until
        since = request.since or last_report or end - FIRST_PERIOD
        digest = digest_of(
            reader,
            since=since,
            until=max(since, end) if request.since is None else end,
            coins=request.coins or None,
            categories=request.categories or None,
            min_impact=request.min_impact,
            limit=LISTED,
        )
        values = {
            "at": at,
            "until": at + timedelta(days=request.days),
            "coins": slugs_of(reader, request.coins or None),
            "categories": category_names(reader, request.categories or None),
            **impact_values(request.min_impact),
        }
        weeks = {"first_pull_at": first_pull_at, "at": at, "weeks": WEEKS}
        (batches,) = reader.rows(_SQL["count_batches"], {"since": digest.since, "at": at})
        rows: dict[str, Any] = {
            "upcoming": reader.rows(_SQL["list_upcoming"], values),
            "weeks": reader.rows(_SQL["count_weeks"], weeks),
            "categories": reader.rows(_SQL["count_categories"], {"at": at}),
            "leads": reader.rows(_SQL["summarise_leads"], {"at": at}),
            "lead_ranges": reader.rows(_SQL["count_leads"], {"at": at}),
            "reasons": reader.rows(_SQL["count_rejects"], {"at": at, "limit": LISTED_REASONS}),
            "missing": reader.rows(_SQL["list_missing"], {"at": at, "limit": LISTED_MISSING}),
        }
        listed = {
            "event_ids": [row["event_id"] for row in rows["upcoming"]],
            "since": at - RECENT,
            "at": at,
        }
        slugs = {
            coin
            for row in (*rows["upcoming"], *rows["missing"], *digest.rows())
            for coin in row["coins"] or ()
        }
        labels = reader.rows(_SQL["label_coins"], {"coins": sorted(slugs)})
        health = _read_past_health if request.as_of is not None else _read_present_health
        stamp = home.stamp()
        return ReportFacts(
            request=request,
            at=at,
            is_past=request.as_of is not None,
            publication=reader.publication(),
            source=None if stamp is None else stamp.source,
            first_pull_at=first_pull_at,
            last_pull_at=last_pull_at,
            last_report=last_report,
            last_made_at=None if last is None else last.at,
            last_since=None if last is None else last.since,
            digest=digest,
            marks={row["event_id"]: row for row in reader.rows(_SQL["mark_recent"], listed)},
            coin_labels={row["coin"]: row["label"] for row in labels if row["label"]},
            batches=batches,
            **rows,
            **health(settings, home, reader, at if request.as_of is not None else now),
        )


def _read_present_health(
    settings: Settings, home: Home, reader: Reader, now: datetime
) -> dict[str, Any]:
    """Return feeds, coverage, quota and warnings, as `almanac status` shows them."""
    health = read_health(settings, home, now)
    quota = health.quota
    return {
        "feeds": health.feeds,
        "coverage": health.coverage,
        # The file leaves this machine; a text may repeat the error of a library.
        "warnings": [
            replace(warning, text=shareable(settings, warning.text)) for warning in health.warnings
        ],
        "quota": None
        if quota is None
        else QuotaFacts(
            at=quota.at,
            used=quota.used,
            quota=quota.quota,
            projected=quota.projected,
            pace_per_day=quota.pace_per_day,
            reset_at=quota.reset_at,
            is_unlimited=quota.is_unlimited,
        ),
    }


def _read_past_health(
    settings: Settings, home: Home, reader: Reader, at: datetime
) -> dict[str, Any]:
    """Return feeds, coverage and quota from what was recorded by a time."""
    recent = read_batches(home, (at - timedelta(days=HISTORY_DAYS)).date())
    by_then = tuple(batch for batch in recent.batches if batch.observed_at <= at)
    recent = replace(recent, batches=by_then)
    return {
        "feeds": list_feeds(recent, recent.plan, at, {}),
        "coverage": find_coverage(recent, at),
        "quota": _read_past_quota(reader, at),
    }


def _read_past_quota(reader: Reader, at: datetime) -> QuotaFacts | None:
    rows = reader.rows(_SQL["last_usage"], {"at": at})
    if not rows or (rows[0]["reset_at"] is not None and rows[0]["reset_at"] <= at):
        return None
    (usage,) = rows
    over = _WEEK
    if usage["first_sent_at"] is not None:
        over = min(_WEEK, max(_DAY, at - usage["first_sent_at"]))
    pace = usage["sent_in_week"] / (over / _DAY)
    projected = None
    if usage["used"] is not None and usage["reset_at"] is not None:
        left = (usage["reset_at"] - at) / _DAY
        projected = usage["used"] + usage["sent_since"] + ceil(pace * left)
    plan = PLANS.get(usage["plan"] or "")
    return QuotaFacts(
        at=usage["read_at"].astimezone(UTC),
        used=usage["used"],
        quota=usage["quota"],
        projected=projected,
        pace_per_day=pace,
        reset_at=usage["reset_at"],
        is_unlimited=usage["quota"] is None and plan is not None and plan.monthly_quota is None,
    )
