"""`almanac status`: freshness, waiting and deferred work, quota, and warnings."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Final

import typer

from almanac.console import EXIT_ERROR, JsonOption, Table, fail, people
from almanac.core.timestamps import utc_now
from application.console import describe_quota, print_json
from pipeline.health.facts import FeedHealth, Gap, Health
from pipeline.health.warnings import WARNINGS, find_warnings, read_health
from pipeline.home_location import locate_home
from pipeline.settings import read_settings
from resources.service_clock import NOTABLE
from warehouse.home import Home, describe_source

_GAPS_SHOWN: Final = 3


def show(home: Home, health: Health) -> None:
    """Print feeds, facts and warnings."""
    people.print(f"{home.root}\nSource: {describe_source(health.source or '')}", soft_wrap=True)
    names = ("Feed", "Last pull (UTC)", "Age", "Last complete", "Batches", "State")
    feeds = Table(*names, box=None, padding=(0, 2, 0, 0))
    for feed in health.feeds:
        age = "-" if feed.age_s is None else f"{feed.age_s / 3600:,.1f} h"
        feeds.add_row(
            feed.feed,
            _when(feed.observed_at),
            age,
            _when(feed.complete_at),
            f"{feed.batches:,}",
            _state(feed),
        )
    people.print(feeds)
    people.print()
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, fact in _facts(health):
        facts.add_row(name, fact)
    people.print(facts)


def _facts(health: Health) -> Iterator[tuple[str, str]]:
    yield "Published (UTC)", _when(health.published_at)
    yield "Batches to merge", f"{health.pending:,}"
    yield "List separator", health.list_separator or "not known until an export shows it"
    for problem, count in Counter(batch.problem for batch in health.problems).items():
        yield f"Batches {problem.replace('_', ' ')}", f"{count:,} in 100 days"
    coverage = health.coverage
    if coverage.since is not None:
        yield "Days without a pull", _gaps(coverage.days_unseen, coverage.unseen)
    if coverage.cancellations_lost:
        lost = coverage.cancellations_lost
        yield "Cancellations lost", _gaps(sum(gap.days for gap in lost), lost)
    for feed in health.feeds:
        if feed.refused:
            yield "Refused", f"{feed.feed}: {feed.refused}; the other feeds go on without it"
    for pull in health.deferred:
        until = f"until {_when(pull.resume_at)} UTC: {pull.why}"
        yield "Deferred", f"{pull.work} {pull.feed}, {until}"
    if health.free_bytes is not None:
        yield "Free disk space", f"{health.free_bytes / 1e9:,.1f} GB"
    push = health.push
    if push is not None:
        runs = f"has run since {_when(push.started_at)} UTC" if push.is_running else "does not run"
        yield "Push", f"last delivery (UTC) {_when(push.last_at)}; the receiver {runs}"
        yield "Deliveries", f"{push.waiting:,} wait to be landed; {len(push.rejected):,} rejected"
    if health.mirror is not None:
        yield "Mirror", "runs" if health.mirror else "does not run"
    note = health.runs
    failed = None if note is None else f"{len(note.failed)}, as of {_when(note.at)}"
    yield "Failed runs", failed or "not known until a daemon has run"
    ahead_s = health.ahead_s or 0.0
    if abs(ahead_s) > NOTABLE.total_seconds():
        size, way = timedelta(seconds=round(abs(ahead_s))), "ahead of" if ahead_s > 0 else "behind"
        text = f"{size} {way} this machine's; days and times follow the service's clock"
        yield "Service's clock", text
    if health.is_deprecated:
        since, ends = _when(health.deprecated_since)[:10], _when(health.ends_at)[:10]
        yield "Interface deprecated", f"since {since}, ends {ends}"
    quota = health.quota
    if quota is not None:
        # With who counted it and when: others may have used more since.
        left = describe_quota(quota.remaining, quota.quota, is_unlimited=quota.is_unlimited)
        basis = "as of" if quota.counted_by == "service" else "counted by this machine,"
        yield "Quota left", f"{left}, {basis} {_when(quota.at)} UTC; resets {_when(quota.reset_at)}"
        if quota.projected is not None:
            pace = f"at {quota.pace_per_day:,.0f} a day, the average of the last week"
            yield "Projected use at reset", f"{quota.projected:,}, {pace}"


def write_metrics(health: Health) -> str:
    """Return facts and warnings in the text format of Prometheus; unknown values are left out."""
    month, at, on = health.quota, health.published_at, {each.kind for each in health.warnings}
    samples: dict[str, float | None] = {
        "almanac_home": health.source is not None,
        **{f'almanac_warning{{kind="{kind}"}}': kind in on for kind in WARNINGS},
        **{f'almanac_feed_age_seconds{{feed="{feed.feed}"}}': feed.age_s for feed in health.feeds},
        "almanac_batches_to_merge": health.pending,
        "almanac_published_timestamp_seconds": None if at is None else at.timestamp(),
        "almanac_quota_requests": None if month is None else month.quota,
        "almanac_quota_remaining_requests": None if month is None else month.remaining,
        "almanac_quota_projected_requests": None if month is None else month.projected,
        "almanac_free_bytes": health.free_bytes,
    }
    known = {name: float(value) for name, value in samples.items() if value is not None}
    return "\n".join(f"{name} {value!r}" for name, value in known.items())


def _gaps(days: int, gaps: Sequence[Gap]) -> str:
    if not gaps:
        return f"{days}"
    more = f" and {len(gaps) - _GAPS_SHOWN} more" if len(gaps) > _GAPS_SHOWN else ""
    return f"{days}: {', '.join(str(gap) for gap in gaps[-_GAPS_SHOWN:])}{more}"


def _state(feed: FeedHealth) -> str:
    if not feed.in_plan:
        return "not in the plan"
    if feed.refused:
        return "refused"
    if feed.stale_since is not None:
        return "stale"
    return "-" if feed.interval_s is None or feed.complete_at is None else "fresh"


def _when(instant: datetime | None) -> str:
    return "-" if instant is None else f"{instant:%Y-%m-%d %H:%M}"


def status(
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if there is a warning.")
    ] = False,
    alert: Annotated[
        bool,
        typer.Option("--alert", help="Post to ALMANAC_ALERT_URL what changed, as the daemon does."),
    ] = False,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics in the text format of Prometheus.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show freshness by feed, waiting and missing work, disk and quota. Sends no request."""
    now, settings = utc_now(), read_settings()
    home = locate_home(settings)
    not_posted, posted = "", tuple[str, ...]()
    if alert:
        from pipeline.health.notices import NotPosted, post_warnings

        try:
            # First, since warnings are posted even if the home can't be read.
            posted = post_warnings(settings, home, find_warnings(settings, home, now), now)
        except NotPosted as error:
            not_posted = str(error)
    health = read_health(settings, home, now)
    if prometheus:
        people.print(write_metrics(health), markup=False, soft_wrap=True)
    elif as_json:
        print_json({**asdict(health), **({"posted": posted} if alert else {})})
    else:
        if health.source is None:
            people.print(
                f"There is no home at {home.root} yet. `almanac run` creates it.", soft_wrap=True
            )
        else:
            show(home, health)
        for warning in health.warnings:
            people.print(f"! {warning.text}", soft_wrap=True)
        if posted:
            people.print(f"Posted: {' '.join(posted)}", soft_wrap=True)
    if not_posted:
        fail(not_posted)
    if exit_code and (health.warnings or health.source is None):
        raise typer.Exit(EXIT_ERROR)
