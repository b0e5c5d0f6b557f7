"""`almanac status`: freshness, waiting and deferred work, quota, and warnings."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from almanac.console import EXIT_ERROR, JsonOption, Table, fail, people
from pipeline.console import print_json, quota_left
from pipeline.health.batches import FeedHealth, Gap
from pipeline.health.checks import read_health
from pipeline.health.facts import DeferredWork, Health, read_sizes
from pipeline.health.push import PushHealth
from pipeline.health.quota import QuotaHealth
from pipeline.home_location import locate_home
from pipeline.settings import Settings, SettingsError, read_settings
from warehouse.clock import utc_now
from warehouse.home import Home

if TYPE_CHECKING:
    from pipeline.health.notices import WarningChanges

_GAPS_SHOWN: Final = 3


def show(home: Home, health: Health) -> None:
    """Print feeds, facts and warnings."""
    people.print(f"{home.root}, from {health.source}", soft_wrap=True)
    feeds = Table("Feed", "Last pull (UTC)", "Age", "Last complete (UTC)", "State", "Batches")
    for feed in health.feeds:
        age = "-" if feed.age_s is None else _age(timedelta(seconds=feed.age_s))
        feeds.add_row(
            *(feed.feed, _when(feed.observed_at), age, _when(feed.complete_at), _state(feed)),
            f"{feed.batches:,}",
        )
    people.print(feeds)
    facts = Table("", "", show_header=False)
    for name, fact in _facts(health):
        facts.add_row(name, fact)
    people.print(facts)
    show_warnings(health)


def show_warnings(health: Health) -> None:
    """Print the warnings, a line each."""
    for warning in health.warnings:
        people.print(f"! {warning.text}", soft_wrap=True)


def _facts(health: Health) -> Iterator[tuple[str, str]]:
    yield "Published (UTC)", _when(health.published_at)
    yield "Batches to merge", f"{health.pending:,}"
    suspect = f"{len(health.quarantined)} quarantined, {len(health.flagged)} flagged"
    yield "Suspect batches", suspect
    lately = f"{health.rejected_lately.rows:,} in the last 2 days"
    yield "Rejected rows", f"{health.rejected:,} in all, {lately}"
    yield "List separator", health.list_separator or "; (no export has shown it yet)"
    coverage = health.coverage
    if coverage.since is not None:
        yield "Days without a pull", _gaps(coverage.days_unseen, coverage.unseen)
    if coverage.cancellations_lost:
        lost = coverage.cancellations_lost
        yield "Cancellations lost", _gaps(sum(gap.days for gap in lost), lost)
    for feed in health.feeds:
        if feed.refused:
            yield "Refused", f"{feed.feed}: {feed.refused}; the other feeds go on without it"
    for number, deferred in enumerate(health.deferred):
        yield "" if number else "Deferred", _deferred_text(deferred)
    for part, size in health.bytes.items():
        yield part, f"{size / 1e6:,.1f} MB"
    yield "Free disk space", f"{health.free_bytes / 1e9:,.1f} GB"
    if health.push is not None:
        yield from _push(health.push)
    if health.mirror is not None:
        yield "Mirror", "runs" if health.mirror else "does not run"
    if health.runs is None:
        yield "Failed runs", "not known until a daemon has run"
    else:
        yield "Failed runs", f"{len(health.runs.failed)}, as of {_when(health.runs.at)}"
    if health.clock is not None and health.clock.is_notable:
        yield "Service's clock", str(health.clock)
    if health.deprecated is not None:
        since, ends_at = health.deprecated.since, health.deprecated.ends_at
        yield "Interface deprecated", f"since {_day(since)}, ends {_day(ends_at)}"
    if health.quota is not None:
        yield from _quota(health.quota)


def _push(push: PushHealth) -> Iterator[tuple[str, str]]:
    """Yield what is received by push."""
    runs = f"has run since {_when(push.started_at)} UTC" if push.is_running else "does not run"
    yield "Push", f"last delivery (UTC) {_when(push.last_at)}; the receiver {runs}"
    yield "Deliveries", f"{push.waiting:,} wait to be landed; {len(push.rejected):,} rejected"


def _quota(quota: QuotaHealth) -> Iterator[tuple[str, str]]:
    """Yield the quota left, with who counted it and when; others may have used more since."""
    left = quota_left(quota.remaining, quota.quota, is_unlimited=quota.is_unlimited)
    resets = "" if quota.reset_at is None else f"; resets {_when(quota.reset_at)}"
    basis = "as of" if quota.counted_by == "service" else "counted by this machine,"
    yield "Quota left", f"{left}, {basis} {_when(quota.at)} UTC{resets}"
    if quota.own is not None:
        yield "Sent this month", f"{quota.own:,} by this machine"
    if quota.reserve:
        yield "Reserved for daily pulls", f"{quota.reserve:,}"
    if quota.projected is not None:
        pace = f"at {quota.pace_per_day:,.0f} a day, the average of the last week"
        most = "" if quota.quota is None else f" of {quota.quota:,}"
        yield "Projected use at reset", f"{quota.projected:,}{most}, {pace}"
    if quota.held_until is not None:
        yield "Held back", f"until {quota.held_until:%H:%M:%S} UTC, as the service requested (429)"


def _deferred_text(deferred: DeferredWork) -> str:
    if deferred.resume_at is None:
        return (
            f"{deferred.work}: {deferred.what}, started {_when(deferred.since)} UTC, not finished"
        )
    return (
        f"{deferred.work}: {deferred.what}, until {_when(deferred.resume_at)} UTC: {deferred.why}"
    )


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


def _day(instant: datetime | None) -> str:
    return "no date given" if instant is None else f"{instant:%Y-%m-%d}"


def _age(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.0f} days"


def status(
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if there is a warning.")
    ] = False,
    alert: Annotated[
        bool,
        typer.Option("--alert", help="Post new warnings to ALMANAC_ALERT_URL, as the daemon does."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show freshness by feed, waiting and missing work, disk and quota. Sends no request."""
    now, settings = utc_now(), read_settings()
    if alert and not settings.alerts:
        raise SettingsError("--alert needs ALMANAC_ALERT_URL, which is not set.")
    home = locate_home(settings)
    # First, since warnings are posted even if the home can't be read.
    changes, not_posted = _alerted(settings, home, now) if alert else (None, "")
    health = read_health(settings, home, now)
    if health.source is not None:
        health.bytes = read_sizes(home)
    if as_json:
        print_json({**asdict(health), **({} if changes is None else {"posted": changes.kinds})})
    elif health.source is None:
        people.print(
            f"There is no home at {home.root} yet. `almanac run` creates it.", soft_wrap=True
        )
        show_warnings(health)
    else:
        show(home, health)
        if changes:
            people.print(f"Posted: {' '.join(changes.kinds)}", soft_wrap=True)
    if not_posted:
        fail(not_posted)
    if exit_code and (health.warnings or health.source is None):
        raise typer.Exit(EXIT_ERROR)


def _alerted(settings: Settings, home: Home, now: datetime) -> "tuple[WarningChanges, str]":
    """Post new warnings; return what was posted, and the reason if that failed."""
    # Imported here, since only a post needs the HTTP library.
    from pipeline.health.notices import NotPosted, WarningChanges, post_warnings

    try:
        return post_warnings(settings, home, now), ""
    except NotPosted as error:
        return WarningChanges(), str(error)


def metrics(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address on which to answer.")
    ] = "127.0.0.1:9464",
) -> None:
    """Serve the facts and warnings of `almanac status` to Prometheus, at /metrics.

    Each scrape reads the home. Sends no request.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError(f"--listen {listen}: expected HOST:PORT, as 127.0.0.1:9464.")
    # Imported here, since no other command serves metrics.
    from prometheus_client import start_http_server

    from pipeline.health.metrics import make_registry

    settings = read_settings()
    registry = make_registry(settings, locate_home(settings), utc_now)
    try:
        server, thread = start_http_server(int(port), host, registry)
    except OSError as error:
        fail(f"can't listen on {listen}: {error.strerror}. Choose another address by --listen.")
    people.print(f"Metrics at http://{host}:{server.server_port}/metrics; Ctrl-C ends it.")
    thread.join()
